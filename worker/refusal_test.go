package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/worker/internal/box"

	"github.com/openmausbot/botbox/testbed/rig"
)

// A machine without a layer gets no box, and the layer's name.
func TestWhyThereIsNoBox(t *testing.T) {
	p := newPlace(t)
	fake := func(script string) string {
		dir, err := os.MkdirTemp(p.top, "bin")
		if err != nil {
			t.Fatal(err)
		}
		os.Chmod(dir, 0o755)
		rig.Write(t, filepath.Join(dir, "bwrap"), "#!/bin/sh\n"+script+"\n")
		rig.Give(t, dir)
		return dir
	}
	setuid := fake("exit 1")
	if err := os.Chmod(filepath.Join(setuid, "bwrap"), 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	open := fake("exit 1")
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	help := `case $1 in --version) echo "bubblewrap 0.11.0"; exit;; --help) /usr/bin/bwrap --help; exit;; esac; `
	for name, c := range map[string]struct{ path, code string }{
		"no bwrap":         {p.work, "no-bwrap"},
		"setuid":           {setuid, "bwrap-setuid"},
		"writable":         {open, "bwrap-unsafe"},
		"old":              {fake(`echo "bubblewrap 0.6.1" >&2; [ "$1" = --version ]`), "bwrap-too-old"},
		"no --bind-fd":     {fake(`case $1 in --version) echo "bubblewrap 0.8.0" >&2;; *) echo "--args FD" >&2; exit 1;; esac`), "bwrap-too-old"},
		"hangs":            {fake(help + "exec sleep 60"), "probe-timeout"},
		"no userns":        {fake(help + "exit 1"), "userns-refused"},
		"no proc":          {fake(help + `case "$*" in *--proc*) exit 1;; esac`), "proc-masked"},
		"no net":           {fake(help + `case "$*" in *--unshare-net*) exit 1;; esac`), "net-refused"},
		"says nothing":     {fake("exit 0"), "bwrap-too-old"},
		"relative in PATH": {".", "no-bwrap"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := []string{"PATH=" + c.path}
			detect := rig.Run(t, p.botbox(env, "detect"))
			if detect.Code != 125 || !strings.Contains(detect.Stdout, "reason: "+c.code) {
				t.Errorf("detect: %+v, want %s", detect, c.code)
			}
			run := rig.Run(t, p.botbox(env, "run", "--standalone", "--", "sh", "-c", "echo ran"))
			if run.Code != 125 || run.Stdout != "" || !strings.Contains(run.Stderr, "reason: "+c.code+"\n") || !strings.Contains(run.Stderr, "hint: ") {
				t.Errorf("run: %+v, want %s", run, c.code)
			}
		})
	}
}

func TestDetectKeepsTheSeedsRule(t *testing.T) {
	p := newPlace(t)
	for _, c := range []struct {
		env         []string
		box, reason string
	}{
		{nil, "off", "not-cloud"},
		{[]string{"OMB_BOT_BOX=1"}, "bwrap", ""},
		{[]string{"OMB_BOT_BOX=0"}, "off", "switched-off"},
		{[]string{"OMB_CLOUD_ROLE=home"}, "bwrap", ""},
		{[]string{"OMB_CLOUD_ROLE=team"}, "bwrap", ""},
		{[]string{"OMB_CLOUD_ROLE=team", "OMB_BOT_BOX=0"}, "off", "switched-off"},
		{[]string{"OMB_BOT_BOX=1", "PATH=/nonexistent"}, "off", "no-bwrap"},
	} {
		out := rig.Run(t, p.botbox(c.env, "detect", "--json"))
		var d struct {
			Box    string
			Reason *string
		}
		if err := json.Unmarshal([]byte(out.Stdout), &d); err != nil {
			t.Fatalf("%v: %v in %+v", c.env, err, out)
		}
		got := ""
		if d.Reason != nil {
			got = *d.Reason
		}
		if d.Box != c.box || got != c.reason {
			t.Errorf("%v: %s %q, want %s %q", c.env, d.Box, got, c.box, c.reason)
		}
	}
	// Switched off, a command is refused and never run without a box.
	out := rig.Run(t, p.botbox([]string{"OMB_BOT_BOX=0"}, "run", "--", "sh", "-c", "echo ran"))
	if out.Code != 125 || out.Stdout != "" || !strings.Contains(out.Stderr, "reason: switched-off") {
		t.Errorf("%+v", out)
	}
}

