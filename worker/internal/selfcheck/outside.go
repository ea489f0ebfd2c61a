package selfcheck

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/broker"
)

// The provider that the stand-in is, and what the broker knows of it.
const (
	keyName   = "ANTHROPIC_API_KEY"
	baseName  = "ANTHROPIC_BASE_URL"
	keyHeader = "X-Api-Key"
	granted   = "anthropic"
	ungranted = "openai"
)

// outside is all that a hostile bot would like to reach, laid out for one run.
type outside struct {
	fixture
	root string // of every file but the canaries in the machine's own folders
	key  string

	socket, loopback, nearby *door
	mapped, abstract, sixth  *door // sixth is nil on a machine without ::1
	far, turned, decoy, away origin
	dns                      names
	server                   server
	provider                 provider
	canary                   *box.Child

	broker    *broker.Broker
	box, ours string         // the box's name, and its token
	other     netip.AddrPort // where another box's token is good
	lived     error          // of the tokens that have ended: nil if they were good before

	spawner *box.Spawner
	weak    *weakness // nil: the filter is whole
	freed   donations
	holds   bool // one is kept, under a mutation
	revive  bool // the token is one that lives on, under a mutation

	service  *door               // what stands in for a container engine
	laidOut  map[string][]string // the names in the folders that the probe writes
	terminal [2]*os.File         // that the box is started from: our end, and its own
	lookFor  string              // where M03 looks for bubblewrap
	openPID  int                 // whom M05 looks at; 0 = this process

	noSix    bool           // this kernel has no IPv6
	lone     bool           // this machine has no interface but lo
	noCores  bool           // nor any core files
	namesake bool           // and its own name is that of every box
	undo     []func() error // in the order in which it was done
}

// layOut makes everything, as the user that runs the box. Whoever calls it
// calls remove too, also after an error.
func (o *outside) layOut(probe box.Program) error {
	sweep()
	for _, step := range []func() error{
		o.makeFiles, o.makeFolders, o.makeCanaryFiles, o.makeKey, o.makeNames, o.openDoors, o.openMoreDoors, o.openService,
		o.answerDatagrams, o.openFar, o.startServers, o.openBroker, o.issueTokens, o.chooseRelayPort,
		o.shareMemory, o.plantSessionKey, o.lookAround, o.lookAtSelf, o.list, func() error { return o.startCanary(probe) },
	} {
		if err := step(); err != nil {
			return reason.New(reason.System, "lay out the self-check: %w", err)
		}
	}
	return nil
}

// remove takes everything away again, in reverse order, and tells what it
// could not.
func (o *outside) remove() (failed error) {
	for len(o.undo) > 0 {
		last := len(o.undo) - 1
		failed = errors.Join(failed, o.undo[last]())
		o.undo = o.undo[:last]
	}
	return failed
}

func (o *outside) later(f func() error) { o.undo = append(o.undo, f) }

func (o *outside) at(name string) string { return filepath.Join(o.root, name) }

