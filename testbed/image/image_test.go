package image

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// TestImage: what is in it, and what it declares.
func TestImage(t *testing.T) {
	b := ready(t)
	var config []struct {
		Size   int64
		Config struct {
			Env, Entrypoint, Cmd []string
			Labels               map[string]string
		}
	}
	if err := json.Unmarshal([]byte(b.must(t, b.podman("image", "inspect", tag))), &config); err != nil || len(config) != 1 {
		t.Fatal(err)
	}
	c := config[0].Config
	// A connector gives these two to an image that says so, and to no other.
	if got := c.Labels["org.openmausbot.botbox.gives-up"]; got != "SYS_ADMIN SETPCAP" {
		t.Errorf("the label says %q", got)
	}
	if !slices.Contains(c.Env, "OMB_BOT_BOX=1") || len(c.Cmd) != 0 || !slices.Equal(c.Entrypoint, []string{"/usr/libexec/botbox/botbox-supervisor"}) {
		t.Errorf("it starts %q %q with %q", c.Entrypoint, c.Cmd, c.Env)
	}
	// The same programs as `make build`'s, byte for byte.
	want := ""
	for _, name := range []string{"botbox", "botbox-supervisor", "boxentry", "boxprobe"} {
		program, err := os.ReadFile(filepath.Join(rig.Programs(t), name))
		if err != nil {
			t.Fatal(err)
		}
		want += fmt.Sprintf("%x  /usr/libexec/botbox/%s\n", sha256.Sum256(program), name)
	}
	got := b.run(t, "", []string{"--entrypoint", "/bin/sh"}, "-c", "sha256sum /usr/libexec/botbox/*")
	if got.Stdout != want {
		t.Errorf("the programs are\n%s%s, not\n%s", got.Stdout, got.Stderr, want)
	}
}

