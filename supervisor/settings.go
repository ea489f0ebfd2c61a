package main

import (
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/supervisor/internal/botuser"
	"github.com/openmausbot/botbox/supervisor/internal/control"
)

const usage = `usage: botbox-supervisor [--] CMD ARG…           run CMD as a box, exit with its status
       botbox-supervisor --plain -- CMD ARG…  run CMD unboxed beside the worker
       botbox-supervisor                      serve until stopped
       botbox-supervisor --version`

// parseArgs reads the command line. Nothing after -- is parsed.
func parseArgs(args []string) (control.Mode, []string, error) {
	switch {
	case len(args) == 0:
		return control.Serve, nil, nil
	case args[0] == "--plain" && len(args) > 2 && args[1] == "--":
		return control.Plain, args[2:], nil
	case args[0] == "--" && len(args) > 1:
		return control.Box, args[1:], nil
	case args[0] != "" && args[0][0] != '-':
		return control.Box, args, nil
	}
	return 0, nil, reason.New(reason.Usage, "the command line is wrong").WithHint("%s", usage)
}

// hardening is OMB_CLOUD_HARDEN.
type hardening string

const (
	hardenOff    hardening = "0"      // skip the steps that change the machine
	hardenOn     hardening = "1"      // a step that is refused is reported
	hardenStrict hardening = "strict" // a step that is refused ends the boot
)

type settings struct {
	harden   hardening
	runDir   string
	stateDir string
	drain    time.Duration
	botUsers bool          // a Linux user per bot
	botRange botuser.Range // whose ids are these
}

// parseSettings reads the variables that concern the supervisor. By hand:
// envconfig works by reflection, which root's program does without.
func parseSettings(env []string) (settings, error) {
	s := settings{harden: hardenOn, runDir: "/run/botbox", stateDir: "/var/lib/botbox", drain: 4 * time.Second, botRange: botuser.DefaultRange}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if value == "" {
			continue
		}
		ok := true
		switch name {
		case "OMB_CLOUD_HARDEN":
			s.harden = hardening(value)
			ok = s.harden == hardenOff || s.harden == hardenOn || s.harden == hardenStrict
		case "OMB_RUN_DIR":
			s.runDir, ok = value, isFolder(value)
		case "OMB_STATE_DIR":
			s.stateDir, ok = value, isFolder(value)
		case "OMB_DRAIN_SECONDS":
			n, err := strconv.Atoi(value)
			s.drain, ok = time.Duration(n)*time.Second, err == nil && 1 <= n && n <= 300
		}
		switch name {
		case "OMB_BOT_USERS":
			s.botUsers, ok = value == "1", value == "0" || value == "1"
		case "OMB_BOT_USERS_RANGE":
			var err error
			s.botRange, err = botuser.ParseRange(value)
			ok = err == nil
		}
		if !ok {
			return settings{}, reason.New(reason.BadSetting, "%s has a value that we do not understand", name)
		}
	}
	return s, nil
}

// isFolder wants an absolute path in its shortest spelling, short enough for a
// unix socket in it (107 bytes).
func isFolder(p string) bool {
	return strings.HasPrefix(p, "/") && p != "/" && path.Clean(p) == p && len(p) <= 80
}
