package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// browser prepares a bot's browser box.
func (r *running) browser(t *testing.T, bot string, args ...string) *exec.Cmd {
	return r.as(t, "", append([]string{rig.Programs(t) + "/botbox", "browser", "--bot", bot, "--allow-host", "nothing.invalid"}, args...)...)
}

// A browser's box with a user of its own has the namespaces that Chrome's own
// sandbox needs and no others, as a browser's box of the account's has.
func TestABotsBrowserHasItsOwnSandbox(t *testing.T) {
	r := ownUsersWorld(t, true)
	const script = `id -un; awk '/^Groups:/ {print "groups " NF}' /proc/self/status
		for ns in user pid net mount ipc uts cgroup; do unshare -U --$ns true 2>/dev/null && echo "$ns yes"; done
		unshare -Ur sh -c 'grep -c . /proc/self/uid_map; mount -t tmpfs tmpfs /tmp' 2>/dev/null && echo "mount yes"
		unshare -Ur setpriv --reuid 1 true 2>/dev/null && echo "another user"; true`
	out := mustOutput(t, r.browser(t, "alice", "--", "sh", "-c", script))
	if got := string(out); got != "maus\ngroups 1\nuser yes\npid yes\nnet yes\n1\n" {
		t.Errorf("a browser's box: %s", got)
	}
	out, err := r.box(t, "alice", "--", "sh", "-c", "unshare -U true 2>/dev/null && echo nested; true").CombinedOutput()
	if err != nil || strings.Contains(string(out), "nested") { // control: an engine's has none
		t.Errorf("an engine's box: %v %s", err, out)
	}
	if out, err := r.as(t, "", rig.Programs(t)+"/botbox", "browser", "--", "true").CombinedOutput(); err == nil || !strings.Contains(string(out), "reason: bot-users-refused") || !strings.Contains(string(out), "hint: name it with --bot") {
		t.Errorf("a browser of no bot's: %v %s", err, out)
	}
}

// A profile is let in when it is the bot's own user's, and is refused by name
// before.
func TestABotsBrowserProfile(t *testing.T) {
	r, data := dataWorld(t)
	profile := data + "/browser-profiles/alice"
	rig.Write(t, profile+"/Cookies", "old\n")
	rig.Give(t, data+"/browser-profiles")
	rig.Give(t, profile)
	use := func(bot string) ([]byte, error) {
		return r.browser(t, bot, "--profile", profile, "--", "sh", "-c", `cat "$1/Cookies" && echo new >"$1/Cookies" && stat -c %U "$1/Cookies"`, "sh", profile).CombinedOutput()
	}
	refused := func(bot string) {
		t.Helper()
		if out, err := use(bot); err == nil || !strings.Contains(string(out), "reason: bot-user-path") || !strings.Contains(string(out), "hint: give the bot its workspace: botbox bot adopt BOT") {
			t.Errorf("a profile that is not %s's: %v %s", bot, err, out)
		}
	}
	refused("alice")
	if out, err := r.bot(t, "adopt", "alice", profile); err != nil {
		t.Fatalf("adopt: %v %s", err, out)
	}
	if out, err := use("alice"); err != nil || string(out) != "old\nmaus\n" || read(profile+"/Cookies") != "new\n" {
		t.Errorf("its own profile: %v %s", err, out)
	}
	refused("bob")
	if uid := ownerOf(t, profile+"/Cookies"); uid != "300000" {
		t.Errorf("it belongs to %s", uid)
	}
}

// A real Chromium: every process of it is the bot's user's, those in Chrome's
// own sandbox, too; and it outlives the worker, with its debugging port.
func TestChromiumIsItsBotsUser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		rig.Missing(t, "there is no chromium (testbed/setup.sh test installs it)")
	}
	f := &fleet{running: ownUsersWorld(t, true)}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	cmd := f.browser(t, "alice", "--debug-port", "--stay", "--", chromium, "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--remote-debugging-port="+port, "data:text/html,hello")
	said := &output{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	drive := func() {
		t.Helper()
		text := ""
		for end := time.Now().Add(30 * time.Second); !strings.Contains(text, `"Browser"`); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the debugging port says %q; the browser %s", text, said)
			}
			if res, err := http.Get("http://127.0.0.1:" + port + "/json/version"); err == nil {
				b, _ := io.ReadAll(res.Body)
				res.Body.Close()
				text = string(b)
			}
		}
	}
	drive()
	bwrap := bwrapOf(t, cmd.Process.Pid)
	spaces, all := map[string]bool{}, descendants(bwrap)
	for _, pid := range all {
		status := read(fmt.Sprintf("/proc/%d/status", pid))
		ids := strings.Fields(section(status, "Uid:") + section(status, "Gid:") + section(status, "Groups:"))
		for _, id := range ids {
			if id != ownUser(0) {
				t.Errorf("%s has the ids %v", strings.TrimSpace(section(status, "Name:")), ids)
				break
			}
		}
		if space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid)); err == nil {
			spaces[space] = true
		}
	}
	if len(all) < 4 || len(spaces) < 2 { // control: it has renderers, and a sandbox around them
		t.Errorf("%d processes in %d user namespaces", len(all), len(spaces))
	}
	worker := f.workerPid(t)
	f.awaitSettled(t, worker)
	send(t, worker, syscall.SIGKILL)
	f.await(t, "its end", func() bool { return read(fmt.Sprintf("/proc/%d/cmdline", worker)) == "" })
	f.awaitSettled(t, f.workerPid(t))
	drive()
	for _, name := range f.open(t) {
		id, _, _ := strings.Cut(name, " ")
		if out, err := f.as(t, "", rig.Programs(t)+"/botbox", "kill", id).CombinedOutput(); err != nil {
			t.Errorf("kill: %v %s", err, out)
		}
	}
	f.await(t, "nothing is left of it", func() bool { return f.running.running(ownUser(0)) == 0 })
}
