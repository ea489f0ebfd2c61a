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
	tty     bool
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
	case "tty":
		o.tty, err = strconv.ParseBool(value)
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

// limit is the last thing before the engine: bounds that need no cgroup, and
// nothing inherited but stdio.
func (o *orders) limit() error {
	for _, l := range []struct {
		what  int
		value uint64
		keep  bool // 0 keeps the caller's
	}{
		{unix.RLIMIT_CORE, 0, false},
		{unix.RLIMIT_NOFILE, o.nofile, true},
		// Set here, inside the box's user namespace, the kernel counts this
		// box's processes only; set outside, all boxes of the user share it.
		{unix.RLIMIT_NPROC, o.nproc, true},
	} {
		if l.keep && l.value == 0 {
			continue
		}
		if err := lower(l.what, l.value); err != nil {
			return err
		}
	}
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
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
