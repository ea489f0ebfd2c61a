package main

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/kelseyhightower/envconfig"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/cli"
)

// loadSettings reads DESIGN §7's settings from the environment. Errors name
// the variable and never its value.
func loadSettings() (cli.Settings, error) {
	var s cli.Settings
	if err := envconfig.Process("", &s); err != nil {
		var parse *envconfig.ParseError
		if errors.As(err, &parse) {
			return s, reason.New(reason.BadSetting, "%s has a value of the wrong kind", parse.KeyName)
		}
		return s, reason.New(reason.BadSetting, "the settings cannot be read")
	}
	if err := refuseUnknown(); err != nil {
		return s, err
	}
	return s, s.Check()
}

// refuseUnknown finds misspelt settings of the box: ignored, they would be a
// protection that somebody believes to have.
func refuseUnknown() error {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "OMB_BOX_") || (strings.HasPrefix(name, "OMB_CHECK_") && name != "OMB_CHECK_FAILED") ||
			(strings.HasPrefix(name, "OMB_EGRESS_") && !slices.Contains(egressNames, name)) {
			return reason.New(reason.BadSetting, "%s is no setting of ours", name)
		}
	}
	return nil
}

var egressNames = []string{"OMB_EGRESS_ALLOW", "OMB_EGRESS_PORTS", "OMB_EGRESS_EXCEPT"}
