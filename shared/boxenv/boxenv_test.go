package boxenv

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden table")

var engines = []string{claude, codex, gemini, opencode, grok, "none", all}

// TestGoldenTable shows every row, and what each name becomes for each engine,
// so that a change of policy is a visible change of this file.
func TestGoldenTable(t *testing.T) {
	var b strings.Builder
	for _, row := range All() {
		fmt.Fprintf(&b, "%-10s %-8s %s: %s\n", row.Verdict, row.Engine, row.Name, row.Reason)
	}
	b.WriteString("\n")
	env := Fixed(8799)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&b, "%s=%s\n", name, env[name])
	}
	const file = "testdata/table.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s differs; go test -update shows the change", file)
	}
}

func TestDecide(t *testing.T) {
	extra := []string{"NOTES_TOKEN", "LD_PRELOAD", "omb_cloud_role", "OMB_DATA_DIR", "http_proxy", "OPENAI_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "MISTRAL_API_KEY", "A=B"}
	cases := []struct {
		name, engine string
		want         Verdict
	}{
		{"LANG", claude, Pass},
		{"LC_TIME", "none", Pass},
		{"lang", claude, Unlisted},
		{"OMB_BOT_ID", codex, Pass},
		{"OMB_SIGNIN_SMTP_URL", codex, Refused},
		{"OMB_CLOUD_ROLE", claude, Refused},
		{"oMb_ClOuD_x", claude, Refused},
		{"omb_cloud_role", claude, Refused}, // although declared
		{"OMB_CLOUDFLARED_PATH", claude, Refused},
		{"OMB_DATA_DIR", claude, Refused},
		{"OMB_PORT", claude, Refused},
		{"OPENMAUSBOT_TOKEN", claude, Refused},
		{"openmausbot_url", claude, Refused},
		{"OPENMAUSBOT_QWEN_CN_API_KEY", "acp:qwen", Credential},
		{"OMB_CONNECTOR_UPSTREAM_HEADERS", claude, Refused},
		{"OGB_BOX_TOKEN", claude, Refused},
		{"OGB_BOX_ID", claude, Pass},
		{"OMB_MANAGED_CODEX_TOKEN", codex, Credential},
		{"OMB_MANAGED_CODEX_TOKEN", claude, Refused},
		{"CODEX_HOME", codex, Pass},
		{"CODEX_HOME", claude, Unlisted},
		{"ANTHROPIC_DEFAULT_OPUS_MODEL", claude, Pass},
		{"ANTHROPIC_API_KEY", claude, Credential},
		{"ANTHROPIC_BASE_URL", claude, Credential},
		{"OPENAI_API_KEY", codex, Credential},          // although declared
		{"CLAUDE_CODE_OAUTH_TOKEN", codex, Credential}, // declared, and another engine's
		{"CODEX_API_KEY", claude, Unlisted},
		{"MISTRAL_API_KEY", claude, Refused}, // although declared
		{"MISTRAL_API_KEY", opencode, Credential},
		{"XAI_API_KEY", grok, Credential},
		{"XAI_API_KEY", claude, Refused},
		{"xai_api_key", grok, Refused},
		{"NOTES_TOKEN", codex, Pass}, // declared
		{"OTHER_TOKEN", codex, Unlisted},
		{"LD_PRELOAD", codex, Refused}, // although declared
		{"ld_preload", codex, Refused},
		{"ENV", codex, Refused},
		{"http_proxy", codex, Refused}, // although declared
		{"npm_config_https_proxy", codex, Refused},
		{"A=B", codex, Refused}, // although declared
		{"", codex, Refused},
		{"1A", codex, Refused},
		{"LÄNG", codex, Refused},
		{"LANG\n", codex, Refused},
	}
	for _, c := range cases {
		if got, why := Decide(c.name, c.engine, extra); got != c.want || why == "" {
			t.Errorf("%q for %q: %s (%s), want %s", c.name, c.engine, got, why, c.want)
		}
	}
}

// TestEveryRowIsReached finds rows that another one hides, in whole.
func TestEveryRowIsReached(t *testing.T) {
	for i, row := range table {
		if row.Reason == "" {
			t.Errorf("%s lacks a reason", row.Name)
		}
		if strings.Count(row.Name, "*") > 1 {
			t.Errorf("%s: one * at most", row.Name)
		}
		name := strings.ReplaceAll(row.Name, "*", "X")
		first := slices.IndexFunc(table, func(r Row) bool { return r.fits(name, row.Engine) })
		if first != i {
			t.Errorf("%s (%s) is hidden by %s", row.Name, row.Engine, table[first].Name)
		}
	}
}

func TestNobodyElseSetsWhatWeSet(t *testing.T) {
	for _, g := range AllGiven() {
		want := Refused
		if g.Default {
			want = Pass
		}
		if got, _ := Decide(g.Name, claude, []string{g.Name}); got != want {
			t.Errorf("%s: %s, want %s", g.Name, got, want)
		}
		if g.Reason == "" {
			t.Errorf("%s lacks a reason", g.Name)
		}
	}
	bare := Fixed(0)
	for name := range bare {
		if strings.Contains(strings.ToLower(name), "proxy") || strings.HasPrefix(name, "OMB_") {
			t.Errorf("a box without gates gets %s", name)
		}
	}
	if bare["BOTBOX"] != "1" {
		t.Error("a box without gates lacks BOTBOX")
	}
}

func TestFilterSortsNames(t *testing.T) {
	env := map[string]int{"TERM": 1, "LANG": 2, "OPENAI_API_KEY": 3, "SECRET": 4, "OMB_PORT": 5, "MINE": 6}
	got := fmt.Sprint(Filter(env, codex, []string{"MINE", "OMB_PORT"}))
	if want := "{[LANG MINE TERM] [OPENAI_API_KEY] [OMB_PORT SECRET]}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The refused list wins over everything that a driver declares, in any letter
// case and for every engine.
func TestTheRefusedListWins(t *testing.T) {
	for _, row := range refused {
		name := strings.ReplaceAll(row.Name, "*", "x")
		for _, spelled := range []string{name, strings.ToUpper(name), strings.ToLower(name), mixCase(name, 0x5555), mixCase(name, 0xaaaa)} {
			for _, engine := range engines {
				declared := []string{spelled, "CONTROL"}
				// An engine that is billed by a key gets it from the broker.
				if got, _ := Decide(spelled, engine, declared); got != Refused && got != Credential {
					t.Errorf("%s for %q: %s", spelled, engine, got)
				}
				if got, _ := Decide("CONTROL", engine, declared); got != Pass {
					t.Errorf("positive control: a declared name is %s", got)
				}
			}
		}
	}
}

// mustNever are words of names that no driver may bring in, by requirement;
// they are written down here a second time, apart from the table.
var mustNever = []string{"OMB_CLOUD_", "LD_", "DBUS_"}
var mustNeverBe = []string{"OMB_DATA_DIR", "OMB_PORT", "OPENMAUSBOT_TOKEN", "OPENMAUSBOT_URL", "NODE_OPTIONS",
	"BASH_ENV", "ENV", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "SSH_AUTH_SOCK", "DISPLAY", "WAYLAND_DISPLAY",
	"XDG_RUNTIME_DIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "BOX_TOKEN", "COMPOSIO_API_KEY",
	"OMB_TTS_KEY", "OGB_BOX_TOKEN", "OMB_LICENSE_KEY", "OMB_SIGNIN_SMTP_URL"}

func FuzzNoRefusedNamePasses(f *testing.F) {
	for _, name := range slices.Concat(mustNeverBe, mustNever, []string{"LANG", "lang", "A=B"}) {
		f.Add(name, uint64(0), 0)
		f.Add(strings.ToLower(name)+"x", uint64(0x5555), 3)
	}
	f.Fuzz(func(t *testing.T, name string, flips uint64, engine int) {
		mixed := mixCase(name, flips)
		e := engines[uint(engine)%uint(len(engines))]
		verdict, _ := Decide(mixed, e, []string{name, mixed})
		if verdict != Pass {
			return
		}
		if !wellFormed(mixed) {
			t.Fatalf("%q passes and is no name", mixed)
		}
		upper := strings.ToUpper(mixed)
		for _, prefix := range mustNever {
			if strings.HasPrefix(upper, prefix) {
				t.Fatalf("%q passes for %q", mixed, e)
			}
		}
		if slices.Contains(mustNeverBe, upper) {
			t.Fatalf("%q passes for %q", mixed, e)
		}
		for _, row := range refused {
			if row.fits(mixed, e) {
				t.Fatalf("%q passes for %q against the refusal of %s", mixed, e, row.Name)
			}
		}
	})
}

// mixCase turns the letters that flips names into the other case.
func mixCase(s string, flips uint64) string {
	b := []byte(s)
	for i, c := range b {
		if flips>>(i%64)&1 == 1 && ('a' <= c|0x20 && c|0x20 <= 'z') {
			b[i] = c ^ 0x20
		}
	}
	return string(b)
}
