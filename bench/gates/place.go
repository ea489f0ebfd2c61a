package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/openmausbot/botbox/bench/started"
)

const (
	near, far = "8.8.4.1", "8.8.4.4" // public by every policy; neither leaves the namespaces
	origin    = far + ":8443"
)

// prepare puts the programs where an ordinary user can read them.
func prepare() (top string, err error) {
	out, err := exec.Command("sh", "bench/gates/peers.sh").Output()
	if err != nil {
		return "", fmt.Errorf("bench/gates/peers.sh: %w", err)
	}
	top, err = os.MkdirTemp("/tmp", "bench")
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return top, err
	}
	for _, argv := range [][]string{
		{"go", "build", "-trimpath", "-ldflags", "-s -w", "-o", top + "/alone", "./worker/internal/gate/gatetest/alone"},
		{"cp", self, top + "/bench"},
		{"cp", "-r", strings.TrimSpace(string(out)), top + "/peers"},
		{"chmod", "-R", "a+rX", top},
	} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return top, fmt.Errorf("%v: %w\n%s", argv, err, out)
		}
	}
	return top, nil
}

// enter runs the rest in a network namespace of its own.
func enter(top string) error {
	outer, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	cmd := exec.Command(top+"/bench", "inside", top, outer)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return cmd.Run()
}

// place is where the work happens.
type place struct {
	top    string
	cred   *syscall.Credential
	origin *exec.Cmd
}

func newPlace(top, outer string) (*place, error) {
	if here, err := os.Readlink("/proc/self/ns/net"); err != nil || here == outer {
		return nil, errors.New("still in the outer network namespace")
	}
	// A quiet machine makes more connections in a minute than there are ports,
	// and each that has ended keeps its port for that long. This is the
	// namespace's own setting.
	if err := os.WriteFile("/proc/sys/net/ipv4/tcp_max_tw_buckets", []byte("4096"), 0); err != nil {
		return nil, err
	}
	p := &place{top: top}
	// In a user namespace of ours uid 0 is the ordinary user already.
	if b, err := os.ReadFile("/proc/self/uid_map"); err == nil && strings.Fields(string(b))[1] == "0" {
		u, err := user.Lookup("maus")
		if err != nil {
			return nil, err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		p.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	p.origin = exec.Command(top+"/bench", "origin", ":8443")
	p.origin.Stderr = os.Stderr
	p.origin.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := p.origin.Start(); err != nil {
		return nil, err
	}
	pid := strconv.Itoa(p.origin.Process.Pid)
	for _, line := range []string{
		"ip link set lo up", "ip link add near type veth peer name far netns " + pid,
		"ip addr add " + near + "/24 dev near", "ip link set near up",
		"nsenter -n -t " + pid + " ip addr add " + far + "/24 dev far", "nsenter -n -t " + pid + " ip link set far up",
	} {
		argv := strings.Fields(line)
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return p, fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return p, answers(origin)
}

func (p *place) close() {
	p.origin.Process.Kill()
	p.origin.Wait()
}

// answers waits until somebody accepts.
func answers(address string) (err error) {
	for range 1000 {
		var c net.Conn
		if c, err = net.Dial("tcp", address); err == nil {
			return c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// start runs a contender as the ordinary user.
func (p *place) start(c *contender) error {
	config := filepath.Join(p.top, strings.ReplaceAll(c.name, "/", "-"))
	if err := os.WriteFile(config, []byte(c.config), 0o644); err != nil {
		return err
	}
	argv := []string{"-c", `ulimit -n 8192; exec "$@" >/dev/null 2>&1`, "sh"}
	for _, arg := range c.argv {
		argv = append(argv, strings.ReplaceAll(arg, "CONFIG", config))
	}
	c.process = exec.Command("sh", argv...)
	c.process.Dir = "/"
	c.process.Env = append([]string{"PATH=/usr/bin:/bin"}, c.env...)
	c.process.SysProcAttr = &syscall.SysProcAttr{Credential: p.cred, Pdeathsig: syscall.SIGKILL}
	start := (*exec.Cmd).Start
	if c.ours {
		start = started.AsWorker
	}
	if err := start(c.process); err != nil {
		return err
	}
	return answers(c.address)
}

func (p *place) stop(all []*contender) {
	for _, c := range all {
		if c.process != nil && c.process.Process != nil {
			c.process.Process.Kill()
			c.process.Wait()
		}
	}
}
