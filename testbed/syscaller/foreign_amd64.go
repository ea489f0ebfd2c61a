package main

// foreign are the calls of other modes that an x86-64 process can make.
var foreign = map[string]func() int64{"i386": i386Getpid, "x32": x32Getpid}

func i386Getpid() int64
func x32Getpid() int64
