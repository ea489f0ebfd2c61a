package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/rig"
)

// folder makes one of the account's.
func (p *place) folder(path string) string {
	p.t.Helper()
	if out := rig.Run(p.t, rig.Command(p.t, "/", p.env, "mkdir", "-p", path)); out.Code != 0 {
		p.t.Fatal(out.Stderr)
	}
	return path
}

// listen makes a live socket that answers nobody.
func (p *place) listen(path string) net.Listener {
	p.t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		p.t.Fatal(err)
	}
	rig.Give(p.t, path)
	p.t.Cleanup(func() { l.Close() })
	return l
}

// turn runs a spec; more of its fields stand in JSON.
func (p *place) turn(fields string, argv ...string) rig.Output {
	p.t.Helper()
	words, _ := json.Marshal(argv)
	cmd := p.botbox(nil, "run", "--standalone", "--json", "--spec", "-")
	cmd.Stdin = strings.NewReader(`{"argv":` + string(words) + `,` + fields + `}`)
	return rig.Run(p.t, cmd)
}

// script connects to a socket by its path and says so.
const connects = `use IO::Socket::UNIX; print IO::Socket::UNIX->new($ARGV[0]) ? "connected\n" : "refused\n"`

// A read-only mount does not stop connect(2): a folder with a socket of a
// server, a runtime or an agent in it stays out (greywall#55).
func TestFoldersThatHoldSockets(t *testing.T) {
	p := newPlace(t)
	for name, where := range map[string]string{
		"docker": "docker.sock", "docker's desktop": ".docker/run/docker.sock", "podman": "podman/podman.sock", "containerd": "containerd/containerd.sock",
		"crio": "crio.sock", "libvirt": "libvirt-sock-ro", "dbus": "bus", "ssh-agent": "agent.4711", "gpg-agent": ".gnupg/S.gpg-agent",
		"X11": "X0", "Wayland": "wayland-0", "permission": "perm-abcd.sock", "worker": "lease.sock",
	} {
		dir := p.folder(filepath.Join(p.top, "s", name))
		p.folder(filepath.Dir(filepath.Join(dir, where)))
		socket := p.listen(filepath.Join(dir, where))
		for _, args := range [][]string{{"--rw", dir}, {"--ro", dir}, {"--cwd", dir}} {
			out := rig.Run(t, p.botbox(nil, append(append([]string{"run", "--standalone"}, args...), "--", "echo", "ran")...))
			if out.Code != 100 || out.Stdout != "" || !strings.Contains(out.Stderr, "reason: path_refused") || !strings.Contains(out.Stderr, "socket") {
				t.Errorf("%s %s: %+v", name, args[0], out)
			}
		}
		socket.Close() // and it is gone: the same folder is let in
		if out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--ro", dir, "--", "echo", "ran")); out.Stdout != "ran\n" {
			t.Errorf("positive control, %s without its socket: %+v", name, out)
		}
	}
	// One that nobody knows may be a bot's own, where it can write; where it
	// cannot, it is somebody else's.
	dir := p.folder(filepath.Join(p.top, "own"))
	p.listen(filepath.Join(dir, "puma"))
	for flag, want := range map[string]int{"--rw": 0, "--ro": 100} {
		if out := rig.Run(t, p.botbox(nil, "run", "--standalone", flag, dir, "--", "true")); out.Code != want {
			t.Errorf("an unknown socket, %s: %+v", flag, out)
		}
	}
	if out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--ro", filepath.Join(dir, "puma"), "--", "true")); out.Code != 100 {
		t.Errorf("a socket itself: %+v", out)
	}
}

