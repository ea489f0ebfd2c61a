package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// lines sorts what a command printed.
func lines(s string) []string {
	all := strings.Fields(s)
	sort.Strings(all)
	return all
}

func TestWhatABoxSeesOfProcesses(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		out := rig.Run(t, p.botbox(nil, with(run, "--", "sh", "-c", `
			tr '\0' '\n' </proc/1/cmdline | head -1
			echo $$
			ls /proc | grep -c '^[0-9]'
			cat /proc/1/environ 2>/dev/null | wc -c`)...))
		got := strings.Fields(out.Stdout)
		if len(got) != 4 || filepath.Base(got[0]) != "bwrap" || got[1] != "2" || got[3] != "0" {
			t.Errorf("PID 1, the engine's pid, processes, bytes of PID 1's environment: %q; %s", got, out.Stderr)
		}
	})
}

func TestWhatABoxMayDo(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		out := rig.Run(t, p.botbox(nil, with(run, "--", "cat", "/proc/self/status")...))
		for _, want := range []string{
			"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
			"CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
		} {
			if !strings.Contains(out.Stdout, want) {
				t.Errorf("no %q in %s", want, out.Stdout)
			}
		}
	})
}

func TestABoxHasLoopbackOnly(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		out := rig.Run(t, p.botbox(nil, with(run, "--", "cat", "/proc/net/dev", "/proc/net/route")...))
		names := regexp.MustCompile(`(?m)^\s*(\w+):`).FindAllStringSubmatch(out.Stdout, -1)
		if len(names) != 1 || names[0][1] != "lo" {
			t.Errorf("interfaces %v", names)
		}
	})
}

// The caller leaks two descriptors on purpose, one behind a gap.
func TestNoFileIsInherited(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		secret := filepath.Join(p.top, "secret")
		rig.Write(t, secret, "canary")
		script := fmt.Sprintf(`exec 9<%s 251<%s; cat <&9 >&2; exec "$@"`, secret, secret)
		cmd := p.botbox(nil)
		cmd.Args = append([]string{"bash", "-c", script, "bash", cmd.Path}, with(run, "--", "ls", "-1", "/proc/self/fd", "/proc/1/fd")...)
		cmd.Path = "/bin/bash"
		out := rig.Run(t, cmd)
		if !strings.Contains(out.Stderr, "canary") {
			t.Fatalf("positive control: the caller does not hold the file: %+v", out)
		}
		own, first, _ := strings.Cut(strings.TrimPrefix(out.Stdout, "/proc/"), "/proc/")
		if !strings.HasPrefix(own, "1/fd") {
			own, first = first, own
		}
		// PID 1 has stdio and the event that tells of the engine's end; ls has
		// stdio and the folder that it lists.
		if n := len(lines(own)) - 1; n > 4 {
			t.Errorf("PID 1 holds %s", own)
		}
		if n := len(lines(first)) - 1; n > 4 {
			t.Errorf("the engine holds %s", first)
		}
	})
}

func TestNobodyElsesFilesAreInABox(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		data := filepath.Join(p.home, ".openmausbot")
		paths := []string{
			filepath.Join(data, "messages.db"), filepath.Join(data, "config.json"), filepath.Join(data, "workspaces/other/MEMORY.md"),
			filepath.Join(p.home, ".ssh/id_ed25519"), filepath.Join(p.top, "beside-the-work-folder"),
		}
		for _, path := range paths {
			rig.Write(t, path, "canary")
		}
		rig.Give(t, data)
		tmp, err := os.CreateTemp("/tmp", "canary")
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(tmp.Name())
		tmp.Chmod(0o644)
		paths = append(paths, tmp.Name())
		out := rig.Run(t, p.botbox(nil, with(run, append([]string{"--", "ls", "-d", "/.fly", "/sys/kernel", "/sys/fs", "/root/.bashrc"}, paths...)...)...))
		if out.Stdout != "" {
			t.Errorf("visible in the box: %s", out.Stdout)
		}
		for _, path := range paths { // positive control: outside they can be read
			if b, err := os.ReadFile(path); err != nil || (string(b) != "canary" && path != tmp.Name()) {
				t.Errorf("positive control: %s outside: %v", path, err)
			}
		}
	})
}