// makeFiles lays out a data folder as the chat server has it, with the folders
// of two bots and of two conversations.
func (o *outside) makeFiles() (err error) {
	if o.root, err = o.folder("/tmp"); err != nil {
		return err
	}
	o.Marker = "canary-" + random()
	o.DataDir, o.Database, o.Config = o.at("data"), o.at("data/messages.db"), o.at("data/config.json")
	o.Login, o.ServerSocket = o.at("data/sessions.json"), o.at("data/server.sock")
	o.OtherBotFile, o.OtherToken = o.at("data/workspaces/other/MEMORY.md"), o.at("data/hook-tokens/other/hook.token")
	o.WorkDir, o.BotDir, o.PutBacks = o.at("work"), o.at("data/workspaces/own"), []string{"workspaces", "hook-tokens"}
	o.Unbound = []string{o.at("elsewhere")}
	o.Walled, o.Landlock, o.Pids, o.Nofile = "/walled", box.Landlock(), maxPids, maxFiles
	o.TmpMB, o.FileMB = tmpMB, fileMB
	for _, dir := range []string{"work", "code", "elsewhere", "walled", "home", "data/workspaces/own", "data/workspaces/other", "data/hook-tokens/own", "data/hook-tokens/other"} {
		if err := os.MkdirAll(o.at(dir), 0o700); err != nil {
			return err
		}
	}
	for _, file := range []string{o.Database, o.Config, o.Login, o.OtherBotFile, o.OtherToken, o.at("data/hook-tokens/own/hook.token")} {
		if err := os.WriteFile(file, []byte(o.Marker), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// makeCanaryFiles leaves a file of "another turn" in each shared folder.
func (o *outside) makeCanaryFiles() error {
	for i, file := range []*string{&o.TmpFile, &o.VarTmpFile, &o.RunFile, &o.ShmFile} {
		var tried error
		for _, in := range sharedFolders()[i] {
			dir, err := o.folder(in)
			if err != nil {
				tried = errors.Join(tried, err)
				continue
			}
			*file = filepath.Join(dir, "canary")
			break
		}
		if *file == "" {
			return tried
		}
		if err := os.WriteFile(*file, []byte(o.Marker), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// makeKey plants a key that the worker is given, and that stands nowhere else:
// the probe gets it in two halves.
func (o *outside) makeKey() error {
	o.key = "sk-ant-check-" + random() + random()
	mask, masked := make([]byte, len(o.key)), []byte(o.key)
	rand.Read(mask)
	for i := range mask {
		masked[i] ^= mask[i]
	}
	o.KeyA, o.KeyB = hex.EncodeToString(mask), hex.EncodeToString(masked)
	o.KeyName, o.BaseName, o.Call, o.Ungranted = keyName, baseName, "/v1/models", ungranted
	o.UpstreamOK = "upstream-" + random()
	o.EnvCloud = []string{"OMB_CLOUD_ROLE", "OMB_CLOUD_HARDEN"}
	o.EnvCredentials = []string{"BOX_TOKEN", "OMB_LICENSE_KEY", "OPENMAUSBOT_TOKEN", "OMB_DATA_DIR"}
	o.EnvUnlisted = []string{"CHECK_CANARY_NAME"}
	return nil
}

// lookAround notes what the machine has that a box must not have.
func (o *outside) lookAround() error {
	o.Namespaces = map[string]string{}
	for _, name := range []string{"user", "pid", "net", "ipc", "uts", "mnt", "cgroup"} {
		if id, err := os.Readlink("/proc/self/ns/" + name); err == nil { // else this kernel has none
			o.Namespaces[name] = id
		}
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	o.lone = !slices.ContainsFunc(interfaces, func(i net.Interface) bool { return i.Name != "lo" })
	for _, address := range append(interfaceAddresses(), "169.254.169.254", "fd00:ec2::254", "198.51.100.1") {
		if routed(address) == nil {
			o.Routed = append(o.Routed, address)
		}
	}
	o.NoRouteOutside = len(o.Routed) == 0
	for _, dir := range []string{"/usr", "/etc", "/opt"} {
		if st, err := os.Lstat(dir); err == nil && st.IsDir() {
			o.ReadOnly = append(o.ReadOnly, dir)
		}
	}
	o.ReadOnly = append(o.ReadOnly, o.at("code"))
	return nil
}

// routed connects a datagram socket, which asks for a route and sends nothing.
func routed(address string) error {
	conn, err := net.Dial("udp", net.JoinHostPort(address, "9"))
	if err == nil {
		conn.Close()
	}
	return err
}

// startCanary starts the process that no box may see. It repeats what it is
// told, and it runs for certain when it has: the kernel tells us of an exec
// before /proc shows the new command line.
func (o *outside) startCanary(probe box.Program) error {
	itsIn, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer itsIn.Close()
	o.later(in.Close)
	out, itsOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	o.canary, err = o.spawner.Beside(probe.File, []string{"boxprobe", "canary", o.Marker}, []string{"CANARY=" + o.Marker}, itsIn, itsOut)
	itsOut.Close()
	if err != nil {
		return err
	}
	o.CanaryPID = o.canary.Pid()
	o.later(func() error { o.canary.Kill(); o.canary.Wait(); return nil })
	out.SetReadDeadline(time.Now().Add(patience))
	if _, err := in.WriteString(greeting); err != nil {
		return err
	}
	_, err = io.ReadFull(out, make([]byte, len(greeting)))
	return err
}

// write puts the fixture where the box finds it, when all of it is known.
func (o *outside) write(ports box.Ports) (string, error) {
	o.EgressPort, o.BrokerPort = ports.Egress, ports.Broker
	text, err := json.Marshal(o.fixture)
	if err == nil {
		err = os.WriteFile(o.at("fixture.json"), text, 0o600)
	}
	if err != nil {
		return "", reason.New(reason.System, "lay out the self-check: %w", err)
	}
	return o.at("fixture.json"), nil
}

func random() string {
	var b [12]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
