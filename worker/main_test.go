package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

func TestMain(m *testing.M) {
	code := m.Run()
	rig.Remove()
	os.Exit(code)
}

// place is where boxes of a test live: a HOME, a work folder, and what a worker needs.
type place struct {
	t                      *testing.T
	bin, top               string
	home, work, run, state string
	env                    []string
	leased                 []int // files of the last lease
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, bin: rig.Programs(t), top: rig.Dir(t)}
	for name, to := range map[string]*string{"home": &p.home, "work": &p.work, "run": &p.run, "state": &p.state} {
		*to = filepath.Join(p.top, name)
		if err := os.Mkdir(*to, 0o700); err != nil {
			t.Fatal(err)
		}
		rig.Give(t, *to)
	}
	p.env = rig.Env(t, p.home, "OMB_RUN_DIR="+p.run, "OMB_STATE_DIR="+p.state)
	return p
}

// botbox prepares a command line, with more variables for it.
func (p *place) botbox(env []string, args ...string) *exec.Cmd {
	p.t.Helper()
	return rig.Command(p.t, p.work, append(append([]string{}, p.env...), env...), append([]string{filepath.Join(p.bin, "botbox")}, args...)...)
}

// serve starts a worker and waits until it takes specs.
func (p *place) serve(env ...string) *exec.Cmd {
	p.t.Helper()
	log := &bytes.Buffer{}
	p.t.Cleanup(func() { // after the one that stops it
		if p.t.Failed() {
			p.t.Logf("the worker said:\n%s", log)
		}
	})
	return p.serveTo(log, env...)
}

// serveTo is serve with a log of the caller's own.
func (p *place) serveTo(log io.Writer, env ...string) *exec.Cmd {
	p.t.Helper()
	cmd := p.botbox(env, "serve")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // it may be in the middle of its self-check
		late := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		late.Stop()
	})
	rig.Eventually(p.t, 10*time.Second, "the worker listens", p.listens)
	return cmd
}

// listens tells whether the worker's API can be asked: its socket's file is
// there a moment earlier.
func (p *place) listens() bool {
	c, err := net.Dial("unix", filepath.Join(p.run, "api.sock"))
	if err == nil {
		c.Close()
	}
	return err == nil
}

// ways runs a test through a worker and without one: it is the same code, and
// must look the same from outside.
func ways(t *testing.T, do func(t *testing.T, p *place, run []string)) {
	t.Run("standalone", func(t *testing.T) { do(t, newPlace(t), []string{"run", "--standalone"}) })
	t.Run("leased", func(t *testing.T) {
		p := newPlace(t)
		p.serve()
		do(t, p, []string{"run"})
	})
}

func with(run []string, more ...string) []string { return append(append([]string{}, run...), more...) }

func TestExitStatusIsTheCommands(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		for _, c := range []struct {
			command string
			code    int
		}{
			{"exit 0", 0}, {"exit 7", 7}, {"exit 125", 125}, {"kill -TERM $$", 143}, {"kill -KILL $$", 137}, {"exec /etc/passwd", 126},
		} {
			out := rig.Run(t, p.botbox(nil, with(run, "--", "sh", "-c", c.command)...))
			if out.Code != c.code {
				t.Errorf("%s: %d, want %d; stderr: %s", c.command, out.Code, c.code, out.Stderr)
			}
		}
		for name, code := range map[string]int{"no-such-command": 127, "/etc/passwd": 126, "/usr": 126} {
			out := rig.Run(t, p.botbox(nil, with(run, "--", name)...))
			if out.Code != code || !strings.HasPrefix(out.Stderr, "botbox: "+name) || out.Stdout != "" {
				t.Errorf("%s: %+v, want %d", name, out, code)
			}
		}
	})
}

// The words of the command are its own, whatever they look like.
func TestNothingAfterTheDashesIsParsed(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		out := rig.Run(t, p.botbox(nil, with(run, "--", "printf", "%s|", "--net", "none", "", "a b", "--", "$HOME")...))
		if out.Code != 0 || out.Stdout != "--net|none||a b|--|$HOME|" {
			t.Errorf("%+v", out)
		}
	})
}

