package main

import (
	"encoding/hex"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/openmausbot/botbox/boxprobe/internal/landlock"
	"github.com/openmausbot/botbox/testbed/rig"
)

const (
	testKey   = "sk-test-0123456789abcdef"
	testToken = "omb_t0_abcdefghijklmnopqrstuvwxyz"
	ourBot    = "workspaces/ours"
)

// outside is the fixture with what stands behind it.
type outside struct {
	Fixture
	root   string // all of its folders
	canary *exec.Cmd
}

// layOut makes the fixture, owned by the user of the box.
func layOut(t *testing.T) *outside {
	t.Helper()
	root := openDir(t)
	at := func(name string) string { return filepath.Join(root, name) }
	o := &outside{root: root, Fixture: Fixture{
		Marker: "marker-8d1f0c", DataDir: at("data"), Database: at("data/messages.db"), Config: at("data/config.json"),
		Login: at("data/sessions.json"), ServerSocket: at("data/perm.sock"), OtherBotFile: at("data/workspaces/other/MEMORY.md"),
		OtherToken: at("data/hook-tokens/other/t.token"), PutBacks: []string{"workspaces"},
		InternalRoute: "/api/internal/agents", OtherRoute: "/api/bots",
		EnvCloud: []string{"OMB_CLOUD_ROLE"}, EnvCredentials: []string{"BOX_TOKEN"}, EnvUnlisted: []string{"CANARY_NAME"},
		TmpFile: "/tmp/turn.canary", VarTmpFile: "/var/tmp/turn.canary", RunFile: "/run/turn.canary",
		ReadOnly: []string{"/usr", "/etc", at("code")}, Unbound: []string{at("home"), at("elsewhere")},
		WorkDir: at("work"), BotDir: at("data/" + ourBot),
		KeyName: "ANTHROPIC_API_KEY", BaseName: "ANTHROPIC_BASE_URL", Call: "/v1/models", Ungranted: "openai", UpstreamOK: "upstream says yes",
		Walled: "/walled", Landlock: landlock.Version(), Pids: 256, Nofile: 512, NoSessionKey: "this is a test",
		Namespaces: map[string]string{},
	}}
	for _, name := range []string{o.Database, o.Config, o.Login, o.OtherBotFile, o.OtherToken,
		at("shared/tmp/turn.canary"), at("shared/var/turn.canary"), at("shared/run/turn.canary")} {
		write(t, name, o.Marker)
	}
	for _, dir := range []string{"work", "code", "home", "elsewhere", "walled", "data/" + ourBot} {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o.split(testKey)
	o.listen(t)
	o.startCanary(t)
	o.giveTo(t, rig.Ordinary(t))
	return o
}

// split masks the key, as the fixture wants it.
func (o *outside) split(key string) {
	mask := []byte(strings.Repeat("\x5a\xc3", len(key)))[:len(key)]
	o.KeyA = hex.EncodeToString(mask)
	for i := range mask {
		mask[i] ^= key[i]
	}
	o.KeyB = hex.EncodeToString(mask)
}

// listen opens what must not be reached from the box.
func (o *outside) listen(t *testing.T) {
	t.Helper()
	open := func(network, address string) net.Addr {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go serve(l, func(string) string { return "200 OK" })
		return l.Addr()
	}
	o.LoopbackPort = open("tcp", "127.0.0.1:0").(*net.TCPAddr).Port
	o.HarnessPort = open("tcp", "127.0.0.1:0").(*net.TCPAddr).Port
	// An address of this machine that is not the one of N1.
	o.HostAddress = open("tcp", "127.0.0.2:0").String()
	open("unix", o.ServerSocket)
	o.EgressPort, o.BrokerPort = freePort(t), freePort(t)
	for _, address := range []string{"169.254.169.254", "198.51.100.1"} {
		if route(address) == nil {
			o.Routed = append(o.Routed, address)
		}
	}
	o.NoRouteOutside = len(o.Routed) == 0
	for _, name := range []string{"user", "pid", "net", "ipc", "uts", "mnt", "cgroup"} {
		o.Namespaces[name], _ = os.Readlink("/proc/self/ns/" + name)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (o *outside) startCanary(t *testing.T) {
	t.Helper()
	o.canary = exec.Command("/bin/sh", "-c", "read wait; : "+o.Marker)
	o.canary.Env = []string{"CANARY=" + o.Marker}
	o.canary.SysProcAttr = rig.Ordinary(t)
	stdin, err := o.canary.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.canary.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); o.canary.Wait() })
	o.CanaryPID = o.canary.Process.Pid
}

func (o *outside) giveTo(t *testing.T, who *syscall.SysProcAttr) {
	t.Helper()
	if who == nil {
		return
	}
	err := filepath.Walk(o.root, func(path string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(who.Credential.Uid), int(who.Credential.Gid))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// openDir is a temporary folder that the user of the box can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
