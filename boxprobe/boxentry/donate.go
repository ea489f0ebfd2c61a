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
// worker and waits for its word: the folders that may be written. No byte of
// the engine has run before it.
func donate(socket int, ports []int, landlock int) ([]string, error) {
	unix.CloseOnExec(socket)
	listeners := make([]int, len(ports))
	for i, port := range ports {
		fd, err := listen(port)
		if err != nil {
			return nil, errors.New("port " + strconv.Itoa(port) + " in the box: " + err.Error())
		}
		listeners[i] = fd
	}
	packet := wire.Donation{Build: wire.Build, Listeners: len(listeners), Landlock: landlock}.String()
	var rights []byte
	if len(listeners) > 0 {
		rights = unix.UnixRights(listeners...)
	}
	if err := unix.Sendmsg(socket, []byte(packet), rights, nil, 0); err != nil {
		return nil, errors.New("the worker cannot be reached: " + err.Error())
	}
	answer, err := receive(socket)
	if err != nil {
		return nil, errors.New("the worker did not answer: " + err.Error())
	}
	writable, err := wire.ParseAnswer(answer)
	if err != nil {
		return nil, err
	}
	// Nothing of these may be left open in the engine, and the worker alone
	// holds the ports from here on: a box cannot bind them again.
	for _, fd := range append(listeners, socket) {
		unix.Close(fd)
	}
	return writable, nil
}

// receive reads one packet, however long it is.
func receive(socket int) (string, error) {
	for {
		n, _, err := unix.Recvfrom(socket, nil, unix.MSG_PEEK|unix.MSG_TRUNC)
		if err == unix.EINTR {
			continue
		}
		packet := make([]byte, max(n, 0))
		if err == nil && n > 0 {
			_, err = unix.Read(socket, packet)
		}
		return string(packet), err
	}
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