func TestStdioIsByteTransparent(t *testing.T) {
	const size = 100 << 20
	ways(t, func(t *testing.T, p *place, run []string) {
		cmd := p.botbox(nil, with(run, "--", "cat")...)
		in, want := io.Pipe()
		cmd.Stdin = in
		out, got := io.Pipe()
		cmd.Stdout = got
		go func() {
			w := &pattern{left: size}
			io.Copy(want, w)
			want.Close()
		}()
		same := make(chan error, 1)
		go func() { same <- identical(out, &pattern{left: size}) }()
		result := rig.Run(t, cmd)
		got.Close()
		if err := <-same; err != nil || result.Code != 0 {
			t.Errorf("%v; %+v", err, result)
		}
	})
}

// pattern is a stream that does not repeat within a buffer.
type pattern struct {
	left int
	x    uint64
}

func (p *pattern) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), p.left)
	for i := range b[:n] {
		p.x = p.x*6364136223846793005 + 1442695040888963407
		b[i] = byte(p.x >> 56)
	}
	p.left -= n
	return n, nil
}

func identical(a, b io.Reader) error {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for offset := 0; ; {
		n, errA := io.ReadFull(a, x)
		m, _ := io.ReadFull(b, y)
		if n != m || !bytes.Equal(x[:n], y[:m]) {
			return io.ErrUnexpectedEOF
		}
		offset += n
		if errA != nil {
			return nil
		}
	}
}

// A line of ours on stdout would break an MCP server that speaks over it.
func TestOurWordsGoToStderrOnly(t *testing.T) {
	p := newPlace(t)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no command":      {[]string{"run"}, 100, "reason: usage"},
		"nothing":         {nil, 100, "reason: usage"},
		"unknown flag":    {[]string{"run", "--no-such-flag", "--", "true"}, 100, "reason: usage"},
		"unknown verb":    {[]string{"boxify"}, 100, "reason: usage"},
		"--tty":           {[]string{"run", "--tty", "maybe", "--", "true"}, 100, "reason: usage"},
		"--home":          {[]string{"run", "--home", "none", "--", "true"}, 100, "reason: bad_spec"},
		"--net":           {[]string{"run", "--net", "host", "--", "true"}, 100, "reason: bad_spec"},
		"--memory":        {[]string{"run", "--memory", "lots", "--", "true"}, 100, "reason: usage"},
		"--cpu":           {[]string{"run", "--cpu", "-1", "--", "true"}, 100, "reason: bad_spec"},
		"--tmp-size":      {[]string{"run", "--tmp-size", "lots", "--", "true"}, 100, "reason: usage"},
		"--allow-host":    {[]string{"run", "--allow-host", "*", "--", "true"}, 100, "reason: bad_spec"},
		"--cwd":           {[]string{"run", "--cwd", "/no/such/folder", "--", "true"}, 100, "reason: work-folder"},
		"unwritable work": {[]string{"run", "--cwd", "/usr", "--", "true"}, 100, "reason: work-folder"},
		"--ro":            {[]string{"run", "--ro", "/run/docker.sock", "--", "true"}, 100, "reason: path_refused"},
		"absent --rw":     {[]string{"run", "--rw", "/srv/no-such-folder", "--", "true"}, 100, "reason: path_refused"},
		"two commands":    {[]string{"run", "--spec", "x", "--", "true"}, 100, "reason: usage"},
		"no spec file":    {[]string{"run", "--spec", "/no/such/file"}, 100, "reason: bad_spec"},
		"logs, no worker": {[]string{"logs"}, 100, "reason: no-worker"},
		"--learn alone":   {[]string{"run", "--learn", "--net", "none", "--", "true"}, 100, "reason: bad_spec"},
		"ps, no worker":   {[]string{"ps"}, 100, "reason: no-worker"},
	} {
		out := rig.Run(t, p.botbox(nil, c.args...))
		if out.Code != c.code || !strings.Contains(out.Stderr, c.says) || !strings.Contains(out.Stderr, "hint: ") || out.Stdout != "" {
			t.Errorf("%s: %+v, want %d and %q", name, out, c.code, c.says)
		}
	}
	if out := rig.Run(t, p.botbox(nil, "run")); !strings.Contains(out.Stderr, "usage:") {
		t.Errorf("run without a command shows no usage: %s", out.Stderr)
	}
}
