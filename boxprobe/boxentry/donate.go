package main

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

// backlog is how many of the box's connections may wait to be accepted.
const backlog = 512

// donate binds the ports on the box's own loopback, hands the listeners to the
// worker and waits for its word. No byte of the engine has run before it.
func donate(socket int, ports []int) error {
	unix.CloseOnExec(socket)
	listeners := make([]int, len(ports))
	for i, port := range ports {
		fd, err := listen(port)
		if err != nil {
			return errors.New("port " + strconv.Itoa(port) + " in the box: " + err.Error())
		}
		listeners[i] = fd
	}
	packet := wire.Donation{Build: wire.Build, Listeners: len(listeners)}.String()
	var rights []byte
	if len(listeners) > 0 {
		rights = unix.UnixRights(listeners...)
	}
	if err := unix.Sendmsg(socket, []byte(packet), rights, nil, 0); err != nil {
		return errors.New("the worker cannot be reached: " + err.Error())
	}
	answer := make([]byte, 64)
	n, err := unix.Read(socket, answer)
	for err == unix.EINTR {
		n, err = unix.Read(socket, answer)
	}
	if err != nil || string(answer[:n]) != wire.Go {
		return errors.New("the worker did not say go")
	}
	// Nothing of these may be left open in the engine, and the worker alone
	// holds the ports from here on: a box cannot bind them again.
	for _, fd := range append(listeners, socket) {
		unix.Close(fd)
	}
	return nil
}

func listen(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return -1, err
	}
	return fd, unix.Listen(fd, backlog)
}