// What is renewed by rename is bound as a folder: a file's mount would keep the
// old one, and a socket's the old listener.
func TestRenewalsByRename(t *testing.T) {
	p := newPlace(t)
	data := p.folder(filepath.Join(p.home, ".openmausbot"))
	tokens := p.folder(filepath.Join(data, "hook-tokens/t-1"))
	perm := p.folder(filepath.Join(data, "perm/t-1"))
	token, socket := filepath.Join(tokens, "hook.token"), filepath.Join(perm, "s.sock")
	rig.Write(t, token, "v1")
	old := p.listen(socket)
	cmd := p.botbox(nil, "run", "--standalone", "--spec", "-")
	script := `cat ` + token + `; echo; read x; cat ` + token + `; echo; echo x >` + token + ` || echo read-only; perl -e '` + connects + `' ` + socket + `; rm ` + socket + ` && echo removed`
	words, _ := json.Marshal([]string{"sh", "-c", script})
	spec := filepath.Join(p.top, "spec.json")
	rig.Write(t, spec, `{"argv":`+string(words)+`,"cwd":"`+p.work+`","paths":{"ro":["`+tokens+`"],"perm_socket_dir":"`+perm+`"}}`)
	cmd.Args[len(cmd.Args)-1] = spec
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	_, out := start(t, cmd)
	if got := line(t, out); got != "v1" {
		t.Errorf("the token is %q", got)
	}
	rig.Write(t, token+".new", "v2")
	if err := os.Rename(token+".new", token); err != nil {
		t.Fatal(err)
	}
	old.Close() // which removes it
	p.listen(socket)
	fmt.Fprintln(in, "go on")
	for _, want := range []string{"v2", "read-only", "connected", "removed"} {
		if got := line(t, out); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// An engine that renews its sign-in by rename renews it for the team, and no
// box sees another audience's home, or the server's.
func TestEngineHomes(t *testing.T) {
	p := newPlace(t)
	p.folder(filepath.Join(p.home, ".openmausbot"))
	rig.Write(t, filepath.Join(p.home, ".codex/auth.json"), "canary")
	home, other := p.folder(filepath.Join(p.home, "homes/team")), p.folder(filepath.Join(p.home, "homes/other"))
	rig.Write(t, filepath.Join(other, "secret"), "canary")
	team := p.folder(filepath.Join(p.top, "team-codex"))
	rig.Write(t, filepath.Join(team, "auth.json"), "old")
	fields := fmt.Sprintf(`"cwd":"%s","engine":"codex","home":{"mode":"engine","path":"%s","signin":[{"from":"%s","as":".codex","mode":"rw-dir"}]}`, p.work, home, team)
	out := p.turn(fields, "true")
	if out.Code != 100 || !strings.Contains(out.Stderr, "path_refused") || !strings.Contains(out.Stderr, ".codex") {
		t.Errorf("without a place for it: %+v", out)
	}
	if entries, _ := os.ReadDir(home); len(entries) != 0 {
		t.Errorf("the refused spawn made %v", entries)
	}
	p.folder(filepath.Join(home, ".codex"))
	script := `cd; pwd; cat .codex/auth.json; echo new >.codex/x && mv .codex/x .codex/auth.json && echo top >.claude.json.new && mv .claude.json.new .claude.json
		mv .codex gone 2>/dev/null && echo moved; cat ` + filepath.Join(p.home, ".codex/auth.json") + ` ` + filepath.Join(other, "secret") + ` 2>/dev/null; ls -A ` + p.home + ` | tr '\n' ' '`
	out = p.turn(fields, "sh", "-c", script)
	if out.Code != 0 || out.Stdout != home+"\nold.openmausbot homes " {
		t.Errorf("%+v", out)
	}
	for path, want := range map[string]string{filepath.Join(team, "auth.json"): "new\n", filepath.Join(home, ".claude.json"): "top\n"} {
		if b, _ := os.ReadFile(path); string(b) != want {
			t.Errorf("%s outside: %q", path, b)
		}
	}
	if entries, _ := os.ReadDir(filepath.Join(home, ".codex")); len(entries) != 0 {
		t.Errorf("the sign-in stands in the audience's own folder: %v", entries)
	}
	if out := p.turn(fields, "cat", filepath.Join(home, ".codex/auth.json")); out.Stdout != "new\n" {
		t.Errorf("the next box: %+v", out)
	}
}

// The data folder is not in the box when the work folder is it, is in it,
// contains it, or leads to it.
func TestTheDataFolderStaysHidden(t *testing.T) {
	p := newPlace(t)
	data := p.folder(filepath.Join(p.work, "deep/er/data"))
	p.env = append(p.env, "OMB_DATA_DIR="+data)
	rig.Write(t, filepath.Join(data, "messages.db"), "canary")
	rig.Write(t, filepath.Join(data, "workspaces/b/notes"), "mine")
	rig.Give(t, filepath.Join(data, "workspaces/b"))
	link := filepath.Join(p.top, "link")
	if err := os.Symlink(data, link); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"is it": data, "in it": p.folder(filepath.Join(data, "events")), "leads to it": link} {
		if out := p.turn(`"cwd":"`+dir+`"`, "true"); out.Code != 100 || !strings.Contains(out.Stderr, "path_refused") {
			t.Errorf("%s: %+v", name, out)
		}
		if out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--cwd", dir, "--", "true")); out.Code != 100 {
			t.Errorf("%s, on the command line: %+v", name, out)
		}
	}
	// What merely holds a mount point could be renamed, and the next box would
	// see through: the folders on the way are pinned.
	attack := `ls -A deep/er/data; for d in deep deep/er deep/er/data; do mv $d moved 2>/dev/null && echo "moved $d"; rmdir $d 2>/dev/null && echo "removed $d"; done; echo x >deep/beside && echo ok`
	if out := p.turn(`"cwd":"`+p.work+`"`, "sh", "-c", attack); out.Code != 0 || out.Stdout != "ok\n" {
		t.Errorf("contains it: %+v", out)
	}
	if b, _ := os.ReadFile(filepath.Join(p.work, "deep/beside")); string(b) != "x\n" {
		t.Errorf("positive control: a file beside it: %q", b)
	}
	// A bot's own folder in it is put back.
	if out := p.turn(`"cwd":"`+filepath.Join(data, "workspaces/b")+`"`, "sh", "-c", "cat notes; ls -A .. ../.."); !strings.HasPrefix(out.Stdout, "mine") || strings.Contains(out.Stdout, "messages.db") {
		t.Errorf("a bot's own folder: %+v", out)
	}
}

