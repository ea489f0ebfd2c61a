// Package testbed_test runs the scripts of the test bed.
package testbed_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a PATH that holds a few real tools and the given scripts, so that
// setup.sh finds nothing else of this machine.
func machine(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, tool := range []string{"sh", "env", "uname", "sort", "tr", "dirname", "cat", "cmp", "sed", "grep", "head", "install", "curl"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	for name, body := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func setup(t *testing.T, dir string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"setup.sh"}, args...)...)
	// The script appends the sbin folders itself; no tool of its rows is there.
	cmd.Env = []string{"PATH=" + dir, "BIN=" + dir, "DESTDIR=" + filepath.Join(dir, "dest")}
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

const (
	idRoot   = `[ "$1" = -u ] && echo 0; exit 0` // root, and maus is there
	idUser   = `[ "$1" = -u ] && echo 1000; exit 0`
	aptGet   = `echo "$@" >>"$BIN/apt.log"; case $* in *install*) echo >"$BIN/bwrap"; /bin/chmod 755 "$BIN/bwrap" ;; esac`
	aptBroke = `exit 0`
)

func TestSetupInstallsOnce(t *testing.T) {
	dir := machine(t, map[string]string{"id": idRoot, "apt-get": aptGet})
	stdout, stderr, status := setup(t, dir, "run")
	if status != 0 || stdout != "" || !strings.Contains(stderr, "installing bubblewrap\n") {
		t.Fatalf("first run: %d %q %q", status, stdout, stderr)
	}
	log, _ := os.ReadFile(filepath.Join(dir, "apt.log"))
	if want := "update -qq\ninstall -y -qq --no-install-recommends bubblewrap\n"; string(log) != want {
		t.Errorf("apt-get was called with %q, want %q", log, want)
	}
	stdout, stderr, status = setup(t, dir, "run")
	again, _ := os.ReadFile(filepath.Join(dir, "apt.log"))
	if status != 0 || stdout+stderr != "" || string(again) != string(log) {
		t.Errorf("second run: %d %q, apt-get %q", status, stdout+stderr, again)
	}
}

func TestSetupThroughSudo(t *testing.T) {
	dir := machine(t, map[string]string{"id": idUser, "apt-get": aptGet, "sudo": `printf "%s\\n" "$1" >>"$BIN/sudo.log"; shift 2; exec "$@"`})
	if _, stderr, status := setup(t, dir, "run"); status != 0 {
		t.Fatalf("%d %q", status, stderr)
	}
	// There is no terminal here, so sudo must have been told not to ask.
	if log, _ := os.ReadFile(filepath.Join(dir, "sudo.log")); string(log) != "-n\n-n\n" {
		t.Errorf("sudo was called with %q", log)
	}
}

func TestSetupRefuses(t *testing.T) {
	for _, tt := range []struct {
		what    string
		scripts map[string]string
		args    []string
		want    string
	}{
		{"neither root nor sudo", map[string]string{"id": idUser, "apt-get": aptGet}, []string{"run"}, "no sudo"},
		{"no apt-get", map[string]string{"id": idRoot}, []string{"run"}, "missing: bubblewrap"},
		{"apt-get did nothing", map[string]string{"id": idRoot, "apt-get": aptBroke}, []string{"run"}, "still missing: bubblewrap"},
		{"no mode", map[string]string{"id": idRoot}, nil, "run or test"},
	} {
		_, stderr, status := setup(t, machine(t, tt.scripts), tt.args...)
		if status != 1 || !strings.Contains(stderr, tt.want) || !strings.Contains(stderr, "\nhint: ") {
			t.Errorf("%s: %d %q", tt.what, status, stderr)
		}
	}
}

func TestSetupMakesUser(t *testing.T) {
	dir := machine(t, map[string]string{"bwrap": "", "id": `[ "$1" = -u ] && echo 0 || [ -e "$BIN/user.log" ]`, "useradd": `echo "$@" >>"$BIN/user.log"`})
	if _, stderr, status := setup(t, dir, "run"); status != 0 || !strings.Contains(stderr, "creating the user maus") {
		t.Errorf("first run: %d %q", status, stderr)
	}
	if _, stderr, status := setup(t, dir, "run"); status != 0 || stderr != "" {
		t.Errorf("second run: %d %q", status, stderr)
	}
	if log, _ := os.ReadFile(filepath.Join(dir, "user.log")); string(log) != "--system --create-home --shell /usr/sbin/nologin maus\n" {
		t.Errorf("useradd was called with %q", log)
	}
}

func TestSetupAppArmor(t *testing.T) {
	const other = "abi <abi/4.0>,\nprofile bwrap_box /usr/bin/bwrap flags=(attach_disconnected) {\n}\n"
	for _, tt := range []struct {
		what, restrict, theirs string
		installs               bool
	}{
		{"restricted", "1\n", "", true},
		{"not restricted", "0\n", "", false},
		{"another profile for the same program", "1\n", other, false},
		{"a profile for another program", "1\n", strings.ReplaceAll(other, "bwrap", "other"), true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			dir := machine(t, map[string]string{"bwrap": "", "id": idRoot, "apparmor_parser": `echo "$@" >>"$BIN/load.log"`})
			profiles := filepath.Join(dir, "dest/etc/apparmor.d")
			for file, text := range map[string]string{
				filepath.Join(dir, "dest/proc/sys/kernel/apparmor_restrict_unprivileged_userns"): tt.restrict,
				filepath.Join(profiles, "theirs"):                                                tt.theirs,
			} {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second run must do nothing
				if _, stderr, status := setup(t, dir, "run"); status != 0 {
					t.Fatalf("%d %q", status, stderr)
				}
			}
			want := ""
			if tt.installs {
				want = "-r " + profiles + "/bwrap\n"
			}
			if log, _ := os.ReadFile(filepath.Join(dir, "load.log")); string(log) != want {
				t.Errorf("apparmor_parser was called with %q, want %q", log, want)
			}
		})
	}
}

// engines.sh must find what is installed without asking anybody.
func TestEnginesFinds(t *testing.T) {
	cache := t.TempDir()
	pins, err := os.ReadFile("engines/package.json")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(pins), `"@anthropic-ai/claude-code": "`)
	version, _, _ := strings.Cut(rest, `"`)
	bin := filepath.Join(cache, "claude-code-"+version, "node_modules/.bin/claude")
	run := func(args ...string) (string, error) {
		cmd := exec.Command("/bin/sh", append([]string{"engines.sh"}, args...)...)
		// npm is a script that fails, so nothing is ever fetched here.
		cmd.Env = []string{"PATH=" + npmFails(t) + ":/usr/bin:/bin", "BOTBOX_ENGINES_DIR=" + cache}
		out, err := cmd.Output()
		return string(out), err
	}
	if out, err := run(); err == nil || out != "" {
		t.Errorf("npm failed: %q %v", out, err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, ".new.*")); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
	if err := os.MkdirAll(filepath.Dir(bin), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bin, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := run(); err != nil || out != bin+"\n" {
		t.Errorf("installed: %q %v, want %q", out, err, bin)
	}
	for _, name := range []string{"codex", "gemini", "opencode", "grok"} {
		cmd := exec.Command("/bin/sh", "engines.sh", name)
		cmd.Env = []string{"PATH=" + npmFails(t) + ":/usr/bin:/bin", "BOTBOX_ENGINES_DIR=" + cache}
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), "npm could not install ") {
			t.Errorf("%s: %s: it has no pin", name, out)
		}
	}
	if _, err := run("other"); err == nil {
		t.Error("an unknown engine was accepted")
	}
}

func npmFails(t *testing.T) string {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
