// Command mapper stands in for the worker in tests of the service that writes
// maps. OMB_BOX_FAKE chooses what it asks for; it tells of it on stderr.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

var (
	in    *bufio.Reader
	order wire.Order
)

func main() {
	unix.SetNonblock(3, false)
	unix.SetNonblock(4, false)
	in = wire.NewReader(os.NewFile(3, "in"))
	f, err := wire.Read(in, wire.ToWorker)
	if err != nil {
		os.Exit(3)
	}
	order.Epoch = f.Epoch
	say(wire.HelloAck, "ver", wire.Version, "build", wire.Build)
	say(wire.Ready)
	mode := os.Getenv("OMB_BOX_FAKE")
	if mode == "former" && f.Epoch < 3 {
		if f.Epoch == 1 {
			lease("a") // which is u1
			os.Exit(9)
		}
		uidMap("u1", sleeper(true))
		hear()
	}
	if f.Epoch > 1 { // one lie is enough
		fmt.Fprintln(os.Stderr, "mapper: replaced")
		time.Sleep(time.Hour)
	}
	ask(mode)
	for { // pings
		if f := hear(); f.Verb == wire.Ping {
			say(wire.Pong)
		} else {
			fmt.Fprintln(os.Stderr, "mapper:", f.Verb, f.Args)
		}
	}
}

func say(verb wire.Verb, kv ...string) {
	b, err := order.Frame(wire.ToSupervisor, verb, kv...)
	if err != nil {
		panic(err)
	}
	unix.Write(4, b)
}

func hear() wire.Frame {
	f, err := wire.Read(in, wire.ToWorker)
	if err != nil {
		os.Exit(4)
	}
	return f
}

func lease(bot string) string {
	say(wire.UIDLease, "bot", bot)
	return hear().Args["lease"]
}

// child starts a program that stays; fresh: in a user namespace of its own.
func child(fresh bool, words ...string) int {
	cmd := exec.Command(words[0], words[1:]...)
	if fresh {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd.Process.Pid
}

func sleeper(fresh bool) int { return child(fresh, "sleep", "4711") }

// becomes waits until a child has become the sleep.
func becomes(pid int) int {
	for {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.HasPrefix(string(b), "sleep\x00") {
			return pid
		}
		time.Sleep(time.Millisecond)
	}
}

func uidMap(lease string, pid int) { say(wire.UIDMap, "lease", lease, "pid", strconv.Itoa(pid)) }

func ask(mode string) {
	switch mode {
	case "good":
		uidMap(lease("a"), sleeper(true))
	case "unknown":
		sleeper(true)
		uidMap("u999", sleeper(true))
	case "replay":
		l := lease("a")
		uidMap(l, sleeper(true))
		hear()
		uidMap(l, sleeper(true))
	case "released":
		l := lease("a")
		say(wire.UIDRelease, "lease", l)
		uidMap(l, sleeper(true))
	case "other-bots":
		pid := sleeper(true)
		uidMap(lease("a"), pid)
		hear()
		uidMap(lease("b"), pid)
	case "initial":
		uidMap(lease("a"), sleeper(false))
	case "self-mapped":
		uidMap(lease("a"), becomes(child(false, "unshare", "-Ur", "sleep", "4711")))
	case "nested":
		uidMap(lease("a"), becomes(child(false, "unshare", "-Ur", "unshare", "-U", "sleep", "4711")))
	case "grandchild":
		out, _ := exec.Command("sh", "-c", "unshare -U sleep 4711 >/dev/null 2>&1 & echo $!").Output()
		pid, _ := strconv.Atoi(strings.TrimSpace(string(out)))
		uidMap(lease("a"), becomes(pid))
	case "supervisor":
		uidMap(lease("a"), max(2, os.Getppid()))
	case "dead":
		cmd := exec.Command("true")
		cmd.Run()
		uidMap(lease("a"), cmd.ProcessState.Pid())
	case "flood":
		for {
			say(wire.UIDLease, "bot", "a")
		}
	case "bots":
		for i := range 100000 {
			l := lease(fmt.Sprintf("bot-%d", i))
			if l == "" {
				fmt.Fprintf(os.Stderr, "mapper: refused after %d bots\n", i)
				return
			}
			say(wire.UIDRelease, "lease", l)
		}
	case "kill":
		pid, me := sleeper(true), strconv.Itoa(os.Geteuid())
		uidMap(lease("a"), pid)
		hear()
		bots := child(false, "nsenter", fmt.Sprintf("--user=/proc/%d/ns/user", pid), "--setuid="+me, "--setgid="+strconv.Itoa(os.Getegid()), "--", "sleep", "4711")
		becomes(bots)
		l := lease("a")
		say(wire.BoxKill, "lease", l)
		say(wire.UIDRelease, "lease", l)
		lease("a")
		var ws syscall.WaitStatus
		syscall.Wait4(bots, &ws, 0, nil)
		fmt.Fprintln(os.Stderr, "mapper: the bot's process ended by signal", int(ws.Signal()))
	case "bench":
		bench()
	}
}

// bench asks for maps as a worker does, and tells how long one took: from the
// lease to the answer about its map, and the map alone.
func bench() {
	var whole, maps []time.Duration
	for range 500 {
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
		begin := time.Now()
		l := lease("a")
		asked := time.Since(begin)
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		begin = time.Now()
		uidMap(l, cmd.Process.Pid)
		if f := hear(); f.Verb != wire.UIDMapped {
			panic(f.Verb)
		}
		took := time.Since(begin)
		maps, whole = append(maps, took), append(whole, took+asked)
		cmd.Process.Kill()
		cmd.Wait()
	}
	for name, all := range map[string][]time.Duration{"map": maps, "lease and map": whole} {
		slices.Sort(all)
		fmt.Fprintf(os.Stderr, "mapper: %s p50 %v p99 %v max %v\n", name, all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
	}
	fmt.Fprintln(os.Stderr, "mapper: done")
}
