package broker

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// allKeys has every provider's first key, as a driver would pass them to a box
// of that engine.
func allKeys(t *testing.T, engine string) []Key {
	t.Helper()
	env := map[string]secret.Text{}
	for _, p := range providers {
		for _, v := range p.keys {
			env[v.env] = secret.New("canary-" + v.env)
		}
	}
	keys, _, err := Take(env, engine)
	if err != nil {
		t.Fatal(err)
	}
	var first []Key
	for _, k := range keys {
		if !slices.ContainsFunc(first, func(have Key) bool { return have.Provider == k.Provider }) {
			first = append(first, k)
		}
	}
	return first
}

// The golden list of what each engine gets, with the token and the URL cut out.
func TestLaunchSettings(t *testing.T) {
	var page strings.Builder
	for _, e := range engines {
		for _, alone := range []bool{false, true} {
			s := newStage(t, nil)
			issued, err := s.Issue(Turn{Box: "b1", Engine: e.name, Keys: allKeys(t, e.name), Alone: alone})
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(fmt.Sprintf("%+v", issued), "canary") {
				t.Errorf("%s: the box would get a key", e.name)
			}
			var token string
			for d := range maps.Values(issued.Env) {
				if tokenForm(d) {
					token = d
				}
			}
			cut := strings.NewReplacer(token, "TOK", "http://127.0.0.1:18080", "URL")
			fmt.Fprintf(&page, "# %s, alone %v\ngrants %s\n", e.name, alone, strings.Join(issued.Grants, " "))
			for what, pairs := range map[string]map[string]string{"env": issued.Env} {
				list(&page, cut, what, pairs)
			}
			list(&page, cut, "quiet", issued.Quiet)
			for i := 0; i+1 < len(issued.Argv); i += 2 {
				fmt.Fprintln(&page, "argv", issued.Argv[i], cut.Replace(issued.Argv[i+1]))
			}
			list(&page, cut, "file", issued.Files)
			fmt.Fprintln(&page)
		}
	}
	const golden = "testdata/launch.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != page.String() {
		t.Errorf("%s differs (%v); go test -update shows the change", golden, err)
	}
}

// A provider's base URL variable is named in its row of providers alone.
func TestLaunchRowsNameNoBaseURL(t *testing.T) {
	for _, l := range launches {
		for _, row := range slices.Concat(l.env, l.quiet, l.config, l.alone, l.files) {
			for _, p := range providers {
				if p.baseEnv != "" && strings.Contains(row, p.baseEnv) {
					t.Errorf("%s, %s: %s; write {base}", l.engine, l.provider, row)
				}
			}
		}
	}
}

func list(page *strings.Builder, cut *strings.Replacer, what string, pairs map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		fmt.Fprintf(page, "%s %s=%s\n", what, name, cut.Replace(pairs[name]))
	}
}

// A key whose program cannot be led here stays raw and is named; the same key
// in a box of the engine that can is taken.
func TestTakeGoesByTheEngine(t *testing.T) {
	for _, c := range []struct{ engine, env, provider string }{
		{"opencode", "XAI_API_KEY", "xai"}, {"grok", "XAI_API_KEY", ""}, {"none", "XAI_API_KEY", ""},
		{"grok", "GROK_API_KEY", "xai"}, {"none", "GROK_API_KEY", "xai"},
		{"opencode", "MISTRAL_API_KEY", "mistral"}, {"claude", "MISTRAL_API_KEY", ""},
		{"opencode", "GROQ_API_KEY", "groq"}, {"none", "GROQ_API_KEY", ""},
		{"opencode", "CEREBRAS_API_KEY", "cerebras"}, {"opencode", "OPENROUTER_API_KEY", "openrouter"},
		{"opencode", "MOONSHOT_API_KEY", "moonshot"}, {"opencode", "KIMI_API_KEY", "kimi"},
		{"opencode", "MINIMAX_API_KEY", "minimax"}, {"opencode", "OPENCODE_API_KEY", "zen"},
		{"acp:kimi", "KIMI_API_KEY", ""}, {"opencode", "CURSOR_API_KEY", ""}, {"opencode", "FACTORY_API_KEY", ""},
	} {
		env := map[string]secret.Text{c.env: secret.New("k")}
		keys, raw, err := Take(env, c.engine)
		switch {
		case err != nil:
			t.Errorf("%s %s: %v", c.engine, c.env, err)
		case c.provider == "" && (len(keys) != 0 || !slices.Equal(raw, []string{c.env}) || env[c.env].Empty()):
			t.Errorf("%s %s: not raw: %v %v", c.engine, c.env, keys, raw)
		case c.provider != "" && (len(keys) != 1 || keys[0].Provider != c.provider || len(raw) != 0 || len(env) != 0):
			t.Errorf("%s %s: not brokered: %d keys, raw %v", c.engine, c.env, len(keys), raw)
		}
	}
}