// The worker's sockets make boxes: they are hidden like the data folder.
func TestTheWorkersOwnFoldersStayHidden(t *testing.T) {
	p := newPlace(t)
	p.folder(filepath.Join(p.home, ".openmausbot"))
	run, state := p.folder(filepath.Join(p.home, "r")), filepath.Join(p.home, ".local/state/botbox")
	secrets := p.folder(filepath.Join(p.home, "secrets"))
	rig.Write(t, filepath.Join(secrets, "key"), "canary")
	p.env = append(rig.Env(t, p.home), "OMB_RUN_DIR="+run, "OMB_STATE_DIR="+state, "OMB_SECRETS_DIR="+secrets)
	script := `cd; ls -A r .local/state/botbox secrets | grep -v :; for d in .local .local/state r secrets; do mv $d moved 2>/dev/null && echo "moved $d"; done; true`
	out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--home", "server", "--", "true"))
	if out.Code != 100 || !strings.Contains(out.Stderr, "mkdir -p") {
		t.Errorf("one that does not exist where it would be seen: %+v", out)
	}
	p.folder(state)
	if err := os.Chmod(state, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{run, secrets} {
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.run = run
	p.serve()
	if entries, _ := os.ReadDir(run); len(entries) != 2 {
		t.Errorf("positive control: the worker's sockets outside: %v", entries)
	}
	if out := rig.Run(t, p.botbox(nil, "run", "--home", "server", "--", "sh", "-c", script)); out.Code != 0 || strings.TrimSpace(out.Stdout) != "" {
		t.Errorf("%+v", out)
	}
	for _, path := range []string{run, state, secrets, filepath.Join(secrets, "key"), filepath.Join(p.home, ".local")} {
		if out := rig.Run(t, p.botbox(nil, "run", "--ro", path, "--", "true")); out.Code != 100 || !strings.Contains(out.Stderr, "path_refused") {
			t.Errorf("--ro %s: %+v", path, out)
		}
	}
}

// An engine that is installed in HOME runs with HOME private (ai-jail#81): the
// links on the way and what it is installed with come in, and nothing else.
func TestAnEngineInstalledInHome(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		bin, node := filepath.Join(p.home, ".local/bin"), filepath.Join(p.home, ".nvm/versions/node/v20")
		for _, dir := range []string{bin, node, filepath.Join(node, "bin")} {
			p.folder(dir)
		}
		rig.Write(t, filepath.Join(p.home, ".local/share/claude/versions/1.2"), "#!/bin/sh\necho native \"$@\"\nls -A \"$HOME\" \"$HOME\"/.local/share 2>/dev/null | tr '\\n' ' '\n")
		rig.Write(t, filepath.Join(p.home, ".local/share/keyrings/login"), "canary")
		rig.Write(t, filepath.Join(node, "bin/ournode"), "#!/bin/sh\necho interpreted; cd \"$(dirname \"$(readlink -f \"$1\")\")\" && cat ../dep/data\n")
		rig.Write(t, filepath.Join(node, "lib/node_modules/@x/cli/cli.js"), "#!/usr/bin/env ournode\n")
		rig.Write(t, filepath.Join(node, "lib/node_modules/@x/dep/data"), "dependency\n")
		for at, to := range map[string]string{
			filepath.Join(bin, "claude"):     filepath.Join(p.home, ".local/share/claude/versions/1.2"),
			filepath.Join(node, "bin/npmed"): "../lib/node_modules/@x/cli/cli.js",
			filepath.Join(p.home, "current"): node + "/bin",
		} {
			if err := os.Symlink(to, at); err != nil {
				t.Fatal(err)
			}
		}
		env := []string{"PATH=" + bin + ":" + filepath.Join(p.home, "current") + ":/usr/bin:/bin"}
		out := rig.Run(t, p.botbox(env, with(run, "--json", "--", "claude", "hi")...))
		if out.Code != 0 || !strings.HasPrefix(out.Stdout, "native hi\n") || strings.Contains(out.Stdout, "keyrings") || strings.Contains(out.Stdout, ".nvm") {
			t.Errorf("native: %+v", out)
		}
		if !strings.Contains(out.Stderr, "let in read-only") {
			t.Errorf("the answer does not say it: %s", out.Stderr)
		}
		if out := rig.Run(t, p.botbox(env, with(run, "--", "npmed")...)); out.Code != 0 || out.Stdout != "interpreted\ndependency\n" {
			t.Errorf("by npm: %+v", out)
		}
		if out := rig.Run(t, p.botbox(env, with(run, "--", "/bin/ls", "-A", p.home)...)); out.Stdout != ".openmausbot\n" {
			t.Errorf("a command of the system's brings in %s", out.Stdout)
		}
	})
}

