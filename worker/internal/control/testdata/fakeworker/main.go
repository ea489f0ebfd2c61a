// Command fakeworker stands in for `botbox serve --control` in tests of the
// supervisor. OMB_BOX_FAKE chooses how it behaves; /out is where it reports.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/posture"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/worker/internal/control"
)

func main() {
	mode := os.Getenv("OMB_BOX_FAKE")
	switch os.Args[1] {
	case "run":
		becomeBox()
	case "plain":
		status, err := control.Plain()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(status)
	}
	os.WriteFile(fmt.Sprintf("/out/pid.%d", time.Now().UnixNano()), nil, 0o644)
	switch mode {
	case "exit7":
		os.Exit(7)
	case "exit100":
		os.Exit(100)
	case "late":
		time.Sleep(200 * time.Millisecond)
		good(mode)
	case "", "storm", "no-drain", "die-in-box":
		good(mode)
	default:
		hostile(mode)
	}
}

type actions struct{ mode string }

func good(mode string) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM)
	p, err := posture.Collect(os.Getpid())
	if err != nil {
		fmt.Println("collect:", err)
	}
	c, h, err := control.Open()
	if err != nil {
		reason.Print(os.Stderr, "fakeworker", err)
		os.Exit(reason.Exit(err))
	}
	_, seen := os.Stat("/proc/" + fmt.Sprint(os.Getppid()))
	report, _ := json.Marshal(map[string]any{
		"posture": p, "env": os.Environ(), "handover": h, "hidden": os.IsNotExist(seen), "args": os.Args,
	})
	os.WriteFile("/out/worker.tmp", report, 0o644)
	os.Rename("/out/worker.tmp", "/out/worker")
	if mode == "storm" {
		storm()
	}
	if mode == "die-in-box" {
		time.AfterFunc(time.Second, func() { os.Exit(9) }) // after it has been at work for a while
	}
	c.Ready()
	err = c.Run(context.Background(), &actions{mode})
	os.WriteFile("/out/end", []byte(fmt.Sprint(err)), 0o644)
	if err != nil && !errors.Is(err, control.ErrGone) {
		os.Exit(1)
	}
}

// storm leaves 2,000 orphans to whoever reaps here.
func storm() {
	for range 20 {
		exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 100 ]; do (sleep 0.0$((i % 10)) & ) ; i=$((i+1)); done").Run()
	}
}

// becomeBox is `botbox run --control`: it becomes the command, and no box.
func becomeBox() {
	s, err := control.ReadStart()
	if err = errors.Join(err, os.Chdir(s.Dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(reason.ExitUsage)
	}
	if s.Argv[0] == "refuse" {
		os.Exit(reason.ExitSystem)
	}
	report, _ := json.Marshal(map[string]any{"env": os.Environ(), "args": os.Args, "start": s})
	os.WriteFile("/out/box", report, 0o644)
	os.WriteFile("/out/box.pid", []byte(strconv.Itoa(os.Getpid())), 0o644)
	path, err := exec.LookPath(s.Argv[0])
	if err != nil {
		os.Exit(reason.ExitNotFound)
	}
	fmt.Fprintln(os.Stderr, syscall.Exec(path, s.Argv, s.Env))
	os.Exit(reason.ExitNotRunnable)
}

func (a *actions) BoxSignal(pid int, sig syscall.Signal) error { return syscall.Kill(pid, sig) }

func (a *actions) Drain(within time.Duration) {
	os.WriteFile("/out/drain", []byte(within.String()), 0o644)
	if a.mode == "no-drain" {
		time.Sleep(time.Hour)
	}
	if text, err := os.ReadFile("/out/box.pid"); err == nil {
		pid, _ := strconv.Atoi(string(text))
		syscall.Kill(pid, syscall.SIGTERM)
		time.Sleep(50 * time.Millisecond)
	}
}

// hostile speaks the wire by hand, right up to hello.ack and then wrong.
func hostile(mode string) {
	if mode == "silent" {
		time.Sleep(time.Hour)
	}
	in := wire.NewReader(os.NewFile(3, "in"))
	unix.SetNonblock(3, false)
	unix.SetNonblock(4, false)
	if f, err := wire.Read(in, wire.ToWorker); err != nil || f.Verb != wire.Hello {
		os.Exit(3)
	}
	order := wire.Order{Epoch: epoch()}
	say := func(verb wire.Verb, kv ...string) {
		b, _ := order.Frame(wire.ToSupervisor, verb, kv...)
		unix.Write(4, b)
	}
	raw := func(b []byte) { unix.Write(4, b) }
	if mode == "skew" {
		say(wire.HelloAck, "ver", wire.Version, "build", "another")
		time.Sleep(time.Hour)
	}
	say(wire.HelloAck, "ver", wire.Version, "build", wire.Build)
	say(wire.Ready)
	switch mode {
	case "long":
		raw(bytes.Repeat([]byte("x"), 9000))
	case "seq":
		raw([]byte(fmt.Sprintf("%d 9 pong\n", epoch())))
	case "epoch":
		raw([]byte("77 3 pong\n"))
	case "verb":
		raw([]byte(fmt.Sprintf("%d 3 box.spawn argv=sh\n", epoch())))
	case "unasked":
		say(wire.Pong)
	case "lease":
		say(wire.UIDLease, "bot", "b")
	case "twice":
		say(wire.Ready)
	case "flood":
		for {
			say(wire.Pong)
		}
	case "close":
		unix.Close(4)
	default:
		hostileFrames(mode, &order, raw)
		hostileVault(mode)
	}
	time.Sleep(time.Hour)
}

// hostileVault asks the vault for what it does not do.
func hostileVault(mode string) {
	order := wire.Order{Epoch: wire.VaultEpoch}
	us, _ := unix.PidfdOpen(os.Getpid(), 0)
	say := func(verb wire.Verb, files []int, kv ...string) {
		b, _ := order.Frame(wire.ToSupervisor, verb, kv...)
		unix.Sendmsg(5, b, unix.UnixRights(files...), nil, 0)
	}
	switch mode {
	case "vault-nonsense":
		unix.Sendmsg(5, []byte("nonsense"), unix.UnixRights(us, 3, 4), nil, 0)
	case "vault-lie":
		say(wire.VaultKeep, []int{us, 3}, "box", "b", "kinds", "pl")
	case "vault-many":
		unix.Sendmsg(5, []byte("1 1 vault.keep box=b kinds=p\n"), unix.UnixRights(make([]int, 250)...), nil, 0)
	case "vault-close":
		unix.Close(5)
	case "vault-unread": // full, and then asked again and again
		for i := 0; ; i++ {
			say(wire.VaultKeep, []int{us}, "box", fmt.Sprint("b", i), "kinds", "p")
		}
	case "vault-flood": // nothing of it is wrong
		for {
			say(wire.VaultKeep, []int{us}, "box", "b", "kinds", "p")
			say(wire.VaultDrop, nil, "box", "b")
		}
	}
}

// epoch is not told but in the frames; every start makes one file in /out.
func epoch() uint32 {
	entries, _ := os.ReadDir("/out")
	n := uint32(0)
	for _, e := range entries {
		if len(e.Name()) > 4 && e.Name()[:4] == "pid." {
			n++
		}
	}
	return n
}
