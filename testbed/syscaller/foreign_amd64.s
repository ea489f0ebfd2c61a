#include "textflag.h"

// func i386Getpid() int64
TEXT ·i386Getpid(SB), NOSPLIT, $0-8
	MOVL $20, AX
	INT  $0x80
	MOVLQSX AX, AX
	MOVQ AX, ret+0(FP)
	RET

// func x32Getpid() int64
TEXT ·x32Getpid(SB), NOSPLIT, $0-8
	MOVL $0x40000027, AX
	SYSCALL
	MOVQ AX, ret+0(FP)
	RET