// What the driver configured stays, but never where the broker has a say.
func TestDriversDocument(t *testing.T) {
	s := newStage(t, nil)
	turn := Turn{Box: "b1", Engine: "opencode", Keys: testKeys("https://up.example"), Given: map[string]string{
		"OPENCODE_CONFIG_CONTENT": `{"mcp":{"x":{"type":"local"}},"provider":{"openai":{"options":{"baseURL":"https://evil.example","timeout":7}},"other":{"options":{"apiKey":"raw"}}}}`,
	}}
	issued, err := s.Issue(turn)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		MCP      map[string]any
		Provider map[string]struct{ Options map[string]any }
	}
	if err := json.Unmarshal([]byte(issued.Env["OPENCODE_CONFIG_CONTENT"]), &doc); err != nil {
		t.Fatal(err)
	}
	options := doc.Provider["openai"].Options
	if url := fmt.Sprint(options["baseURL"]); !strings.HasPrefix(url, boxAddr+"/b/") || options["timeout"] != 7.0 || doc.MCP["x"] == nil {
		t.Errorf("%+v", doc)
	}
	if !slices.Contains(issued.Unbrokered, "OPENCODE_CONFIG_CONTENT") {
		t.Errorf("a raw key in the document is not named: %q", issued.Unbrokered)
	}
	for _, bad := range []string{"canary", "[]", "null", `"canary"`, `{"canary":`, "{} x"} {
		turn.Given["OPENCODE_CONFIG_CONTENT"] = bad
		_, err := s.Issue(turn)
		if reason.Of(err).Code != reason.BadSpec || strings.Contains(fmt.Sprint(err), "canary") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestHoldsKey(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "x": false, "{}": false, `{"a":[{"apiKey":"k"}]}`: true, `{"apiKey":"TOK"}`: false, `{"apiKey":"{env:X}"}`: false,
		`{"apiKey":7}`: false, `{"mcp":{"x":{"headers":{"A":"k"}}}}`: true, `{"mcp":{"x":{"headers":{}}}}`: false,
		`{"mcp":{"x":{"environment":{"A":"k"}}}}`: true, `{"headers":"k"}`: false,
	} {
		if got := holdsKey(text, "TOK"); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestDocument(t *testing.T) {
	for _, c := range []struct {
		settings   []string
		base, want string
	}{
		{[]string{`a.b="x"`, "a.c=false", "d=1"}, "", `{"a":{"b":"x","c":false},"d":1}`},
		{[]string{`a.b="x"`}, `{"a":"in the way","z":1}`, `{"a":{"b":"x"},"z":1}`},
		{[]string{`l[]="x"`, `l[]="y"`}, `{"l":["w"]}`, `{"l":["w","x","y"]}`},
		{[]string{`l[]="x"`}, `{"l":5}`, `{"l":["x"]}`},
		{[]string{`a="="`}, "{}", `{"a":"="}`},
	} {
		if got, err := document(c.settings, c.base); err != nil || got != c.want {
			t.Errorf("%q over %s: %s, %v", c.settings, c.base, got, err)
		}
	}
	if _, err := document([]string{"a=x"}, ""); err == nil {
		t.Error("a value that is no JSON")
	}
}

// Whatever the driver's document is, ours stands in the result.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{"", "{}", "null", "[]", `{"provider":[]}`, `{"provider":{"openai":null}}`, `{"provider":{"openai":{"options":{"baseURL":1}}},"enabled_providers":"x"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, base string) {
		text, err := document([]string{`provider.openai.options.baseURL="here"`, `enabled_providers[]="openai"`}, base)
		if err != nil {
			return
		}
		var doc struct {
			Provider map[string]struct {
				Options struct{ BaseURL string }
			}
			Enabled []any `json:"enabled_providers"`
		}
		// Another provider of the driver's may have any form.
		json.Unmarshal([]byte(text), &doc)
		if !strings.Contains(text, `"baseURL":"here"`) || !json.Valid([]byte(text)) || !strings.Contains(text, `"openai"]`) {
			t.Errorf("%q became %s", base, text)
		}
	})
}
