package main

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

// backlog is how many of the box's connections may wait to be accepted.
const backlog = 512

// donate binds the ports on the box's own loopback, hands the listeners and the
// spares to the worker and waits for its word: the folders that may be written.
// No byte of the engine has run before it.
func (o *orders) donate(landlock int) ([]string, error) {
	unix.CloseOnExec(o.socket)
	listeners := make([]int, len(o.listen))
	for i, port := range o.listen {
		fd, err := listen(port)
		if err != nil {
			return nil, errors.New("port " + strconv.Itoa(port) + " in the box: " + err.Error())
		}
		listeners[i] = fd
	}
	spares, err := spares(o.socket)
	if err != nil {
		return nil, errors.New("a spare socket in the box: " + err.Error())
	}
	sockets := append(listeners, spares...)
	packet := wire.Donation{Build: wire.Build, Listeners: len(listeners), Spares: len(spares), Landlock: landlock}.String()
	var rights []byte
	if len(sockets) > 0 {
		rights = unix.UnixRights(sockets...)
	}
	if err := unix.Sendmsg(o.socket, []byte(packet), rights, nil, 0); err != nil {
		return nil, errors.New("the worker cannot be reached: " + err.Error())
	}
	answer, err := receive(o.socket)
	if err != nil {
		return nil, errors.New("the worker did not answer: " + err.Error())
	}
	writable, err := wire.ParseAnswer(answer)
	if err != nil {
		return nil, err
	}
	// Nothing of these may be left open in the engine, and the worker alone
	// holds the ports from here on: a box cannot bind them again.
	for _, fd := range append(sockets, o.socket) {
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

// spares makes the sockets with which the worker can connect into this box, as
// many as it ordered. A kernel without IPv6 has no ::1 to reach.
func spares(socket int) ([]int, error) {
	order := make([]byte, 64)
	n, _, err := unix.Recvfrom(socket, order, unix.MSG_DONTWAIT|unix.MSG_PEEK)
	if err != nil || !wire.IsSpareOrder(string(order[:n])) {
		return nil, nil // what else is there, or no longer there, is the answer's affair
	}
	unix.Read(socket, order)
	v4, v6, err := wire.ParseSpareOrder(string(order[:n]))
	if err != nil {
		return nil, err
	}
	var all []int
	for i := range v4 + v6 {
		family := unix.AF_INET
		if i >= v4 {
			family = unix.AF_INET6
		}
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		switch {
		case err == nil:
			all = append(all, fd)
		case err != unix.EAFNOSUPPORT || family != unix.AF_INET6:
			return nil, err
		}
	}
	return all, nil
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
