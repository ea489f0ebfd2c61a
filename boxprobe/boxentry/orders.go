package main

import (
	"errors"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// orders are what the worker wants done, one word each, then "--" and the
// engine's own words.
type orders struct {
	socket  int
	listen  []int
	nproc   uint64
	nofile  uint64
	fsize   uint64 // MiB
	tty     bool
	pipe    bool
	core    bool // the caller's limit of core files stays: the self-check has taken it away
	score   bool // and so does its score for the moment when memory is short
	command []string
}

func parseOrders(args []string) (orders, error) {
	var o orders
	for i, word := range args {
		if word == "--" {
			o.command = args[i+1:]
			break
		}
		name, value, _ := strings.Cut(word, "=")
		if err := o.set(name, value); err != nil {
			return o, errors.New("order " + word + ": " + err.Error())
		}
	}
	if len(o.command) == 0 {
		return o, errors.New("no command")
	}
	return o, nil
}

func (o *orders) set(name, value string) (err error) {
	switch name {
	case "socket":
		o.socket, err = strconv.Atoi(value)
	case "listen":
		o.listen, err = ports(value)
	case "nproc":
		o.nproc, err = strconv.ParseUint(value, 10, 32)
	case "nofile":
		o.nofile, err = strconv.ParseUint(value, 10, 32)
	case "fsize":
		o.fsize, err = strconv.ParseUint(value, 10, 32)
	case "tty":
		o.tty, err = strconv.ParseBool(value)
	case "pipe":
		o.pipe, err = strconv.ParseBool(value)
	case "core":
		o.core, err = strconv.ParseBool(value)
	case "score":
		o.score, err = strconv.ParseBool(value)
	default:
		err = errors.New("unknown")
	}
	return err
}

func ports(list string) ([]int, error) {
	if list == "" {
		return nil, nil
	}
	var all []int
	for _, word := range strings.Split(list, ",") {
		port, err := strconv.ParseUint(word, 10, 16)
		if err != nil {
			return nil, err
		}
		all = append(all, int(port))
	}
	return all, nil
}

// timerSlack is the kernel's own, in nanoseconds: the worker's is two hundred
// times that, and what it starts would have it too.
const timerSlack = 50_000

// limit is the last thing before the engine: bounds that need no cgroup, and
// nothing inherited but stdio and a browser's debugging pipe.
func (o *orders) limit() error {
	for _, l := range []struct {
		what  int
		value uint64
		keep  bool // 0 keeps the caller's
	}{
		{unix.RLIMIT_CORE, 0, o.core},
		{unix.RLIMIT_NOFILE, o.nofile, true},
		// Set here, inside the box's user namespace, the kernel counts this
		// box's processes only; set outside, all boxes of the user share it.
		{unix.RLIMIT_NPROC, o.nproc, true},
		{unix.RLIMIT_FSIZE, o.fsize << 20, true},
	} {
		if l.keep && l.value == 0 {
			continue
		}
		if err := lower(l.what, l.value); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0); err != nil {
		return errors.New("cannot set the timer slack: " + err.Error())
	}
	first := uint(3)
	if o.pipe {
		first = 5 // a browser is driven over 3 and 4
	}
	if err := unix.CloseRange(first, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return errors.New("cannot close inherited files: " + err.Error())
	}
	return nil
}

// lower sets a limit, which may not be above the caller's own hard limit.
func lower(what int, value uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(what, &now); err != nil {
		return errors.New("cannot read a limit: " + err.Error())
	}
	value = min(value, now.Max)
	if err := syscall.Setrlimit(what, &syscall.Rlimit{Cur: value, Max: value}); err != nil {
		return errors.New("cannot set a limit: " + err.Error())
	}
	return nil
}

// oomScore makes a box die before the worker and the machine's own programs
// when memory is short.
const oomScore = 500

// raiseOOMScore raises the score and never lowers it. It is a preference, no
// wall: where /proc refuses, the box is as likely to die as its caller. Plain
// system calls, for package os would start Go's poller for one file.
func raiseOOMScore() {
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	text := make([]byte, 16)
	n, err := unix.Read(fd, text)
	if err != nil {
		return
	}
	now, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err == nil && now < oomScore {
		unix.Pwrite(fd, []byte(strconv.Itoa(oomScore)), 0)
	}
}
