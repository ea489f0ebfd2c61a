package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// browserFlags are the flags of browser.
type browserFlags struct {
	run      runFlags
	profile  string
	launcher string
}

func (f *browserFlags) define(set *flag.FlagSet) {
	s := &f.run.spec
	set.StringVar(&s.Bot, "bot", "", "the `BOT` that the browser belongs to")
	set.StringVar(&f.profile, "profile", "", "the `FOLDER` of the bot's browser profile, the only one in the box (default: none outlives the box)")
	chooseVar(set, &s.Net.Mode, "net", "gated", []string{"gated", "none", "shared"}, "the `NETWORK`: gated (through the SOCKS gate), none, or shared: the machine's own network, with no gate")
	set.Var(&f.run.allow, "allow-host", "let the SOCKS gate reach `PATTERN[:PORT]`, and nothing else; can be given again")
	set.BoolVar(&s.Browser.DebugPipe, "debug-pipe", false, "pass descriptors 3 and 4 through, for --remote-debugging-pipe")
	set.BoolVar(&s.Browser.DebugPort, "debug-port", false, "serve the browser's own --remote-debugging-port on this machine's 127.0.0.1, for this user and root")
	set.StringVar(&f.launcher, "write-launcher", "", "write an executable `FILE` that runs the browser so, and run nothing")
	set.BoolVar(&f.run.stay, "stay", false, "stay the box's parent, for a daemon whose threads end; a launcher always does")
	set.BoolVar(&f.run.standalone, "standalone", false, "do not ask a worker: keep the gate in this process")
	set.BoolVar(&f.run.dryRun, "dry-run", false, "print how the box would be built, and build none")
	set.BoolVar(&f.run.json, "json", false, "print the box's answer as JSON on stderr")
}

// browserVerb runs a browser in a box of kind browser, or writes the launcher
// that a browser's daemon is told to start in its place.
func browserVerb(c *call, args []string) (int, error) {
	var f browserFlags
	command, err := c.parse("browser", args, f.define)
	if err != nil {
		return 0, err
	}
	if len(command) == 0 {
		return 0, reason.New(reason.Usage, "no browser")
	}
	if f.profile != "" {
		if f.profile, err = filepath.Abs(f.profile); err != nil {
			return 0, reason.New(reason.PathRefused, "%s: %w", f.profile, err)
		}
	}
	if f.launcher != "" {
		if err := judge(f.spec(command)); err != nil {
			return 0, err
		}
		return 0, f.writeLauncher(command)
	}
	a, programs, err := c.enter("boxentry")
	if err != nil {
		return 0, err
	}
	return c.boxed(programs[0], a, f.spec(command), f.run)
}

// judge refuses now what the launcher would be refused for later.
func judge(s spec.Spec) error {
	s.Env = nil // the launcher's will be another one
	b, err := json.Marshal(s)
	if err != nil {
		return reason.New(reason.Internal, "write the spec: %w", err)
	}
	_, err = spec.Decode(b)
	return err
}

func (f *browserFlags) spec(command []string) spec.Spec {
	s := f.run.spec
	s.V, s.Kind, s.Engine, s.Argv = 1, "browser", "none", command
	if f.profile != "" {
		s.Browser.Profile = &f.profile
	}
	if f.run.allow != nil {
		allow := []string(f.run.allow)
		s.Net.Egress.Allow = &allow
	}
	s.Env, _ = environment(os.Environ(), nil)
	return s
}

// launcherMark is the second line of each launcher: a file without it is
// somebody else's and is never overwritten.
const launcherMark = "# Written by botbox browser --write-launcher."

// script is the launcher. Browser daemons take the path of one executable, not
// a command line (AGENT_BROWSER_EXECUTABLE_PATH).
func (f *browserFlags) script(self string, command []string) string {
	s := f.run.spec
	words := []string{self, "browser", "--stay", "--net", s.Net.Mode}
	for _, w := range []struct{ flag, value string }{{"--bot", s.Bot}, {"--profile", f.profile}} {
		if w.value != "" {
			words = append(words, w.flag, w.value)
		}
	}
	for _, host := range f.run.allow {
		words = append(words, "--allow-host", host)
	}
	if s.Browser.DebugPipe {
		words = append(words, "--debug-pipe")
	}
	if s.Browser.DebugPort {
		words = append(words, "--debug-port")
	}
	if f.run.standalone {
		words = append(words, "--standalone")
	}
	words = append(append(words, "--"), command...)
	for i, w := range words {
		words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return "#!/bin/sh\n" + launcherMark + "\nexec " + strings.Join(words, " ") + " \"$@\"\n"
}

func (f *browserFlags) writeLauncher(command []string) error {
	self, err := os.Executable()
	if err != nil {
		return reason.New(reason.System, "find out where this program is: %w", err)
	}
	script := f.script(self, command)
	if strings.ContainsRune(script, 0) {
		return reason.New(reason.Usage, "a word holds a NUL byte")
	}
	old, err := os.ReadFile(f.launcher)
	switch {
	case err == nil && !bytes.HasPrefix(old, []byte("#!/bin/sh\n"+launcherMark+"\n")):
		return reason.New(reason.NotYours, "%s is there and no launcher of ours", f.launcher)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return reason.New(reason.System, "look at %s: %w", f.launcher, err)
	}
	if err := replaceFile(f.launcher, script); err != nil {
		return reason.New(reason.System, "write the launcher: %w", err)
	}
	return nil
}

// replaceFile puts a whole new executable in a file's place: a daemon that
// starts it meanwhile gets the old one or the new one.
func replaceFile(path, content string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".launcher-")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(content)
	err = errors.Join(err, tmp.Chmod(0o755), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

// checkPipe holds --debug-pipe to what it is for: two pipes, or ends of socket
// pairs. A connection to a named socket, a container runtime's or an agent's,
// is none, and nor is an open file or folder.
func checkPipe() error {
	for _, fd := range []int{box.PipeFD, box.PipeFD + 1} {
		if !isPipe(fd) {
			return reason.New(reason.Usage, "--debug-pipe: descriptor %d is neither a pipe nor one end of a socket pair", fd).
				WithHint("start it with the pipe on descriptors 3 and 4, as a driver of --remote-debugging-pipe does")
		}
	}
	return nil
}

// unnamed is how x/sys writes the address of a socket that has none.
const unnamed = "@"

func isPipe(fd int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return false
	}
	if st.Mode&unix.S_IFMT == unix.S_IFIFO {
		return true
	}
	peer, err := unix.Getpeername(fd) // of what is no socket: an error
	name, isUnix := peer.(*unix.SockaddrUnix)
	return err == nil && isUnix && name.Name == unnamed
}

// inherited are a child's files between stdio and the kit's: the debugging
// pipe, which checkPipe has seen. In a process that becomes the box they stay
// where they are.
func inherited(s spec.Spec) []*os.File {
	if !s.Browser.DebugPipe {
		return nil
	}
	var files []*os.File
	for _, fd := range []int{box.PipeFD, box.PipeFD + 1} {
		unix.CloseOnExec(fd)
		files = append(files, os.NewFile(uintptr(fd), fmt.Sprintf("debugging pipe %d", fd)))
	}
	return files
}
