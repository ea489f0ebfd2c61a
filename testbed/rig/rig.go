// Package rig builds the programs for a test and runs them as an ordinary
// user.
//
// Zone: tests; linked into no program of ours.
//
// Given: the checkout that the tests run in.
//
// Authority: the test's own; as root it becomes the user maus for each box.
//
// Refuses: to skip under BOTBOX_MUST_RUN=1: what a test needs must be there.
package rig

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Build is the build name of the programs that Programs makes.
const Build = "rig"

// Root is the checkout's top folder.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

var (
	built struct {
		sync.Once
		dir string
		err error
	}
	targets = map[string]string{"botbox-supervisor": "./supervisor", "botbox": "./worker", "boxentry": "./boxprobe/boxentry", "boxprobe": "./boxprobe"}
)

// Programs builds the four programs once a test process, in a folder that
// every user can read, and gives the folder. Main must call Remove at the end.
func Programs(t testing.TB) string {
	t.Helper()
	built.Do(func() { built.dir, built.err = build() })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// Remove deletes what Programs built.
func Remove() {
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
}

func build() (string, error) {
	dir, err := os.MkdirTemp("", "rig")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	for name, pkg := range targets {
		if err := Compile(filepath.Join(dir, name), pkg, Build); err != nil {
			return dir, err
		}
	}
	return dir, nil
}

// Compile builds one program of the checkout as the Makefile does, with more
// flags of the compiler's.
func Compile(to, pkg, build string, flags ...string) error {
	if err := goBuild(append(flags, "-ldflags", link(build), "-o", to, pkg)...); err != nil {
		return err
	}
	return os.Chmod(to, 0o755)
}

// CompileOver builds the worker and the two programs of a box into dir, of the
// sources that an overlay makes of the checkout's.
func CompileOver(dir, overlay, build string) error {
	if err := goBuild("-overlay", overlay, "-ldflags", link(build), "-o", dir+"/", targets["botbox"], targets["boxentry"], targets["boxprobe"]); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, "worker"), filepath.Join(dir, "botbox"))
}

func link(build string) string {
	return "-s -w -X github.com/openmausbot/botbox/shared/wire.Build=" + build
}

func goBuild(words ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false"}, words...)...)
	cmd.Dir = Root()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.New("go build " + words[len(words)-1] + ": " + string(out))
	}
	return nil
}

// Missing ends a test that cannot run here: a skip on a developer's machine, a
// failure where everything must be there.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("BOTBOX_MUST_RUN") == "1" {
		t.Fatalf("this must run here: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Account is the ordinary user that boxes of a test run as.
func Account(t testing.TB) *user.User {
	t.Helper()
	if os.Geteuid() != 0 {
		u, err := user.Current()
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	u, err := user.Lookup("maus")
	if err != nil {
		Missing(t, "there is no user maus (testbed/setup.sh makes it)")
	}
	return u
}

// Dir makes a folder of the account's own, with a short path: a socket's may
// not be longer than 107 bytes.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	Give(t, dir)
	return dir
}

// Give makes a path the account's.
func Give(t testing.TB, path string) {
	t.Helper()
	u := Account(t)
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if os.Geteuid() == 0 {
		if err := os.Lchown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
}

// Write makes a file of the account's.
func Write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	Give(t, path)
}

// Env is the smallest environment of the account: what a login would set.
func Env(t testing.TB, home string, more ...string) []string {
	t.Helper()
	u := Account(t)
	return append([]string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + home, "USER=" + u.Username, "LANG=C.UTF-8",
	}, more...)
}

// Command prepares a program to run as the account, in dir.
func Command(t testing.TB, dir string, env []string, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.SysProcAttr = Ordinary(t)
	return cmd
}

// Ordinary makes a command of root's the account's, for a box is never root's.
// It sets no parent-death signal: that fires when the thread that forked ends,
// and tests that enter a namespace end threads.
func Ordinary(t testing.TB) *syscall.SysProcAttr {
	t.Helper()
	attr := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		u := Account(t)
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return attr
}

// CoreFiles lets this process's children have core files, without making any,
// and tells whether they may: sudo takes them from what it starts, and only
// CAP_SYS_RESOURCE gives them back.
func CoreFiles(t testing.TB) bool {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &was); err != nil {
		t.Fatal(err)
	}
	return was.Max != 0 || syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{Max: 1 << 20}) == nil
}

// Output is how a command ended.
type Output struct {
	Stdout, Stderr string
	Code           int // 128+n when signal n killed it
}

// Run runs a command to its end, at most a minute.
func Run(t testing.TB, cmd *exec.Cmd) Output {
	t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &errs
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer stop.Stop()
	err := cmd.Wait()
	return Output{out.String(), errs.String(), Code(err)}
}

// Code gives the exit status behind an error of Wait.
func Code(err error) int {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		if err != nil {
			return -1
		}
		return 0
	}
	if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return exit.ExitCode()
}

// Eventually waits for something that another process does.
func Eventually(t testing.TB, within time.Duration, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if happened() {
			return
		}
	}
	t.Fatalf("not in %v: %s", within, what)
}
