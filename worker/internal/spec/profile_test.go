package spec

import (
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
)

func TestSigninAndProfile(t *testing.T) {
	signin := func(mode, folders string) string {
		return `"home":{"mode":"` + mode + `","path":"/e","signin":[` + folders + `]}`
	}
	const codex = `{"from":"/team/codex","as":".codex","mode":"rw-dir"}`
	for fields, says := range map[string]string{
		signin("engine", codex): "",
		signin("engine", codex+`,{"from":"/t","as":".config/opencode","mode":"rw-dir"}`):            "",
		`"profile":{"work":"ro","keys":"none"}`:                                                     "",
		`"home":{"mode":"private","signin":[` + codex + `]}`:                                        "home.mode engine",
		signin("engine", `{"from":"/t","as":"auth.json","mode":"ro-file"}`):                         "rw-dir",
		signin("engine", `{"from":"t","as":".codex","mode":"rw-dir"}`):                              "absolute",
		signin("engine", `{"from":"/t","as":"../.codex","mode":"rw-dir"}`):                          "clean path",
		signin("engine", `{"from":"/t","as":"/codex","mode":"rw-dir"}`):                             "clean path",
		signin("engine", `{"from":"/t","as":".","mode":"rw-dir"}`):                                  "clean path",
		signin("engine", codex+`,`+codex):                                                           "one place",
		signin("engine", codex+`,{"from":"/t","as":".codex/x","mode":"rw-dir"}`):                    "one place",
		`"profile":{"work":"rx"}`:                                                                   "profile.work",
		`"profile":{"keys":"some"}`:                                                                 "profile.keys",
		`"profile":{"keys":"none"},"env":{"A":{"secret":"ref:x"}}`:                                  "field env",
		`"profile":{"keys":"none"},"home":{"mode":"server"}`:                                        "home.mode",
		`"profile":{"keys":"none"},"broker":{"keys":[{"env":"A","provider":"p","secret":"ref:x"}]}`: "broker.keys",
	} {
		_, err := Decode([]byte(`{"argv":["x"],"cwd":"/w",` + fields + `}`))
		switch {
		case says == "" && err != nil:
			t.Errorf("%s: %v", fields, err)
		case says != "" && (err == nil || reason.Of(err).Code != reason.BadSpec || !strings.Contains(err.Error(), says)):
			t.Errorf("%s: %v, want %q", fields, err, says)
		}
	}
}
