package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// Each of these shows that something which shared/layers says is not stopped
// is really not stopped. If one fails, a gap may have been closed: say so in
// the table, and turn the test round.

// inBox runs a script in a box that stands alone, with flags of run.
func (p *place) inBox(env, flags []string, script string) rig.Output {
	p.t.Helper()
	args := append([]string{"run", "--standalone"}, flags...)
	return rig.Run(p.t, p.botbox(env, append(args, "--", "sh", "-c", script)...))
}

func gap(t *testing.T, out rig.Output, want string) {
	t.Helper()
	if out.Code != 0 || out.Stdout != want {
		t.Errorf("%+v, want %q: the gap is closed, or another one is open", out, want)
	}
}

func TestGapABoxReadsTheSystem(t *testing.T) {
	p := newPlace(t)
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	gap(t, p.inBox(nil, nil, "cat /etc/passwd; ls /usr /opt >/dev/null && echo listed"), string(passwd)+"listed\n")
}

// The engine's own login can be read and changed; another engine's is absent.
func TestGapAnEnginesSignInIsInItsBox(t *testing.T) {
	p := newPlace(t)
	for _, name := range []string{".claude", ".codex"} {
		dir := filepath.Join(p.home, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		rig.Write(t, filepath.Join(dir, "login"), "canary"+name)
		rig.Give(t, filepath.Join(dir, "login"))
		rig.Give(t, dir)
	}
	gap(t, p.inBox(nil, []string{"--engine", "claude"}, `cat ~/.claude/login; echo changed >~/.claude/login; cat ~/.codex/login 2>/dev/null; true`), "canary.claude")
	if b, err := os.ReadFile(filepath.Join(p.home, ".claude/login")); err != nil || string(b) != "changed\n" {
		t.Errorf("%q, %v: the gap is closed", b, err)
	}
}

func TestGapWhatADriverPutsBack(t *testing.T) {
	p := newPlace(t)
	dir := rig.Dir(t)
	rig.Write(t, filepath.Join(dir, "given"), "canary")
	rig.Give(t, filepath.Join(dir, "given"))
	rig.Give(t, dir)
	read := "cat " + filepath.Join(dir, "given") + " 2>/dev/null; true"
	gap(t, p.inBox(nil, []string{"--ro", dir}, read), "canary")
	gap(t, p.inBox(nil, nil, read), "") // control: only because it was named
}

func TestGapTheWorkFolderIsTheBots(t *testing.T) {
	p := newPlace(t)
	gap(t, p.inBox(nil, nil, `printf 'all:\n\techo from the bot\n' >Makefile; printf '#!/bin/sh\n' >tool; chmod +x tool`), "")
	if st, err := os.Stat(filepath.Join(p.work, "tool")); err != nil || st.Mode().Perm()&0o100 == 0 {
		t.Errorf("%v, %v: the gap is closed", st, err)
	}
}

func TestGapABoxIsOneBot(t *testing.T) {
	p := newPlace(t)
	gap(t, p.inBox(nil, nil, `SECRET=canary sleep 60 & until tr '\0' '\n' </proc/$!/environ | grep SECRET; do :; done; kill -9 $! && wait $! 2>/dev/null; echo $?`),
		"SECRET=canary\n137\n")
}

func TestGapNamesThatAreAskedFor(t *testing.T) {
	p := newPlace(t)
	script := `echo "$MAX_THINKING_TOKENS,$MINE,$OTHER"`
	gap(t, p.inBox([]string{"MAX_THINKING_TOKENS=7", "MINE=canary", "OTHER=x"}, []string{"--engine", "claude", "--env", "MINE"}, script), "7,canary,\n")
}

// A box takes as much of a disk as there is: nothing stops it at this size.
func TestGapADiskHasNoQuota(t *testing.T) {
	p := newPlace(t)
	gap(t, p.inBox(nil, nil, "head -c 64M /dev/zero >big && wc -c <big; rm big"), "67108864\n")
}

func TestGapAnEngineLowersItsScore(t *testing.T) {
	p := newPlace(t)
	gap(t, p.inBox(nil, nil, "cat /proc/self/oom_score_adj; echo 0 >/proc/self/oom_score_adj && cat /proc/self/oom_score_adj"), "500\n0\n")
}

func TestGapNoMemoryLimitUnlessAsked(t *testing.T) {
	p := newPlace(t)
	out := p.inBox(nil, nil, "grep -E '^Max (address space|data size|resident set)' /proc/self/limits")
	if out.Code != 0 || strings.Count(out.Stdout, "unlimited            unlimited") != 3 {
		t.Errorf("%+v: the gap is closed", out)
	}
}

// Root mounts a file system below the work folder while a box runs. Where the
// machine's mounts are shared the box sees it, and where they are private it
// does not.
func TestGapAMountMadeLater(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, to mount something in a namespace of its own")
	}
	p := newPlace(t)
	p.folder(filepath.Join(p.work, "below"))
	for propagation, want := range map[string]string{"shared": "late\n", "private": "nothing\n"} {
		script := `mount --bind ` + p.work + ` ` + p.work + ` && mount --make-` + propagation + ` ` + p.work + ` && cd ` + p.work + ` && rm -f ready go
			setpriv --reuid maus --regid maus --clear-groups ` + filepath.Join(p.bin, "botbox") + ` run --standalone -- sh -c '
				touch ready; until [ -e go ]; do sleep 0.02; done; cat below/late 2>/dev/null || echo nothing' &
			until [ -e ready ]; do sleep 0.02; kill -0 $! || exit 1; done
			mount -t tmpfs later below && echo late >below/late && touch go; wait $!`
		cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c", script)
		cmd.Env = p.env
		if out := rig.Run(t, cmd); out.Code != 0 || out.Stdout != want {
			t.Errorf("%s: %+v, want %q: the gap is closed, or another one is open", propagation, out, want)
		}
	}
}