// TestFigures: what the build prints, what the README says and what is promised.
// A time is the machine's, which may be busy: a factor of five either way.
func TestFigures(t *testing.T) {
	b := ready(t)
	podman := b.podman().Args
	out := b.must(t, b.command("sh", append([]string{"figures.sh", strings.Join(podman, " "), tag}, always...)...))
	t.Log(out)
	m := regexp.MustCompile(`image is (\d+) MB, the first box stands after (\d+) ms, supervisor and worker hold ([\d.]+) MB at rest$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("figures.sh said %q", out)
	}
	for i, row := range []struct {
		sentence   string
		most, give float64
	}{{`image is (\d+) MB`, 120, 1.2}, {`runs some (\d+) ms after`, 150, 5}, {`hold (\d+) MB at rest`, 25, 1.2}} {
		measured, err := strconv.ParseFloat(m[i+1], 64)
		if err != nil || measured > row.most {
			t.Errorf("%s: the promise is %v", m[0], row.most)
		}
		promised(t, row.sentence, measured, row.give)
	}
}

// promised wants the README to give a figure as it was measured, but for a
// factor.
func promised(t *testing.T, sentence string, measured, give float64) {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(rig.Root(), "README.md"))
	m := regexp.MustCompile(sentence).FindStringSubmatch(strings.ReplaceAll(string(readme), "\n", " "))
	if err != nil || m == nil {
		t.Fatalf("README.md does not say %q: %v", sentence, err)
	}
	if says, _ := strconv.ParseFloat(m[1], 64); measured < says/give || measured > says*give {
		t.Errorf("README.md says %q, and it is %.1f", m[0], measured)
	}
}

// TestReadme: the README's lines have the flags that are tried here.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(rig.Root(), "README.md"))
	text := strings.ReplaceAll(string(readme), " \\\n        ", " ")
	for _, line := range []string{"podman run --rm -it " + strings.Join(working, " "), "docker run --rm -it " + strings.Join(dockerWorking, " ")} {
		if line += " -e ANTHROPIC_API_KEY botbox claude\n"; err != nil || !strings.Contains(text, line) {
			t.Errorf("not in README.md: %s", line)
		}
	}
}

// TestAudit: what must not be shipped is not built.
func TestAudit(t *testing.T) {
	b := ready(t)
	text, err := os.ReadFile(filepath.Join(rig.Root(), "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	before, after, ok := strings.Cut(string(text), "\n# Audit: ")
	if !ok {
		t.Fatal("the Dockerfile has no audit")
	}
	for _, c := range []struct{ what, step, want string }{
		{"as it is", "true", ""},
		{"writable by a group", "chmod g+w /usr/libexec/botbox/boxentry", "/usr/libexec/botbox/boxentry"},
		{"writable by all", "install -m 666 /dev/null /etc/open", "/etc/open"},
		{"somebody else's", "install -o maus /dev/null /usr/bin/theirs", "/usr/bin/theirs"},
		{"a program that can be read", "chmod 755 /usr/libexec/botbox/botbox", "can be read"},
		{"no bubblewrap", "rm /usr/bin/bwrap", "no-bwrap"},
		{"a setuid bubblewrap", "chmod u+s /usr/bin/bwrap", "bwrap-setuid"},
		{"a program of another build", `printf '#!/bin/sh\necho botbox-supervisor other\n' >/usr/libexec/botbox/botbox-supervisor`, "two builds"},
	} {
		file := filepath.Join(t.TempDir(), "Dockerfile")
		if err := os.WriteFile(file, []byte(before+"\nRUN "+c.step+"\n# Audit: "+after), 0o644); err != nil {
			t.Fatal(err)
		}
		said, err := b.build("localhost/botbox:audit", file, rig.Root()).CombinedOutput()
		if (err == nil) != (c.want == "") || !strings.Contains(string(said), c.want) {
			t.Errorf("%s: %v\n%s", c.what, err, said)
		}
	}
}

// TestFlags: with each set of flags there is a box, or a refusal that says
// which flag brings it; and hidepid is done, or the log says that it is not.
func TestFlags(t *testing.T) {
	b := ready(t)
	const (
		masked = "hint: start the container with --security-opt systempaths=unconfined (podman: unmask=ALL; Kubernetes: procMount: Unmasked)\nreason: proc-masked\n"
		seen   = "step hidepid refused"
		// Every capability that the supervisor starts with a use for.
		least   = "--security-opt unmask=ALL --cap-drop ALL --cap-add SYS_ADMIN,SETPCAP,SETUID,SETGID,KILL,CHOWN,FOWNER"
		lacking = ")\nhint: remove it, choose another place in the setting that is named, or give the capability that is named\nreason: not-yours\n"
	)
	for _, c := range []struct {
		flags   string
		hidepid bool // done, or not come to
		code    int
		refused string // the end of what is said; empty: there is a box
	}{
		{"", false, 125, masked},
		{"--cap-add SYS_ADMIN", true, 125, masked},
		{"--cap-add SYS_ADMIN --security-opt seccomp=unconfined", true, 125, masked},
		{"--security-opt unmask=ALL", false, 7, ""},
		{"--security-opt unmask=/proc/*", false, 7, ""},
		{"--cap-add SYS_ADMIN --security-opt unmask=ALL", true, 7, ""},
		{"--cap-add SYS_ADMIN --security-opt unmask=ALL --security-opt no-new-privileges", true, 7, ""},
		{"--privileged", true, 7, ""},
		{"--security-opt systempaths=unconfined --cap-add SYS_ADMIN", true, 7, ""},
		{least, true, 7, ""},
		{strings.Replace(least, ",FOWNER", "", 1), true, 100, "(it takes CAP_FOWNER" + lacking},
		{strings.Replace(least, ",CHOWN", "", 1), true, 100, "(it takes CAP_CHOWN" + lacking},
		{strings.Replace(least, ",SETPCAP", "", 1), true, 100, "reason: not-dropped\n"},
		{strings.Replace(least, "SYS_ADMIN,", "", 1), false, 7, ""},
		{"--user maus", true, 100, "hint: start it as root, or use botbox run, which needs no root\nreason: not-root\n"},
	} {
		t.Run(cmp.Or(c.flags, "none"), func(t *testing.T) {
			got := b.run(t, "", strings.Fields(c.flags), "sh", "-c", "id -un; exit 7")
			switch {
			case c.refused == "" && (got.Code != c.code || got.Stdout != "maus\n"):
				t.Errorf("no box: %d %q\n%s", got.Code, got.Stdout, got.Stderr)
			case c.refused != "" && (got.Code != c.code || got.Stdout != "" || !strings.Contains(got.Stderr, c.refused)):
				t.Errorf("not refused as it should be: %d %q\n%s", got.Code, got.Stdout, got.Stderr)
			}
			if strings.Contains(got.Stderr, seen) == c.hidepid {
				t.Errorf("hidepid is to be done: %t; it said\n%s", c.hidepid, got.Stderr)
			}
		})
	}
}

// TestCommand: a command is a box with the container's stdio and status.
func TestCommand(t *testing.T) {
	b := ready(t)
	const key = "sk-ant-canary-2b71"
	for _, c := range []struct {
		what, flags, stdin string
		script             string
		code               int
		stdout             string
	}{
		{"status", "", "", "exit 41", 41, ""},
		{"signal", "", "", "kill -KILL $$", 137, ""},
		{"stdin", "", "hello\n", "cat", 0, "hello\n"},
		{"in a box", "", "", "echo $BOTBOX; tr '\\0' ' ' </proc/1/cmdline | cut -c1-14", 0, "1\n/usr/bin/bwrap\n"},
		{"--init", "--init", "", "echo here", 0, "here\n"},
		{"read-only", "--read-only --tmpfs /run --tmpfs /tmp --tmpfs /var/lib/botbox", "", "echo here", 0, "here\n"},
		{"no key", "--env ANTHROPIC_API_KEY=" + key, "", `echo "$ANTHROPIC_API_KEY" | cut -c1-7; grep -laz ` + key + ` /proc/[0-9]*/environ | wc -l; env | grep -c ` + key, 1, "omb_t0_\n0\n0\n"},
		{"no network", "", "", "ls /sys/class/net 2>/dev/null; cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '", 0, "lo\n"},
		{"the work folder can be written", "", "", "echo here >file && cat file && pwd", 0, "here\n/workspace\n"},
	} {
		got := b.run(t, c.stdin, append(strings.Fields(c.flags), working...), "sh", "-c", c.script)
		if got.Code != c.code || got.Stdout != c.stdout {
			t.Errorf("%s: %d %q\n%s", c.what, got.Code, got.Stdout, got.Stderr)
		}
	}
}

// listed reads one list of compose.yaml, written in either way.
func listed(compose, name string) (items []string) {
	_, rest, ok := strings.Cut(compose, "\n    "+name+":")
	if !ok {
		return nil
	}
	line, rest, _ := strings.Cut(rest, "\n")
	if line = strings.TrimSpace(line); strings.HasPrefix(line, "[") {
		return strings.Split(strings.Trim(line, "[]"), ", ")
	}
	for line := range strings.Lines(rest) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
		if item, ok := strings.CutPrefix(line, "- "); ok {
			items = append(items, item)
		} else if !strings.HasPrefix(line, "#") {
			break
		}
	}
	return items
}

// TestCompose: with what compose.yaml says there is a box, and its volumes keep
// what is written in a root that nobody can write.
func TestCompose(t *testing.T) {
	b := ready(t)
	text, err := os.ReadFile(filepath.Join(rig.Root(), "init/compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	compose := string(text)
	var flags []string
	for name, flag := range map[string]string{"cap_add": "--cap-add", "security_opt": "--security-opt", "tmpfs": "--tmpfs", "volumes": "--volume"} {
		items := listed(compose, name)
		if len(items) == 0 {
			t.Fatalf("compose.yaml has no %s", name)
		}
		for _, item := range items {
			// Docker takes the path from the file's own folder.
			item = strings.Replace(item, "seccomp=", "seccomp="+filepath.Join(rig.Root(), "init")+"/", 1)
			flags = append(flags, flag, item)
		}
	}
	if strings.Contains(compose, "\n    read_only: true\n") {
		flags = append(append(flags, "--read-only"), noTmpfs...)
	}
	for _, want := range []string{"first\n", "first\nsecond\n"} { // two containers, one after the other
		word := strings.Fields(want)
		got := b.run(t, "", flags, "sh", "-c", "echo "+word[len(word)-1]+" >>/workspace/file && cat /workspace/file")
		if got.Code != 0 || got.Stdout != want || strings.Contains(got.Stderr, "refused") {
			t.Errorf("%v: %+v", flags, got)
		}
	}
	if got := b.exec(b.start(t, flags), "botbox", "check"); !passed(got.Stdout) {
		t.Errorf("the self-check does not pass with what compose.yaml says: %+v", got)
	}
	if got := b.run(t, "", append([]string{"--entrypoint", "/bin/sh"}, flags...), "-c", "echo >/usr/bin/new"); !strings.Contains(got.Stderr, "Read-only file system") {
		t.Errorf("root writes the image's folders: %+v", got)
	}
}

// TestTerminal: with --tty the box has the container's terminal.
func TestTerminal(t *testing.T) {
	b := ready(t)
	if _, err := exec.LookPath("script"); err != nil {
		rig.Missing(t, "no script: %v", err)
	}
	words := b.podman(append(append([]string{"run", "--rm", "--tty", "--interactive"}, append(always, working...)...), tag, "sh", "-c", "'test -t 0 && test -t 1 && echo a-terminal; exit 3'")...)
	cmd := b.command("script", "-qec", strings.Join(words.Args, " "), "/dev/null")
	out, err := cmd.CombinedOutput()
	if rig.Code(err) != 3 || !strings.Contains(string(out), "a-terminal") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestStop: TERM lets the command end, inside the time that `stop` gives.
func TestStop(t *testing.T) {
	b := ready(t)
	id := b.start(t, working, "sh", "-c", `trap 'echo asked to end; exit 9' TERM; echo up; while :; do sleep 0.1; done`)
	b.said(t, id, "up", 1)
	pid := b.must(t, b.podman("inspect", "--format", "{{.State.Pid}}", id))
	if groups, err := os.ReadFile("/proc/" + pid + "/cgroup"); err != nil || !strings.Contains(string(groups), ":/libpod-"+id) {
		t.Errorf("its cgroups are not its own, and leave a folder: %s %v", groups, err)
	}
	begin := time.Now()
	b.must(t, b.podman("stop", "--time", "20", id))
	t.Logf("stopped in %v", time.Since(begin))
	said := b.must(t, b.podman("logs", id))
	if code := b.must(t, b.podman("inspect", "--format", "{{.State.ExitCode}}", id)); code != "9" || !strings.Contains(said, "asked to end") {
		t.Errorf("status %s\n%s", code, said)
	}
}

// TestServe: no command; boxes are asked for with exec, and the whole
// self-check passes in the container.
func TestServe(t *testing.T) {
	b := ready(t)
	t.Run("with SYS_ADMIN", func(t *testing.T) { b.serves(t, working, "done", 0) })
	t.Run("without", func(t *testing.T) { b.serves(t, []string{"--security-opt", "unmask=ALL"}, "refused", 1) })
}

func (b *bed) serves(t *testing.T, flags []string, hidepid string, warnings int) {
	const started = "event=worker-started"
	id := b.start(t, flags)
	b.said(t, id, started, 1)
	if checks := b.must(t, b.podman("exec", id, "botbox", "check")); !passed(checks) {
		t.Error(checks)
	}
	var report struct {
		Steps    []struct{ Name, State, Evidence string }
		Warnings []string
	}
	text := b.must(t, b.podman("exec", id, "botbox", "report", "--json"))
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, step := range report.Steps {
		states[step.Name] = step.State
	}
	if states["hidepid"] != hidepid || states["code-trust"] != "done" || states["drop"] != "done" || states["reexec"] != "done" {
		t.Errorf("steps %v", report.Steps)
	}
	// Without the capability a box has the container's name, and that is said.
	if len(report.Warnings) != warnings || warnings > 0 && !strings.Contains(report.Warnings[0], "--cap-add SYS_ADMIN") {
		t.Errorf("warnings %q", report.Warnings)
	}

	// The worker dies: another takes its place, and boxes come from that.
	kill := `for p in /proc/[0-9]*; do if tr '\0' ' ' <$p/cmdline 2>/dev/null | grep -qE '^[^ ]*botbox serve'; then kill -KILL "${p#/proc/}" && echo killed; fi; done`
	if out := b.must(t, b.podman("exec", id, "sh", "-c", kill)); out != "killed" {
		t.Fatalf("killed: %q", out)
	}
	b.said(t, id, started, 2)
	if out := b.must(t, b.podman("exec", id, "botbox", "run", "--", "id", "-un")); !strings.Contains("\n"+out+"\n", "\nmaus\n") { // podman may bring what was said before it behind it
		t.Error(out)
	}
	// The helper of an exec ends at once, and the box goes on.
	for _, exec := range [][]string{{"exec"}, {"exec", "--tty"}} {
		for range 4 {
			out := rig.Run(t, b.podman(append(exec, id, "botbox", "run", "--", "sh", "-c", "sleep 0.5; [ ! -t 0 ] || echo on a terminal; echo lives; exit 7")...))
			if out.Code != 7 || !strings.Contains(out.Stdout, "lives") || strings.Contains(out.Stdout, "on a terminal") != (len(exec) > 1) {
				t.Errorf("%v: %+v", exec, out)
			}
		}
	}
	b.must(t, b.podman("stop", "--time", "20", id))
	if code := b.must(t, b.podman("inspect", "--format", "{{.State.ExitCode}}", id)); code != "0" {
		t.Errorf("status %s", code)
	}
}

// TestEngine: a real engine is the container's command. Its model is a stand-in
// beside the supervisor that answers whoever has the key; the engine has none.
func TestEngine(t *testing.T) {
	b := ready(t)
	install := exec.Command("/bin/sh", filepath.Join(rig.Root(), "testbed/engines.sh"), "claude")
	install.Stderr = os.Stderr
	out, err := install.Output()
	if err != nil {
		rig.Missing(t, "engines.sh: %v", err)
	}
	program := strings.TrimSpace(string(out))
	top, inside, ok := strings.Cut(program, "/node_modules/")
	if !ok {
		t.Fatalf("the engine is at %s", program)
	}
	standin := filepath.Join(b.dir, "standin")
	if err := rig.Compile(standin, "./testbed/standin", rig.Build); err != nil {
		t.Fatal(err)
	}
	const key = "sk-ant-canary-77e0"
	flags := append([]string{"--entrypoint", "/bin/sh", "--volume", top + ":/opt/claude:ro", "--volume", standin + ":/opt/standin:ro",
		"--env", "ANTHROPIC_API_KEY=" + key, "--env", "ANTHROPIC_BASE_URL=http://127.0.0.1:9000"}, working...)
	turn := func(expected string) rig.Output {
		return b.run(t, "", flags, "-c", "/opt/standin --listen 127.0.0.1:9000 --ready-file /tmp/ready --key "+expected+" --reply 'Hello from the stand-in.' & "+
			"until [ -e /tmp/ready ]; do sleep 0.1; done; exec /usr/libexec/botbox/botbox-supervisor -- /opt/claude/node_modules/"+inside+" -p hi")
	}
	if got := turn(key); got.Code != 0 || got.Stdout != "Hello from the stand-in.\n" {
		t.Errorf("%+v", got)
	}
	if got := turn("another"); got.Code == 0 || strings.Contains(got.Stdout, "Hello") {
		t.Errorf("a model that wants another key answered: %+v", got)
	}
}
