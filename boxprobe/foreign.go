package main

import (
	"encoding/binary"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func foreignChecks() []Check {
	mutations := []string{"seccomp-off"}
	return []Check{
		{"S07", filter, full, "run a program that makes a call by int 0x80, the table of i386", "SIGSYS", append(mutations, "no-arch-kill"),
			"inside: the same program with a call of its own ends with its own status",
			func(*Fixture) Result { return killedFor("a call by int 0x80", int80) }},
		{"S08", filter, full, "run a program that makes a call of x32", "SIGSYS", append(mutations, "no-x32-kill"),
			"inside: the same program with a call of its own ends with its own status",
			func(*Fixture) Result { return killedFor("a call of x32", x32) }},
	}
}

// The programs ask for their own number in one of the three ways that an
// x86-64 CPU knows, and end with a status of ours. They are programs of their
// own, for the filter's answer is to end the process.
var (
	own   = []byte{0xb8, 39, 0, 0, 0, 0x0f, 0x05}    // mov eax, getpid; syscall
	int80 = []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80}    // mov eax, getpid of i386; int 0x80
	x32   = []byte{0xb8, 39, 0, 0, 0x40, 0x0f, 0x05} // mov eax, getpid | 1<<30; syscall
	leave = []byte{0xbf, lived, 0, 0, 0, 0xb8, 231, 0, 0, 0, 0x0f, 0x05}
)

// lived is the status of such a program that was not ended.
const lived = 42

func killedFor(what string, call []byte) Result {
	if runtime.GOARCH != "amd64" {
		return pass("a program of this CPU has one table of calls, and no way to make %s", what)
	}
	status, err := runCode(own)
	if err != nil || !status.Exited() || status.ExitStatus() != lived {
		return unclear("a program with a call of its own does not run either: status %#x, %v", status, err)
	}
	status, err = runCode(call)
	switch {
	case err != nil:
		return unclear("start the program: %v", errno(err))
	case status.Signaled() && status.Signal() == unix.SIGSYS:
		return pass("the program was ended")
	case status.Signaled() && status.Signal() == unix.SIGSEGV:
		return pass("this kernel has no way to make %s: the program faults", what)
	case status.Exited():
		return fail("%s does not end a program", what)
	}
	return unclear("the program ended in another way: status %#x", status)
}

// runCode makes a program of a few bytes, runs it and gives how it ended.
func runCode(code []byte) (syscall.WaitStatus, error) {
	file, err := os.CreateTemp("/tmp", "boxprobe")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(program(code))
	if err == nil {
		err = file.Chmod(0o700)
	}
	file.Close()
	if err != nil {
		return 0, err
	}
	// Another check may be forking at this moment, and its child hold the file
	// open for writing until it execs: never, for checks run one by one.
	pid, err := syscall.ForkExec(file.Name(), []string{"boxprobe"}, &syscall.ProcAttr{Env: []string{}})
	if err != nil {
		return 0, err
	}
	var status syscall.WaitStatus
	_, err = syscall.Wait4(pid, &status, 0, nil)
	return status, err
}

// program is the smallest file that Linux runs on x86-64: a header, one
// segment that is the whole file, and the code.
func program(code []byte) []byte {
	const base, header, segment = 0x400000, 64, 56
	code = append(append([]byte{}, code...), leave...)
	le := binary.LittleEndian
	out := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	out = le.AppendUint16(out, 2)                   // an executable
	out = le.AppendUint16(out, 62)                  // of x86-64
	out = le.AppendUint32(out, 1)                   // version
	out = le.AppendUint64(out, base+header+segment) // entry
	out = le.AppendUint64(out, header)              // program headers
	out = le.AppendUint64(out, 0)                   // no sections
	out = le.AppendUint32(out, 0)                   // flags
	for _, n := range []uint16{header, segment, 1, 0, 0, 0} {
		out = le.AppendUint16(out, n)
	}
	size := uint64(header + segment + len(code))
	out = le.AppendUint32(out, 1) // load
	out = le.AppendUint32(out, 5) // to be read and run
	for _, n := range []uint64{0, base, base, size, size, 0x1000} {
		out = le.AppendUint64(out, n)
	}
	return append(out, code...)
}
