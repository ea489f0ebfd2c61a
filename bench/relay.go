package main

import (
	"fmt"
	"net"
	"os/exec"
	"time"

	"github.com/openmausbot/botbox/bench/hop"
)

// relayMode is the first argument of this program as the bare mechanism: one
// more hop, which passes bytes on and looks at none.
const relayMode = "relay"

func relay(address, upstream string) error {
	return hop.Accept(address, func(c *net.TCPConn) { hop.Dial(c, upstream, "") })
}

// startRelay starts one in a process of its own.
func (p *place) startRelay(self, upstream string) (url string, stop func(), err error) {
	addr, err := freeAddress()
	if err != nil {
		return "", nil, err
	}
	cmd := p.command(self, relayMode, addr, upstream)
	stop, err = comesUp(cmd, addr)
	return "http://" + addr + "/direct/v1/responses", stop, err
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// comesUp starts a server and waits until it listens.
func comesUp(cmd *exec.Cmd, addr string) (stop func(), err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() { cmd.Process.Kill(); cmd.Wait() }
	for range 500 {
		c, dialed := net.Dial("tcp", addr)
		if err = dialed; err == nil {
			c.Close()
			return stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	return nil, fmt.Errorf("%s did not come up: %w", cmd.Path, err)
}