func TestBadSettingsNameTheVariableNotTheValue(t *testing.T) {
	p := newPlace(t)
	for name, value := range map[string]string{
		"OMB_BOT_BOX": "canary", "OMB_PORT": "canary", "OMB_CLOUD_ROLE": "canary", "OMB_RUN_DIR": "canary", "OMB_EGRESS_ALLOW": "*canary*",
		"OMB_EGRESS_PORTS": "canary", "OMB_EGRESS_EXCEPT": "canary", "OMB_DRAIN_SECONDS": "canary", "OMB_LOG": "canary",
		"OMB_BOX_CANARY": "canary", "OMB_EGRESS_DENY": "canary", "OMB_BOT_USERS": "canary", "OMB_VSOCK_PORT": "canary",
	} {
		out := rig.Run(t, p.botbox([]string{name + "=" + value}, "run", "--", "true"))
		if out.Code != 100 || !strings.Contains(out.Stderr, name) || !strings.Contains(out.Stderr, "reason: bad-setting") || strings.Contains(out.Stderr, "canary") {
			t.Errorf("%s: %+v", name, out)
		}
	}
	// A port that needs a capability, and numbers that are none.
	for _, value := range []string{"1", "1023", "4294967295", "4294967296", "-1", "5005 ", "1e4"} {
		out := rig.Run(t, p.botbox([]string{"OMB_VSOCK_PORT=" + value}, "run", "--", "true"))
		if out.Code != 100 || !strings.Contains(out.Stderr, "OMB_VSOCK_PORT") || !strings.Contains(out.Stderr, "reason: bad-setting") {
			t.Errorf("OMB_VSOCK_PORT=%s: %+v", value, out)
		}
	}
}

// Docker masks parts of /proc; a box must not fall back to the outer one.
func TestMaskedProc(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, to mask /proc in a namespace of its own")
	}
	p := newPlace(t)
	botbox := p.botbox(nil)
	script := `mount --make-rprivate / && mount -t tmpfs tmpfs /proc/sys/fs && cd ` + p.work + ` &&
		exec setpriv --reuid maus --regid maus --clear-groups ` + botbox.Path + ` run --standalone -- echo ran`
	cmd := exec.Command("unshare", "-pfm", "--mount-proc", "--kill-child", "sh", "-c", script)
	cmd.Env = p.env
	out := rig.Run(t, cmd)
	if out.Code != 125 || out.Stdout != "" || !strings.Contains(out.Stderr, "reason: proc-masked") || !strings.Contains(out.Stderr, "systempaths=unconfined") {
		t.Errorf("%+v", out)
	}
	cmd = exec.Command("unshare", "-pfm", "--mount-proc", "--kill-child", "sh", "-c", strings.Replace(script, "&& mount -t tmpfs tmpfs /proc/sys/fs", "", 1))
	cmd.Env = p.env
	if out := rig.Run(t, cmd); out.Code != 0 || out.Stdout != "ran\n" {
		t.Errorf("positive control, nothing masked: %+v", out)
	}
}

// Called by root a box is an ordinary user's.
func TestRootBecomesAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, to give it up")
	}
	p := newPlace(t)
	cmd := p.botbox(nil, "run", "--standalone", "--", "sh", "-c", "id -u; id -G; grep CapBnd /proc/self/status")
	cmd.SysProcAttr.Credential = nil
	out := rig.Run(t, cmd)
	u := rig.Account(t)
	if out.Code != 0 || out.Stdout != u.Uid+"\n"+u.Gid+"\nCapBnd:\t0000000000000000\n" || !strings.Contains(out.Stderr, "runs as maus") {
		t.Errorf("%+v", out)
	}
	rig.Write(t, filepath.Join(p.top, "rooted"), "")
	closed := filepath.Join(p.top, "closed")
	if err := os.Mkdir(closed, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd = p.botbox(nil, "run", "--standalone", "--cwd", closed, "--", "true")
	cmd.SysProcAttr.Credential = nil
	if out := rig.Run(t, cmd); out.Code != 100 || !strings.Contains(out.Stderr, "reason: work-folder") || !strings.Contains(out.Stderr, closed) {
		t.Errorf("a work folder that maus cannot write: %+v", out)
	}
}

