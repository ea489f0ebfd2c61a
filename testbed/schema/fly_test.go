package schema

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
)

// fly is what of Fly's settings we use; its own page of the configuration file
// has more.
type fly struct {
	App         string `toml:"app"`
	KillSignal  string `toml:"kill_signal"`
	KillTimeout string `toml:"kill_timeout"`
	Build       struct {
		Dockerfile string `toml:"dockerfile"`
	} `toml:"build"`
	Env    map[string]string `toml:"env"`
	Mounts struct {
		Source      string `toml:"source"`
		Destination string `toml:"destination"`
	} `toml:"mounts"`
	Restart []struct {
		Policy string `toml:"policy"`
	} `toml:"restart"`
	VM []struct {
		Size   string `toml:"size"`
		Memory string `toml:"memory"`
	} `toml:"vm"`
}

func parse(text string) (f fly, unknown []toml.Key, err error) {
	meta, err := toml.Decode(text, &f)
	return f, meta.Undecoded(), err
}

func TestFly(t *testing.T) {
	text := read(t, "fly.toml")
	f, unknown, err := parse(text)
	if err != nil || len(unknown) != 0 {
		t.Fatal(err, unknown)
	}
	drain, bad := strconv.Atoi(f.Env["OMB_DRAIN_SECONDS"])
	kill, err := time.ParseDuration(f.KillTimeout)
	if bad != nil || err != nil || kill <= time.Duration(drain)*time.Second || kill > 300*time.Second {
		t.Errorf("the machine is killed after %s and drains for %ds", f.KillTimeout, drain)
	}
	if f.KillSignal != "SIGTERM" || f.Env["OMB_BOT_BOX"] != "1" || f.Mounts.Destination != "/var/lib/botbox" || len(f.VM) != 1 {
		t.Errorf("%+v", f)
	}
	// testbed/image starts the image so, and reads no TOML.
	made, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "../image/testdata/fly.json", append(made, '\n'))
	if _, unknown, err := parse(strings.Replace(text, "kill_timeout", "kill_time_out", 1)); err == nil && len(unknown) == 0 {
		t.Error("a misspelt setting is taken")
	}
	if _, _, err := parse(strings.Replace(text, "[mounts]", "[mounts", 1)); err == nil {
		t.Error("a broken file is taken")
	}
}
