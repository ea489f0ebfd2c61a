package control

import (
	"strings"

	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

// Variable is one name of the worker's environment. It has no others; the
// container's own environment, keys among it, rides the handover pipe.
type Variable struct {
	Name string // a trailing * stands for any rest
	Why  string
}

// WorkerVariables is the table. What is not set stays unset.
func WorkerVariables() []Variable {
	return []Variable{
		{"PATH", "find bwrap and the engines"},
		{"LANG", "language of messages"},
		{"LC_*", "language of messages, in parts"},
		{"TZ", "times in the log"},
		{"JOURNAL_STREAM", "tells that stderr is the journal's, which then takes entries with their fields"},
		{"CREDENTIALS_DIRECTORY", "folder of the system's secrets, the default of OMB_SECRETS_DIR"},
		{"OMB_BOT_BOX", "setting"},
		{"OMB_CLOUD_ROLE", "setting"},
		{"OMB_CLOUD_HARDEN", "setting, for the report"},
		{"OMB_DATA_DIR", "setting"},
		{"OMB_PORT", "setting"},
		{"OMB_SECRETS_DIR", "setting"},
		{"OMB_EGRESS_ALLOW", "setting"},
		{"OMB_EGRESS_PORTS", "setting"},
		{"OMB_EGRESS_EXCEPT", "setting"},
		{"OMB_CHECK_*", "setting; the worker names the unknown ones as errors"},
		{"OMB_DRAIN_SECONDS", "setting"},
		{"OMB_VSOCK_PORT", "setting"},
		{"OMB_BOT_USERS", "setting"},
		{"OMB_LOG", "setting"},
		{"OMB_BOX_*", "the worker names the unknown ones as errors"},
	}
}

// ours are the variables that speak to the supervisor alone: a child that
// answered the service manager would answer in our name.
func ours(name string) bool {
	return name == "NOTIFY_SOCKET" || strings.HasPrefix(name, "WATCHDOG_") || strings.HasPrefix(name, "LISTEN_")
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// workerEnv filters env by the table and adds what the worker always has.
func workerEnv(env []string, id privdrop.Account, runDir, stateDir string) []string {
	out := []string{"HOME=" + id.Home, "USER=" + privdrop.AccountName, "OMB_RUN_DIR=" + runDir, "OMB_STATE_DIR=" + stateDir}
	if get(env, "PATH") == "" {
		out = append(out, "PATH="+defaultPath)
	}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		for _, v := range WorkerVariables() {
			prefix, open := strings.CutSuffix(v.Name, "*")
			if value != "" && (name == v.Name || open && strings.HasPrefix(name, prefix)) {
				out = append(out, e)
				break
			}
		}
	}
	return out
}

// containerEnv is the container's environment without what is ours, or no
// variable at all.
func containerEnv(env []string) []string {
	var out []string
	for _, e := range env {
		if name, _, ok := strings.Cut(e, "="); ok && name != "" && !ours(name) {
			out = append(out, e)
		}
	}
	return out
}

func get(env []string, name string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}