// A checkout in /root is closed to maus; root's boxes and self-check work all
// the same, in a work folder that maus can reach.
func TestProgramsInAFolderThatIsClosedToTheUser(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, which has a folder that is closed to others")
	}
	p := newPlace(t)
	closed := t.TempDir()
	for _, name := range []string{"botbox", "boxentry", "boxprobe"} {
		b, err := os.ReadFile(filepath.Join(p.bin, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(closed, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	asRoot := func(args ...string) rig.Output {
		cmd := p.botbox(nil, args...)
		cmd.SysProcAttr.Credential = nil
		cmd.Path = filepath.Join(closed, "botbox")
		return rig.Run(t, cmd)
	}
	if out := asRoot("run", "--standalone", "--", "id", "-un"); out.Code != 0 || out.Stdout != "maus\n" {
		t.Errorf("run: %+v", out)
	}
	if out := asRoot("detect"); out.Code != 0 {
		t.Errorf("detect: %+v", out)
	}
	if out := asRoot("check"); out.Code != 0 || !strings.Contains(out.Stdout, "29/29") {
		t.Errorf("check: %+v", out)
	}
}

// Programs of another build are refused before the engine runs.
func TestVersionSkew(t *testing.T) {
	p := newPlace(t)
	other := filepath.Join(p.top, "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, pkg := range map[string]string{"botbox": "./worker", "boxentry": "./boxprobe/boxentry"} {
		if err := rig.Compile(filepath.Join(other, name), pkg, "another-"+name); err != nil {
			t.Fatal(err)
		}
	}
	cmd := p.botbox(nil, "run", "--standalone", "--", "echo", "ran")
	cmd.Path = filepath.Join(other, "botbox")
	if out := rig.Run(t, cmd); out.Code != 100 || out.Stdout != "" || !strings.Contains(out.Stderr, "reason: version-skew") {
		t.Errorf("boxentry of another build: %+v", out)
	}
	p.serve()
	cmd = p.botbox(nil, "run", "--", "echo", "ran")
	cmd.Path = filepath.Join(other, "botbox")
	if out := rig.Run(t, cmd); out.Code != 100 || out.Stdout != "" || !strings.Contains(out.Stderr, "reason: version-skew") {
		t.Errorf("a worker of another build: %+v", out)
	}
}

// lease speaks to lease.sock as a driver does, with one packet.
func (p *place) lease(packet []byte, files ...int) map[string]any {
	p.t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(p.run, "lease.sock"), Net: "unixpacket"})
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	if _, _, err := conn.WriteMsgUnix(packet, rights, nil); err != nil {
		p.t.Fatal(err)
	}
	answer, oob := make([]byte, 1<<20), make([]byte, 4096)
	n, noob, _, _, err := conn.ReadMsgUnix(answer, oob)
	if err != nil {
		p.t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(answer[:n], &m); err != nil {
		p.t.Fatalf("%v: %s", err, answer[:n])
	}
	p.leased = nil
	messages, _ := unix.ParseSocketControlMessage(oob[:noob])
	for _, message := range messages {
		fds, _ := unix.ParseUnixRights(&message)
		p.leased = append(p.leased, fds...)
	}
	p.t.Cleanup(func() {
		for _, fd := range p.leased {
			unix.Close(fd)
		}
	})
	return m
}

// A lease holder need not become a box. Whatever it sends instead of boxentry's
// donation, its own box is refused and nobody else notices.
func TestAHostileLeaseHolder(t *testing.T) {
	p := newPlace(t)
	p.serve()
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	file, err := stranger.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	other := int(file.Fd())
	donation := func(build string, listeners int) string {
		return wire.Donation{Build: build, Listeners: listeners, Landlock: box.Landlock()}.String()
	}
	eight := []int{other, other, other, other, other, other, other, other}
	for name, c := range map[string]struct {
		packet string
		files  []int
	}{
		"junk":              {"hello", nil},
		"nothing":           {"", nil},
		"no listener":       {donation("rig", 0), nil},
		"too few":           {donation("rig", 3), eight[:1]},
		"too many":          {donation("rig", 8), eight},
		"of another port":   {donation("rig", 3), eight[:3]},
		"no listeners":      {donation("rig", 3), []int{0, 0, 0}},
		"an unasked spare":  {wire.Donation{Build: "rig", Listeners: 3, Spares: 1, Landlock: box.Landlock()}.String(), eight[:4]},
		"of another build":  {donation("other", 3), eight[:3]},
		"a packet too long": {strings.Repeat("x", 4096), nil},
	} {
		m := p.lease([]byte(`{"argv":["true"],"cwd":"` + p.work + `"}`))
		argv, _ := m["argv"].([]any)
		socket := -1
		for _, word := range argv {
			fmt.Sscanf(word.(string), "socket=%d", &socket)
		}
		if socket < 16 || socket-16 >= len(p.leased) {
			t.Fatalf("%s: no kit in %v", name, m)
		}
		if err := unix.Sendmsg(p.leased[socket-16], []byte(c.packet), rightsOf(c.files), nil, 0); err != nil {
			t.Fatal(err)
		}
		for _, fd := range p.leased {
			unix.Close(fd)
		}
		p.leased = nil
	}
	if out := rig.Run(t, p.botbox(nil, "run", "--", "echo", "ran")); out.Stdout != "ran\n" {
		t.Errorf("another box: %+v", out)
	}
	rig.Eventually(t, 5*time.Second, "only one box was ever let go", func() bool {
		report := rig.Run(t, p.botbox(nil, "report", "--json")).Stdout
		return strings.Contains(report, `"boxed":1,"refused":10`)
	})
}

func rightsOf(files []int) []byte {
	if len(files) == 0 {
		return nil
	}
	return unix.UnixRights(files...)
}

func TestMalformedSpecsOverTheSocket(t *testing.T) {
	p := newPlace(t)
	p.serve()
	plain, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	good := `"argv":["true"],"cwd":"` + p.work + `"`
	for name, c := range map[string]struct{ packet, code string }{
		"not JSON":          {"hello", "bad_spec"},
		"unknown field":     {`{` + good + `,"colour":"red"}`, "bad_spec"},
		"other case":        {`{` + good + `,"CWD":"/"}`, "bad_spec"},
		"doubled field":     {`{` + good + `,"cwd":"/tmp"}`, "bad_spec"},
		"two values":        {`{` + good + `}{}`, "bad_spec"},
		"no argv":           {`{"argv":[],"cwd":"` + p.work + `"}`, "bad_spec"},
		"relative path":     {`{"argv":["true"],"cwd":"x"}`, "bad_spec"},
		"dots":              {`{"argv":["true"],"cwd":"/tmp/../etc"}`, "bad_spec"},
		"of another kind":   {`{"argv":"true","cwd":"/tmp"}`, "bad_spec"},
		"NUL":               {`{"argv":["a\u0000b"],"cwd":"` + p.work + `"}`, "bad_spec"},
		"version 2":         {`{` + good + `,"v":2}`, "bad_spec"},
		"not in this build": {`{` + good + `,"kind":"browser","browser":{"launcher":true}}`, "bad_spec"},
		"no MCP address":    {`{` + good + `,"broker":{"mcp":[{"name":"n","url":"ftp://example.com/"}]}}`, "bad_spec"},
		"host's network":    {`{` + good + `,"net":{"mode":"shared"}}`, "bad_spec"},
		"unboxed":           {`{` + good + `,"on_unavailable":"run-unboxed"}`, "bad_spec"},
		"Local VM":          {`{` + good + `,"local_vm":true}`, "local_vm_refused"},
		"data folder":       {`{"argv":["true"],"cwd":"` + p.home + `/.openmausbot"}`, "path_refused"},
		"no such file":      {`{` + good + `,"paths":{"argv_files":["/tmp/no-such-file-x"]}}`, "argv_file_missing"},
		"unknown secret":    {`{` + good + `,"env":{"ANTHROPIC_API_KEY":{"secret":"ref:../x"}}}`, "bad_spec"},
		"nested deeply":     {strings.Repeat(`{"env":`, 50) + strings.Repeat("}", 50), "bad_spec"},
		"bad harness":       {`{` + good + `,"net":{"harness":{"upstream":"http://x"}}}`, "bad_spec"},
	} {
		m := p.lease([]byte(c.packet))
		fault, _ := m["error"].(map[string]any)
		if fault["code"] != c.code || fault["hint"] == "" || fault["message"] == "" {
			t.Errorf("%s: %v, want %s", name, m, c.code)
		}
	}
	if m := p.lease([]byte("spec"), int(plain.Fd())); m["error"].(map[string]any)["code"] != "bad_spec" {
		t.Errorf("a spec in a plain file: %v", m)
	}
	if m := p.lease([]byte("spec"), int(plain.Fd()), int(plain.Fd())); m["error"].(map[string]any)["code"] != "bad_spec" {
		t.Errorf("two files: %v", m)
	}
	// Positive control: a plain spec gets a kit, and nobody else noticed.
	if m := p.lease([]byte(`{` + good + `}`)); m["error"] != nil || m["answer"] == nil {
		t.Errorf("a plain spec: %v", m)
	}
	if out := rig.Run(t, p.botbox(nil, "run", "--", "echo", "ran")); out.Stdout != "ran\n" {
		t.Errorf("another box: %+v", out)
	}
}