// A bot's profile takes things away from its boxes.
func TestProfiles(t *testing.T) {
	p := newPlace(t)
	p.folder(filepath.Join(p.home, ".openmausbot"))
	rig.Write(t, filepath.Join(p.home, ".claude/login"), "canary")
	rig.Write(t, filepath.Join(p.work, "f"), "readable\n")
	for _, home := range []string{"private", "server"} {
		work := `"cwd":"` + p.work + `","home":{"mode":"` + home + `"}`
		for profile, want := range map[string]string{"ro": "readable\n", "rw": "readable\nwrote\n"} {
			out := p.turn(work+`,"profile":{"work":"`+profile+`"}`, "sh", "-c", "cat f; { echo x >g; } 2>/dev/null && echo wrote; true")
			if out.Code != 0 || out.Stdout != want {
				t.Errorf("%s HOME, %s: %+v", home, profile, out)
			}
		}
	}
	inHome := p.folder(filepath.Join(p.home, "project"))
	if out := p.turn(`"cwd":"`+inHome+`","home":{"mode":"server"},"profile":{"work":"ro"}`, "sh", "-c", "echo x >g || mv ../project ../p || echo held"); out.Stdout != "held\n" {
		t.Errorf("a read-only work folder in a HOME that is not: %+v", out)
	}
	keys := `"cwd":"` + p.work + `","engine":"claude","env":{"ANTHROPIC_API_KEY":"sk-canary"}`
	script := filepath.Join(p.work, "script") // an engine's command line gets words of ours
	rig.Write(t, script, "#!/bin/sh\nenv | grep -c -e canary -e omb_t0_; ls -A $HOME\n")
	if out := p.turn(keys+`,"profile":{"keys":"none"}`, script); out.Stdout != "0\n.openmausbot\n" || !strings.Contains(out.Stderr, `"dropped_env":["ANTHROPIC_API_KEY"]`) {
		t.Errorf("no keys: %+v", out)
	}
	if out := p.turn(keys, script); strings.HasPrefix(out.Stdout, "0\n") || !strings.Contains(out.Stdout, ".claude") {
		t.Errorf("positive control, with keys: %+v", out)
	}
	if out := p.turn(keys+`,"home":{"mode":"server"},"profile":{"keys":"none"}`, "true"); out.Code != 100 || !strings.Contains(out.Stderr, "bad_spec") {
		t.Errorf("no keys, and a HOME that has some: %+v", out)
	}
}

