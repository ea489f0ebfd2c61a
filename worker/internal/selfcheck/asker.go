package selfcheck

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/report"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// askerKilled has a second box started by a process between, and kills that.
func (e *evidence) askerKilled() report.Result {
	s := spec.Spec{V: 1, Kind: "turn", Engine: "none", Bot: "own", Argv: []string{probePath, "canary", "asked"}, Cwd: e.WorkDir,
		Home: spec.Home{Mode: "private"}, Net: spec.Net{Mode: "none"}}
	t, _, err := e.runner.Prepare(s, turn.Way{First: box.ChildFD, Change: func(p *box.Plan) {
		insert(p, e.visit.probeMount())
		e.changeAsked(p)
	}})
	if err != nil {
		return unclear("prepare a second box: %v", err)
	}
	asker, err := e.startBehind(t)
	if err != nil {
		t.Abandon()
		return unclear("start a second box: %v", err)
	}
	ended := make(chan error, 1)
	go func() { _, err := t.Attend(); ended <- err }()
	select {
	case <-t.Ready():
	case err := <-ended:
		asker.Kill()
		asker.Wait()
		return unclear("a second box did not start: %v", err)
	}
	asker.Kill()
	asker.Wait()
	select {
	case <-ended:
		return passed("it was gone when it was looked for")
	case <-time.After(time.Second):
		t.Kill()
		<-ended
		return failed("it lived on")
	}
}

// startBehind gives the box's engine a stdin that stays open as long as it
// lives.
func (e *evidence) startBehind(t *turn.Turn) (*box.Child, error) {
	pipe, err := os.OpenFile(e.StayPipe, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open its stdin: %w", err)
	}
	defer pipe.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open its stdout: %w", err)
	}
	defer null.Close()
	return e.runner.Spawner.StartBehind(t.Kit, e.visit.probe.File, []string{"boxprobe", "asker"}, [3]*os.File{pipe, null, null})
}

// readable is asked of a process of this user by another: what it was started
// with, what it has mapped, what it has open.
const readable = `for name in environ maps; do cat "/proc/$1/$name" >/dev/null 2>&1 && exit 10; done; ls "/proc/$1/fd/" >/dev/null 2>&1 && exit 10; exit 11`

func (e *evidence) closedToItsUser() report.Result {
	whom := e.openPID
	if whom == 0 {
		whom = os.Getpid()
	}
	open, err := e.asStranger(e.CanaryPID)
	if err != nil || open != 10 {
		return unclear("not even the canary can be read: %d, %v", open, err)
	}
	switch code, err := e.asStranger(whom); {
	case code == 11:
		return passed("closed")
	case code == 10:
		return failed("another process of its user can read it")
	default:
		return unclear("ask for it: %d, %v", code, err)
	}
}

func (e *evidence) asStranger(pid int) (int, error) {
	return e.shell("-c", readable, "sh", strconv.Itoa(pid))
}
