package spec

import (
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
)

func TestWhatEachKindTakes(t *testing.T) {
	const rest = `"argv":["x"]`
	for text, field := range map[string]string{
		`{"kind":"browser",` + rest + `}`:                                                                        "",
		`{"kind":"browser",` + rest + `,"net":{"mode":"shared"}}`:                                                "",
		`{"kind":"browser",` + rest + `,"browser":{"profile":"/srv/p","debug_pipe":true}}`:                       "",
		`{"kind":"browser",` + rest + `,"browser":{"profile":"p"}}`:                                              "browser.profile",
		`{"kind":"browser",` + rest + `,"browser":{"profile":"/srv/../etc"}}`:                                    "browser.profile",
		`{"kind":"browser",` + rest + `,"browser":{"launcher":true}}`:                                            "browser.launcher",
		`{"kind":"browser",` + rest + `,"cwd":"/srv/w"}`:                                                         "cwd",
		`{"kind":"browser",` + rest + `,"engine":"claude"}`:                                                      "engine",
		`{"kind":"browser",` + rest + `,"home":{"mode":"server"}}`:                                               "home.mode",
		`{"kind":"browser",` + rest + `,"paths":{"rw":["/srv/x"]}}`:                                              "paths.rw",
		`{"kind":"browser",` + rest + `,"paths":{"ro":["/srv/x"]}}`:                                              "paths.ro",
		`{"kind":"browser",` + rest + `,"paths":{"perm_socket_dir":"/srv/x"}}`:                                   "paths.perm_socket_dir",
		`{"kind":"browser",` + rest + `,"net":{"harness":{"upstream":"tcp:127.0.0.1:1"}}}`:                       "net.harness.upstream",
		`{"kind":"browser",` + rest + `,"broker":{"keys":[{"env":"K","provider":"p","secret":"ref:k"}]}}`:        "broker.keys",
		`{` + rest + `,"net":{"mode":"shared"}}`:                                                                 "net.mode",
		`{` + rest + `,"browser":{"profile":"/srv/p"}}`:                                                          "browser",
		`{` + rest + `,"net":{"relay":true}}`:                                                                    "",
		`{` + rest + `,"net":{"mode":"none","relay":true}}`:                                                      "",
		`{"kind":"browser",` + rest + `,"net":{"relay":true}}`:                                                   "net.relay",
		`{"kind":"browser",` + rest + `,"browser":{"debug_port":true}}`:                                          "",
		`{"kind":"browser",` + rest + `,"net":{"mode":"shared"},"browser":{"debug_port":true}}`:                  "browser.debug_port",
		`{` + rest + `,"browser":{"debug_port":true}}`:                                                           "browser",
		`{` + rest + `,"net":{"loopback_upstreams":[{"name":"x","url":"http://127.0.0.1:1"}]}}`:                  "",
		`{` + rest + `,"net":{"mode":"none","loopback_upstreams":[{"name":"x","url":"http://127.0.0.1:1"}]}}`:    "net.loopback_upstreams",
		`{"kind":"browser",` + rest + `,"net":{"loopback_upstreams":[{"name":"x","url":"http://127.0.0.1:1"}]}}`: "net.loopback_upstreams",
		`{` + rest + `,"browser":{"debug_pipe":true}}`:                                                           "browser",
	} {
		_, err := Decode([]byte(text))
		switch {
		case field == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case field != "" && (err == nil || reason.Of(err).Code != reason.BadSpec || !strings.Contains(err.Error(), "field "+field+" ") && !strings.Contains(err.Error(), "field "+field+":")):
			t.Errorf("%s: %v, want a word about %s", text, err, field)
		}
	}
}
