package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// cpu is the time that a process has used, its ended threads among it, by its
// own clock: /proc counts in steps of 10 ms.
func (c *contender) cpu() time.Duration {
	const scheduled = 2
	clock := uintptr(^c.process.Process.Pid)<<3 | scheduled // as clock_getcpuclockid(3) makes it
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano())
}

// weight gives the KiB of memory and the open files of a process.
func (c *contender) weight() (kib float64, files int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.process.Process.Pid))
	if _, rest, ok := strings.Cut(string(b), "VmRSS:"); ok {
		n, _ := strconv.Atoi(strings.Fields(rest)[0])
		kib = float64(n)
	}
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.process.Process.Pid))
	return kib, len(list)
}

// activeOpens is how many TCP connections were begun in this namespace.
func activeOpens() int {
	b, _ := os.ReadFile("/proc/self/net/snmp")
	_, rest, _ := strings.Cut(string(b), "\nTcp: ")
	_, rest, _ = strings.Cut(rest, "\nTcp: ")
	words := strings.Fields(rest)
	if len(words) < 5 {
		return 0
	}
	n, _ := strconv.Atoi(words[4])
	return n
}
