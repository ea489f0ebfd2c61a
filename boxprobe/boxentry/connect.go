package main

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// gatePort is where the egress gate listens on the box's loopback.
const gatePort = 3128

// answerTime is longer than the gate takes for its worst case, a name server
// and a host that are both silent. Behind a worker that is being replaced the
// port accepts and nobody answers.
var answerTime = 60 * time.Second

const connectUsage = "connect HOST PORT: "

// connect is boxentry's other use, by programs in the box: ssh's ProxyCommand.
// It asks the egress gate for a tunnel and carries stdin and stdout through
// it. OpenSSH itself speaks to no proxy, and Debian's nc may be any of three.
func connect(args []string, port int, in, out *os.File) int {
	target, err := connectTarget(args)
	if err != nil {
		return fail(reason.ExitUsage, connectUsage+err.Error(), "as ssh's ProxyCommand: boxentry connect %h %p", string(reason.Usage))
	}
	gate, early, err := tunnel(target, port)
	if no := (refusal{}); errors.As(err, &no) {
		return no.say(target)
	}
	if err != nil {
		return fail(reason.ExitSystem, "connect "+target+": "+err.Error(), "a box with --net none or shared has no egress gate", string(reason.System))
	}
	if err := carry(gate, early, in, out); err != nil {
		return fail(reason.ExitSystem, "connect "+target+": "+err.Error(), "", string(reason.System))
	}
	return 0
}

// connectTarget writes the authority of the request. The gate judges it; here
// it is only held to bytes that cannot end the request's line.
func connectTarget(args []string) (string, error) {
	if len(args) != 2 {
		return "", errors.New("it takes two words")
	}
	host := args[0]
	if port, err := strconv.ParseUint(args[1], 10, 16); err != nil || port == 0 {
		return "", errors.New("the port is no number from 1 to 65535")
	}
	if host == "" || len(host) > 255 || strings.ContainsFunc(host, func(r rune) bool { return !hostByte(r) }) {
		return "", errors.New("the host is neither a name nor an address")
	}
	if strings.Contains(host, ":") { // ssh's %h has no brackets
		host = "[" + host + "]"
	}
	return host + ":" + args[1], nil
}

func hostByte(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(".-_:", r)
}

// tunnel asks the gate. early are bytes of the far side that came with the
// answer: an ssh server speaks first.
func tunnel(target string, port int) (gate *os.File, early []byte, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	gate = os.NewFile(uintptr(fd), "egress gate")
	patience(fd, answerTime)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		gate.Close()
		return nil, nil, errors.New("the egress gate cannot be reached: " + err.Error())
	}
	_, err = io.WriteString(gate, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
	if err == nil {
		early, err = readAnswer(gate)
	}
	if err != nil {
		gate.Close()
		if errors.Is(err, unix.EAGAIN) {
			err = errors.New("the egress gate did not answer in time")
		}
		return nil, nil, err
	}
	patience(fd, 0)
	return gate, early, nil
}

// patience bounds each read of a socket; 0 is for ever. It cannot fail on a
// socket of ours.
func patience(fd int, limit time.Duration) {
	bound := unix.NsecToTimeval(int64(limit))
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &bound)
}

// carry copies both ways. A direction that ends is half-closed and the other
// one goes on; after a fault nothing does.
func carry(gate *os.File, early []byte, in, out *os.File) error {
	up := make(chan error, 1)
	go func() {
		_, err := io.Copy(gate, in)
		if end := unix.Shutdown(int(gate.Fd()), unix.SHUT_WR); err == nil {
			err = end
		}
		up <- err
	}()
	_, err := out.Write(early)
	if err == nil {
		_, err = io.Copy(out, gate)
	}
	if err != nil {
		return err // the process ends, and the other direction with it
	}
	out.Close() // whoever reads it learns of the end while we still listen to it
	if err := <-up; err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ENOTCONN) {
		return err // a far side that has ended wholly takes no more, and need not
	}
	return nil
}
