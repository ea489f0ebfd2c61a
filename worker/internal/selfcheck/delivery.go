package selfcheck

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate/signin"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// chooseRelayPort finds one that is free outside, so that it is also in a box
// that shares the network.
func (o *outside) chooseRelayPort() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	o.RelayPort = l.Addr().(*net.TCPAddr).Port
	return l.Close()
}

// deliver sends the redirect of a sign-in into the box until somebody is there
// for it. It tells, once the box has ended, what came back.
func (v *visit) deliver(t *turn.Turn) <-chan error {
	told := make(chan error, 1)
	callback, err := signin.New(v.RelayPort, "GET", "/callback?state="+v.Marker)
	if err != nil {
		told <- err
		return told
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-t.Ended(); cancel() }()
	go func() {
		for {
			answer, err := t.Deliver(ctx, callback)
			switch {
			case err == nil && answer.Status == 200 && strings.Contains(answer.Body, v.Marker):
				told <- nil
				return
			case err == nil:
				told <- errors.New("somebody else answered")
				return
			}
			select {
			case <-t.Ended():
				told <- err
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return told
}
