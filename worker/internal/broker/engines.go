package broker

import "strings"

// boxAddr is where a box reaches the broker: boxentry binds it in the box.
const boxAddr = "http://127.0.0.1:18080"

// engine is an agent's command line program. The environment alone does not
// bring all of them to the broker, so each has launch settings of its own.
type engine struct {
	name      string
	configEnv string // takes {"provider":{…}} made of the launch rows' config
	why       string
}

var engines = []engine{
	{"claude", "", "argument and environment, see launches"},
	{"codex", "", "arguments; it does not read OPENAI_BASE_URL (openai/codex#16719)"},
	{"gemini", "", "environment"},
	{"opencode", "OPENCODE_CONFIG_CONTENT", "inline configuration beats the work folder's opencode.json, the environment does not"},
	{"grok", "", "not measured; the environment serves the programs that it starts"},
	{"antigravity", "", "it signs in with Google; the environment serves the programs that it starts"},
	{"none", "", "any other program: the environment as the SDKs read it"},
}

// launch is what an engine gets when its box holds a provider's grant. In env,
// argv and config, {grant} stands for the grant's URL without a slash at the
// end, {token} for the token. Both are made of characters that need no quoting
// in JSON, TOML or a URL. Every row was measured against the engine itself.
type launch struct {
	engine, provider string
	env              []string // NAME=value
	argv             []string // after the engine's own first word
	config           string
	why              string
}

var launches = []launch{
	{
		engine: "claude", provider: "anthropic",
		env:  []string{"ANTHROPIC_AUTH_TOKEN={token}"},
		argv: []string{"--settings", `{"env":{"ANTHROPIC_BASE_URL":"{grant}"}}`},
		why: "a work folder's .claude/settings.json overrides the environment but not --settings (the CVE-2026-21852 class); " +
			"an API key that was once declined is ignored, an auth token never",
	},
	{
		engine: "codex", provider: "openai",
		env: []string{"OPENAI_API_KEY={token}", "CODEX_API_KEY={token}"},
		argv: []string{
			"-c", `openai_base_url="{grant}/v1"`,
			"-c", `model_provider="botbox"`,
			"-c", `model_providers.botbox={name="OpenAI",base_url="{grant}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}`,
		},
		why: "an entry of our own opens no WebSocket first; the name OpenAI keeps remote compaction; " +
			"openai_base_url serves a caller that asks for the built-in provider",
	},
	{
		engine: "gemini", provider: "gemini",
		env: []string{"GEMINI_API_KEY={token}", "GEMINI_FORCE_FILE_STORAGE=true"},
		why: "the key's name that its API key sign-in reads; without a Secret Service its keychain probe blocks",
	},
	{
		engine: "opencode", provider: "anthropic",
		env:    []string{"ANTHROPIC_API_KEY={token}"},
		config: `"anthropic":{"options":{"baseURL":"{grant}/v1"}}`,
		why:    "its SDK appends /messages without a version",
	},
	{
		engine: "opencode", provider: "openai",
		env:    []string{"OPENAI_API_KEY={token}"},
		config: `"openai":{"options":{"baseURL":"{grant}/v1"}}`,
		why:    "its SDK appends /responses without a version",
	},
	{
		engine: "opencode", provider: "gemini",
		env:    []string{"GEMINI_API_KEY={token}", "GOOGLE_GENERATIVE_AI_API_KEY={token}"},
		config: `"google":{"options":{"baseURL":"{grant}/v1beta"}}`,
		why:    "its SDK appends /models without a version",
	},
}

// engineNamed finds an engine. An ACP agent that we do not know by name is any
// other program.
func engineNamed(name string) (engine, bool) {
	if strings.HasPrefix(name, "acp:") {
		name = "none"
	}
	for _, e := range engines {
		if e.name == name {
			return e, true
		}
	}
	return engine{}, false
}

// settings gives the environment and the arguments with which engine e reaches
// the grants of the keys through a token.
func (e engine) settings(token string, keys []Key) (env map[string]string, argv []string) {
	env = map[string]string{}
	granted := map[string]bool{}
	for _, k := range keys {
		p, ok := providerNamed(k.Provider)
		if !ok {
			continue // newGrants refused it before
		}
		granted[p.name] = true
		env[k.EnvName] = token
		env[p.baseEnv] = grantURL(token, p.name)
		if p.baseHasVersion {
			env[p.baseEnv] += p.version
		}
	}
	var config []string
	for _, l := range launches {
		if l.engine != e.name || !granted[l.provider] {
			continue
		}
		fill := strings.NewReplacer("{grant}", grantURL(token, l.provider), "{token}", token)
		for _, pair := range l.env {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = fill.Replace(value)
		}
		for _, arg := range l.argv {
			argv = append(argv, fill.Replace(arg))
		}
		if l.config != "" {
			config = append(config, fill.Replace(l.config))
		}
	}
	if e.configEnv != "" && len(config) > 0 {
		env[e.configEnv] = `{"provider":{` + strings.Join(config, ",") + `}}`
	}
	return env, argv
}

func grantURL(token, grant string) string { return boxAddr + "/b/" + token + "/" + grant }
