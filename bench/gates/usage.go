package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// cpu is the time that a process has used, its ended threads among it.
func cpu(cmd *exec.Cmd) time.Duration {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	words := strings.Fields(rest)
	if len(words) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(words[11])
	system, _ := strconv.Atoi(words[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 on every Linux
}

// weight gives the KiB of memory and the open files of a process.
func weight(cmd *exec.Cmd) (kib float64, files int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if _, rest, ok := strings.Cut(string(b), "VmRSS:"); ok {
		n, _ := strconv.Atoi(strings.Fields(rest)[0])
		kib = float64(n)
	}
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", cmd.Process.Pid))
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
