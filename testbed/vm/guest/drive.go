package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// row is one check: it gives what it saw, or why that is wrong.
type row struct {
	name string
	do   func(*bed) (string, error)
}

// bed is one running supervisor as the checks see it.
type bed struct {
	run   string // its OMB_RUN_DIR
	group string // the cgroup that it was started in
	made  int    // lines printed

	answered time.Duration // when the worker was first seen to answer, by uptime
	full     checked       // the run of fullSelfCheck
}

// part is the cgroup that the worker rules.
func (b *bed) part(name ...string) string {
	return filepath.Join(append([]string{b.group, "botbox"}, name...)...)
}

func (b *bed) all(checks []row) {
	for _, c := range checks {
		begin := time.Now()
		seen, err := c.do(b)
		b.made++
		word := "ok"
		if err != nil {
			word, seen = "FAIL", err.Error()+" "+seen
		}
		fmt.Printf("CHK %s %s [%d ms] %s\n", c.name, word, time.Since(begin).Milliseconds(), strings.Join(strings.Fields(seen), " "))
	}
}

// output is how a command ended.
type output struct {
	stdout, stderr string
	code           int
}

func (o output) String() string { return fmt.Sprintf("code %d %q %q", o.code, o.stdout, o.stderr) }

// running is a command of maus's that goes on.
type running struct {
	*exec.Cmd
	out, err sink
}

// sink can be read while it is written.
type sink struct {
	ch chan struct{}
	b  bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.ch <- struct{}{}
	defer func() { <-s.ch }()
	return s.b.Write(p)
}

func (s *sink) String() string {
	s.ch <- struct{}{}
	defer func() { <-s.ch }()
	return s.b.String()
}

// command prepares a command of maus's.
func (b *bed) command(stdin string, argv ...string) *running {
	r := &running{Cmd: exec.Command(argv[0], argv[1:]...)}
	r.out.ch, r.err.ch = make(chan struct{}, 1), make(chan struct{}, 1)
	r.Env = append([]string{"HOME=/home/maus", "USER=maus", "OMB_RUN_DIR=" + b.run}, environ...)
	r.Dir, r.SysProcAttr = work, asMaus()
	r.Stdin, r.Stdout, r.Stderr = strings.NewReader(stdin), &r.out, &r.err
	r.WaitDelay = 2 * time.Second
	return r
}

// startIn starts it in a cgroup from its first moment on.
func (r *running) startIn(group string) error {
	fd, err := unix.Open(group, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the cgroup: %w", err)
	}
	defer unix.Close(fd)
	if r.SysProcAttr == nil {
		r.SysProcAttr = &syscall.SysProcAttr{}
	}
	r.SysProcAttr.UseCgroupFD, r.SysProcAttr.CgroupFD = true, fd
	return r.Start()
}

// in runs a command of maus's in a cgroup, to its end.
func (b *bed) in(group string, argv ...string) output {
	r := b.command("", argv...)
	if err := r.startIn(group); err != nil {
		return output{code: -1, stderr: err.Error()}
	}
	return r.end()
}

// end waits, a minute at most.
func (r *running) end() output {
	stop := time.AfterFunc(time.Minute, func() { r.Process.Kill() })
	defer stop.Stop()
	r.Wait()
	code := r.ProcessState.ExitCode()
	if ws := r.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	return output{r.out.String(), r.err.String(), code}
}

func (r *running) kill() {
	r.Process.Kill()
	r.Wait()
}

// maus runs a command beside the worker, where what the supervisor starts is.
func (b *bed) maus(argv ...string) output { return b.in(b.part("botbox-worker"), argv...) }

// botbox runs our command line there.
func (b *bed) botbox(args ...string) output {
	return b.maus(append([]string{programs + "/botbox"}, args...)...)
}

// boxed prepares a box of a name with limits, as JSON.
func (b *bed) boxed(id, limits, script string) *running {
	spec := fmt.Sprintf(`{"v":1,"id":%q,"cwd":%q,"argv":["perl","-e",%q],"limits":%s}`, id, work, script, limits)
	return b.command(spec, programs+"/botbox", "run", "--spec", "-")
}

// box starts one, and waits until its engine has said its first line.
func (b *bed) box(id, limits, script string) (*running, error) {
	r := b.boxed(id, limits, script)
	return r, b.await(r)
}

func (b *bed) await(r *running) error {
	if err := r.startIn(b.part("botbox-worker")); err != nil {
		return err
	}
	if err := eventually(20*time.Second, func() bool { return strings.Contains(r.out.String(), "\n") }); err != nil {
		r.kill()
		return fmt.Errorf("the box said %q %q: %w", r.out.String(), r.err.String(), err)
	}
	return nil
}

func eventually(within time.Duration, happened func() bool) error {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if happened() {
			return nil
		}
	}
	return fmt.Errorf("not in %v", within)
}

// get asks the worker's interface.
func (b *bed) get(path string) (string, error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", b.run+"/api.sock")
		},
	}}
	resp, err := client.Get("http://worker" + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// step is a boot step as the report has it.
type step struct{ Name, State, Evidence string }

// steps waits for the worker's report.
func (b *bed) steps() (map[string]step, error) {
	var report struct{ Steps []step }
	var text string
	if err := eventually(40*time.Second, func() bool {
		var err error
		text, err = b.get("/api/cloud/box")
		return err == nil
	}); err != nil {
		return nil, errors.New("the worker does not answer")
	}
	if b.answered == 0 {
		b.answered = uptime()
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		return nil, fmt.Errorf("%w in %q", err, text)
	}
	all := map[string]step{}
	for _, s := range report.Steps {
		all[s.Name] = s
	}
	return all, nil
}

func read(path ...string) string {
	b, _ := os.ReadFile(filepath.Join(path...))
	return strings.TrimSpace(string(b))
}

// value gives the number behind a name in a file of "name number" lines.
func value(text, name string) (n int) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			fmt.Sscan(f[1], &n)
		}
	}
	return n
}

// find gives the processes whose command line holds a text.
func find(text string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		var pid int
		fmt.Sscanf(path, "/proc/%d/", &pid)
		if strings.Contains(strings.ReplaceAll(read(path), "\x00", " "), text) && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}