// A link that one turn plants where the next has a mount leads nowhere outside
// (CVE-2026-87766).
func TestPlantedLinks(t *testing.T) {
	p := newPlace(t)
	fixture := p.folder(filepath.Join(p.top, "fixture"))
	home := p.folder(filepath.Join(p.top, "engine-home"))
	team := p.folder(filepath.Join(p.top, "team"))
	data := filepath.Join(p.work, "a/data")
	p.env = append(p.env, "OMB_DATA_DIR="+data)
	up := strings.Repeat("../", 12)
	signin := fmt.Sprintf(`"cwd":"%s","home":{"mode":"engine","path":"%s","signin":[{"from":"%s","as":".codex","mode":"rw-dir"}]}`, p.folder(filepath.Join(p.top, "w")), home, team)
	for _, to := range []string{"/oldroot" + fixture, "/oldroot" + fixture + "/x", up + "oldroot" + fixture + "/x", up[1:] + fixture[1:], fixture, "/oldroot/tmp/../" + fixture + "/x"} {
		for at, fields := range map[string]string{
			filepath.Join(home, ".codex"):           signin,
			data:                                    `"cwd":"` + p.work + `"`,
			filepath.Dir(data):                      `"cwd":"` + p.work + `"`,
			filepath.Join(p.work, ".git"):           `"cwd":"` + p.work + `"`,
			filepath.Join(p.work, ".git/hooks"):     `"cwd":"` + p.work + `"`,
			filepath.Join(p.work, ".git/config"):    `"cwd":"` + p.work + `"`,
			filepath.Join(p.home, ".claude"):        `"cwd":"` + fixture + `","engine":"claude"`,
			filepath.Join(p.home, ".claude/nested"): `"cwd":"` + fixture + `","engine":"claude"`,
		} {
			p.folder(data)
			p.folder(filepath.Join(home, ".codex"))
			p.folder(filepath.Dir(at))
			if err := os.RemoveAll(at); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(to, at); err != nil {
				t.Fatal(err)
			}
			p.turn(fields, "true")
			if entries, _ := os.ReadDir(fixture); len(entries) != 0 {
				t.Fatalf("%s -> %s: made outside: %v", at, to, entries)
			}
			os.RemoveAll(at)
		}
	}
	p.folder(data)
	os.RemoveAll(filepath.Join(home, ".codex"))
	if out := p.turn(signin, "true"); out.Code != 100 {
		t.Errorf("positive control: %+v", out)
	}
	p.folder(filepath.Join(home, ".codex"))
	if out := p.turn(signin, "true"); out.Code != 0 {
		t.Errorf("positive control, nothing planted: %+v", out)
	}
}

// exchange swaps two names again and again, mostly for a moment only, until the
// returned function is called, which gives how often.
func exchange(a, b string) func() int {
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; n++ {
			unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
			unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			select {
			case <-stop:
				done <- n
				return
			case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond):
			}
		}
	}()
	return func() int { close(stop); return <-done }
}

// A folder that is exchanged for a link while boxes are made shows no box what
// the link leads to, be the folder a source or the place of a mount.
func TestExchangedFolders(t *testing.T) {
	p := newPlace(t)
	p.serve()
	victim, team := p.folder(filepath.Join(p.top, "victim")), p.folder(filepath.Join(p.top, "team"))
	rig.Write(t, filepath.Join(victim, "who"), "victim\n")
	rig.Write(t, filepath.Join(team, "who"), "expected\n")
	source, link := p.folder(filepath.Join(p.top, "s/dir")), filepath.Join(p.top, "s/link")
	rig.Write(t, filepath.Join(source, "who"), "expected\n")
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	home := p.folder(filepath.Join(p.top, "engine-home"))
	place, other := p.folder(filepath.Join(home, ".codex")), filepath.Join(home, "other")
	if err := os.Symlink("/oldroot"+victim, other); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ a, b, fields string }{
		"source":      {source, link, `"paths":{"ro":["` + source + `"]}`},
		"destination": {place, other, `"home":{"mode":"engine","path":"` + home + `","signin":[{"from":"` + team + `","as":".codex","mode":"rw-dir"}]}`},
	} {
		spec := filepath.Join(p.top, name+".json")
		rig.Write(t, spec, `{"argv":["cat","`+c.a+`/who"],"cwd":"`+p.work+`",`+c.fields+`}`)
		stop, ran := exchange(c.a, c.b), 0
		for range 40 {
			out := rig.Run(t, p.botbox(nil, "run", "--spec", spec))
			if out.Stdout == "expected\n" {
				ran++
			} else if out.Stdout != "" || out.Code == 0 {
				t.Fatalf("%s: %+v", name, out)
			}
		}
		if n := stop(); n < 10 || ran == 0 {
			t.Errorf("%s: %d exchanges, %d boxes of 40: the test tries too little", name, n, ran)
		}
	}
}

// A spawn that is killed half-way leaves nothing in the user's tree
// (claude-code#17258).
func TestASpawnThatIsKilledHalfWay(t *testing.T) {
	p := newPlace(t)
	p.repository()
	p.folder(filepath.Join(p.home, ".openmausbot"))
	rig.Write(t, filepath.Join(p.home, ".gitconfig"), "")
	before := p.tree(p.top)
	for range 40 {
		cmd := p.botbox(nil, "run", "--standalone", "--home", "server", "--", "true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
	}
	if out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--home", "server", "--", "git", "status", "--porcelain")); out.Code != 0 || out.Stdout != "" {
		t.Errorf("git in a box: %+v", out)
	}
	if after := p.tree(p.top); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}