func TestWhereABoxCanWrite(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		extra := filepath.Join(p.top, "extra")
		if err := os.Mkdir(extra, 0o755); err != nil {
			t.Fatal(err)
		}
		rig.Give(t, extra)
		script := `
			for d in . ` + extra + ` "$HOME" /tmp /var/tmp /run /dev/shm; do echo x >"$d/written" || echo "cannot write $d"; done
			for d in / /usr /etc /opt /dev /sys /home /bin; do ( echo x >"$d/written" ) 2>/dev/null && echo "could write $d"; done
			true`
		out := rig.Run(t, p.botbox(nil, with(run, "--rw", extra, "--", "sh", "-c", script)...))
		if out.Code != 0 || out.Stdout != "" {
			t.Errorf("%+v", out)
		}
		for path, want := range map[string]bool{
			filepath.Join(p.work, "written"): true, filepath.Join(extra, "written"): true,
			filepath.Join(p.home, "written"): false, "/tmp/written": false, "/var/tmp/written": false,
		} {
			if _, err := os.Stat(path); (err == nil) != want {
				t.Errorf("%s outside: %v, want there: %v", path, err, want)
			}
		}
		if entries, _ := os.ReadDir(p.home); len(entries) != 0 {
			t.Errorf("the spawn left something in HOME: %v", entries)
		}
	})
}

func TestTheEnvironmentIsAnAllowList(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		out := rig.Run(t, p.botbox([]string{
			"OMB_CLOUD_ROLE=home", "OMB_SIGNIN_SMTP_URL=canary", "OPENMAUSBOT_TOKEN=canary", "FOO=canary", "LD_PRELOAD=",
			"SSH_AUTH_SOCK=canary", "NODE_OPTIONS=--canary", "OMB_BOT_ID=b-12", "NOTES_TOKEN=declared", "TERM=dumb",
		}, with(run, "--env", "NOTES_TOKEN", "--env", "GIVEN=x", "--env", "OMB_CLOUD_X=canary", "--", "env")...))
		for _, want := range []string{"OMB_BOT_ID=b-12", "NOTES_TOKEN=declared", "GIVEN=x", "BOTBOX=1", "TERM=dumb", "HOME=" + p.home, "http_proxy=http://127.0.0.1:3128", "NO_PROXY=localhost,127.0.0.1,::1"} {
			if !strings.Contains("\n"+out.Stdout, "\n"+want+"\n") {
				t.Errorf("no %s in\n%s", want, out.Stdout)
			}
		}
		for _, never := range []string{"OMB_CLOUD", "canary", "OMB_RUN_DIR", "SSH_AUTH_SOCK"} {
			if strings.Contains(out.Stdout, never) {
				t.Errorf("%s is in the box's environment:\n%s", never, out.Stdout)
			}
		}
	})
}

func TestLimits(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		out := rig.Run(t, p.botbox(nil, with(run, "--pids", "64", "--tmp-size", "8M", "--", "bash", "-c",
			`ulimit -c; ulimit -u; dd if=/dev/zero of=/tmp/x bs=1M count=16 2>/dev/null; stat -c %s /tmp/x`)...))
		if got := strings.Fields(out.Stdout); len(got) != 3 || got[0] != "0" || got[1] != "64" || got[2] != "8388608" {
			t.Errorf("core, processes, bytes in /tmp: %q; %s", got, out.Stderr)
		}
	})
}

// Who works in /tmp works in the box's own, and is told so.
func TestTheMachinesTmpIsNoWorkFolder(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		canary, err := os.CreateTemp("/tmp", "canary")
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(canary.Name())
		left := filepath.Base(canary.Name()) + "-left"
		out := rig.Run(t, p.botbox(nil, with(run, "--cwd", "/tmp", "--", "sh", "-c", "pwd; ls; echo x >"+left)...))
		if out.Code != 0 || !strings.HasPrefix(out.Stdout, "/tmp\n") || strings.Contains(out.Stdout, "canary") || !strings.Contains(out.Stderr, "botbox: warning: ") {
			t.Errorf("%+v", out)
		}
		if _, err := os.Stat("/tmp/" + left); err == nil {
			t.Error("the box wrote the machine's /tmp")
		}
	})
}
