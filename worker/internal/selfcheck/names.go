package selfcheck

import (
	"os"
	"strings"

	"github.com/openmausbot/botbox/worker/internal/box"
)

// makeNames chooses the variables that the full profile asks with: those by
// which a program is made to run something, those that lead to an agent, and
// some that nobody can have listed.
func (o *outside) makeNames() error {
	o.EnvLoaders = []string{
		"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GCONV_PATH", "BASH_ENV", "ENV", "PROMPT_COMMAND", "NODE_OPTIONS", "NODE_PATH",
		"PYTHONPATH", "PYTHONSTARTUP", "PERL5OPT", "PERL5LIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "GIT_DIR", "GIT_EXTERNAL_DIFF",
		"GIT_CONFIG_GLOBAL", "GIT_PROXY_COMMAND", "GIT_SSH", "GIT_ASKPASS", "EDITOR", "PAGER", "LESSOPEN", "IFS", "SHELLOPTS",
	}
	o.EnvAgents = []string{
		"SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_ASKPASS", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS",
		"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DOCKER_HOST", "CONTAINER_HOST", "KUBECONFIG",
		"KUBERNETES_SERVICE_HOST", "NOTIFY_SOCKET", "LISTEN_FDS", "INVOCATION_ID", "CREDENTIALS_DIRECTORY",
	}
	for range 200 {
		o.EnvRandom = append(o.EnvRandom, "N"+strings.ToUpper(random()))
	}
	o.EnvListed, o.BoxName = "LC_TIME", box.HostName
	return nil
}

// list notes what is in the folders that the probe writes, before it does.
func (o *outside) list() error {
	o.laidOut = map[string][]string{}
	for _, dir := range []string{o.WorkDir, o.BotDir} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			o.laidOut[dir] = append(o.laidOut[dir], entry.Name())
		}
	}
	return nil
}

// openService opens what stands in for a container engine's socket, and the
// terminal that the box is started from. A machine without terminals has P11
// inconclusive, and nothing else.
func (o *outside) openService() error {
	service, err := openDoor("unix", o.at("run/podman/podman.sock"))
	if err != nil {
		return err
	}
	o.service = service
	o.later(service.listener.Close)
	if ours, theirs, err := openTerminal(); err == nil {
		o.terminal = [2]*os.File{ours, theirs}
		o.later(ours.Close)
		o.later(theirs.Close)
	}
	return nil
}
