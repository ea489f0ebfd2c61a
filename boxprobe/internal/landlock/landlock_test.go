package landlock

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
)

// A confined thread stays confined, so each try is a process of its own: this
// test binary, which confines itself and becomes a shell.
const versionEnv, treesEnv = "LANDLOCK_TEST_VERSION", "LANDLOCK_TEST_TREES"

func TestMain(m *testing.M) {
	if os.Getenv(versionEnv) == "" {
		os.Exit(m.Run())
	}
	runtime.LockOSThread()
	version, err := strconv.Atoi(os.Getenv(versionEnv))
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if err == nil {
		err = Confine(version, strings.Split(os.Getenv(treesEnv), ":"))
	}
	if err == nil {
		err = unix.Exec("/bin/sh", append([]string{"sh", "-c"}, os.Args[1:]...), os.Environ())
	}
	os.Stderr.WriteString(err.Error())
	os.Exit(99)
}

// confined runs a script that may write in trees, with as much of Landlock as
// a kernel of this version has.
func confined(t *testing.T, version int, trees []string, script string) *exec.Cmd {
	t.Helper()
	if Version() < version {
		rig.Missing(t, "this kernel's Landlock is of version %d", Version())
	}
	cmd := exec.Command(os.Args[0], script)
	cmd.Env = append(os.Environ(), versionEnv+"="+strconv.Itoa(version), treesEnv+"="+strings.Join(trees, ":"))
	return cmd
}

func folders(t *testing.T) (in, out string) {
	t.Helper()
	dir := t.TempDir()
	in, out = filepath.Join(dir, "in"), filepath.Join(dir, "out")
	for _, d := range []string{in, out, in + "/sub"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{in + "/file", out + "/file"} {
		if err := os.WriteFile(f, []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return in, out
}

// Each line does something inside the tree, which must work, and the same
// outside of it, which must be refused and leave nothing.
var writes = []string{
	"echo x >$D/new", "echo x >>$D/file", "mkdir $D/dir", "rm $D/file", "ln -s a $D/link", "mkfifo $D/fifo",
	"mv $D/file $D/moved", "ln $D/file $D/hard", "chmod 700 $D/file; mkdir $D/other",
}

func TestWritesStayInTheTrees(t *testing.T) {
	for version := MinVersion; version <= max(Version(), MinVersion); version++ {
		for _, line := range writes {
			for _, c := range []struct {
				inside bool
				code   int
			}{{true, 0}, {false, 1}} {
				in, out := folders(t)
				d := out
				if c.inside {
					d = in
				}
				cmd := confined(t, version, []string{in}, "D="+d+"; "+line)
				text, err := cmd.CombinedOutput()
				if (err == nil) != c.inside || strings.Contains(string(text), "Landlock") {
					t.Errorf("version %d, %s in %s: %v, %s", version, line, d, err, text)
				}
				if entries, _ := os.ReadDir(out); len(entries) != 1 {
					t.Errorf("version %d, %s: left %v", version, line, entries)
				}
			}
		}
	}
}

func TestWhatStillWorks(t *testing.T) {
	for what, script := range map[string]string{
		"reading":            "cat $OUT/file && ls -l $OUT && test -x /bin/sh",
		"running":            "/bin/sh -c true",
		"renames":            "mv $IN/file $IN/sub/file && ln $IN/sub/file $IN/file",
		"/dev/null":          "echo x >/dev/null && cat </dev/zero | head -c 1 | wc -c",
		"/proc/self":         "echo name >/proc/self/comm && echo 600 >/proc/self/oom_score_adj",
		"stderr in a file":   "echo x >/dev/stderr",
		"stdout in a file":   "echo x >/dev/stdout",
		"stdio, by /proc":    "echo x >>/proc/self/fd/2",
		"a file of its own":  "echo x >$OUT/file",
		"a child's children": "sh -c 'sh -c \"echo x >$IN/deep\"'",
	} {
		in, out := folders(t)
		trees := []string{in}
		if what == "a file of its own" {
			trees = append(trees, out+"/file")
		}
		cmd := confined(t, max(Version(), MinVersion), trees, "IN="+in+"; OUT="+out+"; export IN OUT; "+script)
		log, err := os.OpenFile(filepath.Join(out, "log"), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Run(); err != nil {
			text, _ := os.ReadFile(log.Name())
			t.Errorf("%s: %v, %s", what, err, text)
		}
		log.Close()
	}
}

// A file that came as stdin may be read; opening it anew for writing, which its
// owner's permissions allow, is a way out of the box.
func TestStdinStaysReadOnly(t *testing.T) {
	in, out := folders(t)
	for _, c := range []struct {
		trees []string
		code  int
	}{{[]string{in}, 2}, {[]string{in, out}, 0}} { // the second is the control
		file, err := os.Open(out + "/file")
		if err != nil {
			t.Fatal(err)
		}
		cmd := confined(t, max(Version(), MinVersion), c.trees, "echo x >>/proc/self/fd/0")
		cmd.Stdin = file
		if code := rig.Code(cmd.Run()); (code == 0) != (c.code == 0) {
			t.Errorf("with %v: exit %d", c.trees, code)
		}
		file.Close()
	}
}

func TestSignalsStayInside(t *testing.T) {
	in, _ := folders(t)
	pid := strconv.Itoa(os.Getpid())
	if out, err := confined(t, WithScope, []string{in}, "kill -0 "+pid).CombinedOutput(); err == nil {
		t.Errorf("a process outside was signalled: %s", out)
	}
	if out, err := confined(t, WithScope, []string{in}, "sleep 9 & kill -9 $!").CombinedOutput(); err != nil {
		t.Errorf("control: a child cannot be signalled: %v, %s", err, out)
	}
	if out, err := confined(t, WithScope-1, []string{in}, "kill -0 "+pid).CombinedOutput(); err != nil {
		t.Errorf("control: without the scope: %v, %s", err, out)
	}
}

func TestNoWallBelowTheFirstUsefulVersion(t *testing.T) {
	in, out := folders(t)
	cmd := confined(t, 0, []string{in}, "echo x >"+out+"/new")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v, %s", err, text)
	}
}

func TestAMissingTreeIsAnError(t *testing.T) {
	in, _ := folders(t)
	text, err := confined(t, max(Version(), MinVersion), []string{in, in + "/absent"}, "true").CombinedOutput()
	if rig.Code(err) != 99 || !strings.Contains(string(text), "absent") {
		t.Errorf("%v, %s", err, text)
	}
}

// Modes and times are no rights of Landlock's: behind the mounts it is no
// second wall for them, and SECURITY.md says so.
func TestGapModesAndTimes(t *testing.T) {
	in, out := folders(t)
	script := "chmod 700 $OUT/file && touch -d 2001-01-01 $OUT/file && ! echo x >>$OUT/file"
	cmd := confined(t, max(Version(), MinVersion), []string{in}, "OUT="+out+"; "+script)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v, %s: the gap is closed, or nothing is confined", err, text)
	}
	if st, err := os.Stat(out + "/file"); err != nil || st.Mode().Perm() != 0o700 || st.ModTime().Year() != 2001 {
		t.Errorf("%v, %v: the gap is closed", st, err)
	}
}
