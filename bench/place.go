package main

import (
	"bufio"
	"bytes"
	"fmt"
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

// place is where the boxes of the benchmark live.
type place struct {
	bin, top, work string
	cred           *syscall.Credential
	env            []string
	worker         *exec.Cmd
}

// newPlace starts a worker of the programs in folder.
func newPlace(folder string) (*place, error) {
	bin, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	top, err := os.MkdirTemp("/tmp", "bench")
	if err != nil {
		return nil, err
	}
	p := &place{bin: bin, top: top, work: filepath.Join(top, "work")}
	if err := p.chooseUser(); err != nil {
		return p, err
	}
	for _, name := range []string{"work", "run", "state", "home"} {
		if err := p.mkdir(filepath.Join(top, name)); err != nil {
			return p, err
		}
	}
	p.env = []string{"PATH=/usr/bin:/bin", "HOME=" + top + "/home", "OMB_RUN_DIR=" + top + "/run", "OMB_STATE_DIR=" + top + "/state"}
	p.worker = p.command(filepath.Join(bin, "botbox"), "serve")
	if err := started.AsWorker(p.worker); err != nil {
		return p, err
	}
	for range 1000 {
		if _, err := os.Stat(top + "/run/api.sock"); err == nil {
			time.Sleep(8 * time.Second) // the self-check at boot is not part of a start
			return p, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return p, fmt.Errorf("the worker did not come up")
}

func (p *place) chooseUser() error {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("maus")
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	p.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chmod(p.top, 0o755)
}

func (p *place) mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil || p.cred == nil {
		return err
	}
	return os.Chown(path, int(p.cred.Uid), int(p.cred.Gid))
}

func (p *place) close() {
	if p.worker != nil && p.worker.Process != nil {
		p.worker.Process.Signal(syscall.SIGTERM)
		p.worker.Wait()
	}
	os.RemoveAll(p.top)
}

func (p *place) command(argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = p.work, p.env
	// A session of its own, as a box's engine has: the kernel may schedule by
	// sessions (autogroup), and to wake a process of another one costs more.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.cred, Pdeathsig: syscall.SIGKILL, Setsid: true}
	return cmd
}

func (p *place) contenders() ([]*contender, error) {
	botbox := filepath.Join(p.bin, "botbox")
	options, err := p.sameMounts(botbox)
	if err != nil {
		return nil, err
	}
	bare := append(append([]string{"/usr/bin/bwrap"}, options...), "--", "/bin/true")
	// The usual bridges, and a wait until they listen: 0A is a listening
	// socket. Without the wait most first connects are refused.
	const socat = `for port in 3128 18080 8799; do socat TCP-LISTEN:$port,bind=127.0.0.1,fork UNIX-CONNECT:/nonexistent & done
		until [ "$(grep -c ' 0A ' /proc/net/tcp)" = 3 ]; do :; done; exec /bin/true`
	bridged := append(append([]string{"/usr/bin/bwrap"}, options...), "--", "/bin/sh", "-c", socat)
	start := func(argv ...string) func() error { return func() error { return p.command(argv...).Run() } }
	return []*contender{
		{name: "bwrap, the same mounts", start: start(bare...)},
		{name: "botbox run, through a worker", start: start(botbox, "run", "--", "/bin/true")},
		{name: "botbox run --standalone", start: start(botbox, "run", "--standalone", "--", "/bin/true")},
		{name: "bwrap with three socat bridges", start: start(bridged...)},
	}, nil
}

// sameMounts turns what --dry-run prints into options of a bare bubblewrap:
// the same namespaces and mounts, without the filter and without our program.
func (p *place) sameMounts(botbox string) ([]string, error) {
	out, err := p.command(botbox, "run", "--dry-run", "--", "/bin/true").Output()
	if err != nil {
		return nil, fmt.Errorf("dry run: %w", err)
	}
	var options, perms []string // those of what comes next
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		w := strings.Fields(lines.Text())
		if len(w) == 0 || !strings.HasPrefix(w[0], "--") {
			continue
		}
		if w[0] == "--perms" {
			perms = w
			continue
		}
		before := perms
		perms = nil
		switch w[0] {
		case "--":
			return options, nil
		case "--bind-fd", "--ro-bind-fd":
			kind := strings.TrimSuffix(w[0], "-fd")
			if strings.HasSuffix(w[2], "/boxentry") {
				continue
			}
			options = append(options, kind, w[2], w[2])
		case "--setenv", "--seccomp", "--json-status-fd", "--file":
		default:
			options = append(append(options, before...), w...)
		}
	}
	return nil, fmt.Errorf("the dry run shows no command")
}
