package broker

import (
	"slices"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
)

// boxAddr is where a box reaches the broker: boxentry binds it in the box.
const boxAddr = "http://127.0.0.1:18080"

// engine is an agent's command line program. The environment alone does not
// bring all of them to the broker, so each has launch settings of its own, and
// takes the configuration of its launch rows in one of four ways.
type engine struct {
	name     string
	each     string // an argument before every single setting, path=value
	document string // an argument before one JSON document of them
	variable string // a variable that holds one
	file     string // a file below HOME that holds one, if HOME is the box's own
	why      string
}

var engines = []engine{
	{"claude", "", "--settings", "", "", "argument and environment: a later --settings of the driver's replaces ours, and the environment then still holds"},
	{"codex", "-c", "", "", "", "arguments; it does not read OPENAI_BASE_URL (openai/codex#16719), and -c beats a project's .codex/config.toml"},
	{"gemini", "", "", "", ".gemini/settings.json",
		"environment, and the user's own settings: it refuses a system file that root does not own, and in a box root owns nothing"},
	{"opencode", "", "", "OPENCODE_CONFIG_CONTENT", "", "inline configuration beats the work folder's opencode.json, the environment does not"},
	{"grok", "", "", "", "", "environment; a work folder's .env does not override it"},
	{"antigravity", "", "", "", "", "it signs in with Google; the environment serves the programs that it starts"},
	{"none", "", "", "", "", "any other program: the environment as the SDKs read it"},
}

// launch is what an engine gets when its box holds a provider's grant, or in
// every box with gates when the row names no provider. {grant} stands for the
// grant's URL without a slash at the end, {token} for the token: both are made
// of characters that need no quoting in JSON, TOML or a URL. {base} is the name
// of the provider's base URL variable, which its row in providers says. Every
// row was measured against the engine itself.
type launch struct {
	engine, provider string

	env   []string // NAME=value: whatever else was passed, for another value would lead past the broker
	quiet []string // NAME=value, unless the driver passed the name
	// config are settings as path=value, with a JSON value. A path that ends
	// with [] adds to a list.
	config []string
	// alone are config that would take from the engine what else it was given:
	// only in a box with no sign-in of the engine's own and no raw key.
	alone []string
	// files are path below HOME=content, written if HOME is the box's own.
	files []string
	why   string
}

var launches = []launch{
	{
		engine: "claude",
		quiet:  []string{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"},
		why:    "no telemetry, update or feature look-up at the vendor's beside the turn",
	},
	{
		engine: "claude", provider: "anthropic",
		env:    []string{"ANTHROPIC_AUTH_TOKEN={token}", "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST=1"},
		config: []string{`env.{base}="{grant}"`},
		why: "a work folder's .claude/settings.json overrides the environment (the CVE-2026-21852 class), and so does a driver's --settings; " +
			"with the second variable no settings file chooses the provider, its address, its key or another cloud, and commands do not inherit the token; " +
			"--settings serves a Claude Code that does not know the variable; an API key that was once declined is ignored, an auth token never",
	},
	{
		engine: "codex",
		config: []string{"check_for_update_on_startup=false", "analytics.enabled=false", "features.plugins=false"},
		why:    "no look for updates, no analytics, no marketplace of plugins (four hosts); a driver's own -c comes later and wins",
	},
	{
		engine: "codex", provider: "openai",
		env: []string{"OPENAI_API_KEY={token}", "CODEX_API_KEY={token}"},
		config: []string{
			`openai_base_url="{grant}/v1"`,
			`model_provider="botbox"`,
			`model_providers.botbox={name="OpenAI",base_url="{grant}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}`,
		},
		why: "an entry of our own opens no WebSocket first; the name OpenAI keeps remote compaction; " +
			"openai_base_url serves a caller that asks for the built-in provider",
	},
	{
		engine: "codex", provider: "chatgpt",
		env: []string{"BOTBOX_CHATGPT_TOKEN={token}"},
		config: []string{
			`model_provider="botbox"`,
			`model_providers.botbox={name="OpenAI",base_url="{grant}",env_key="BOTBOX_CHATGPT_TOKEN",wire_api="responses"}`,
		},
		why: "a subscription's sign-in that stays outside: the backend of ChatGPT has no version in its paths; the variable is no SDK's, " +
			"for none of them speaks to that backend",
	},
	{
		engine: "gemini",
		quiet:  []string{"OTEL_SDK_DISABLED=true"},
		config: []string{"privacy.usageStatisticsEnabled=false", "general.enableAutoUpdate=false", "general.enableAutoUpdateNotification=false"},
		why: "no usage statistics, no look for updates; a trusted project's settings send prompts to a telemetry endpoint, " +
			"also with GEMINI_TELEMETRY_ENABLED=false (0.61.0), but not without the library",
	},
	{
		engine: "gemini", provider: "gemini",
		env: []string{
			"GEMINI_API_KEY={token}", "GEMINI_FORCE_FILE_STORAGE=true",
			"GOOGLE_VERTEX_BASE_URL={grant}", "GOOGLE_GENAI_USE_VERTEXAI=false", "GOOGLE_GENAI_USE_GCA=false",
		},
		config: []string{`security.auth.selectedType="gemini-api-key"`},
		why: "the key's name that its API key sign-in reads, and that sign-in: with a base URL it would take another and stop (exit 41); " +
			"without a Secret Service its keychain probe blocks; a work folder's .env sets what the environment does not, so Vertex is named, too",
	},
	{
		engine: "opencode",
		quiet:  []string{"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1"},
		files: []string{
			".config/opencode/node_modules/.package-lock.json={}",
			`.config/opencode/package.json={"dependencies":{"@opencode-ai/plugin":"*"}}`,
			`.config/opencode/package-lock.json={"packages":{"":{"dependencies":{"@opencode-ai/plugin":"*"}}}}`,
		},
		why: "no list of models and no update; it installs the types of its plugins from npm at each start in an empty HOME, " +
			"unless these files say that they are there, and there is no plugin that needs them",
	},
	openCode("anthropic", "anthropic", "/v1", "ANTHROPIC_API_KEY", "its SDK appends /messages without a version"),
	openCode("openai", "openai", "/v1", "OPENAI_API_KEY", "its SDK appends /responses without a version"),
	openCode("gemini", "google", "/v1beta", "GOOGLE_GENERATIVE_AI_API_KEY", "its SDK appends /models without a version"),
	openCode("xai", "xai", "/v1", "XAI_API_KEY", "its SDK appends /chat/completions or /responses without a version"),
	openCode("mistral", "mistral", "/v1", "MISTRAL_API_KEY", "its SDK appends /chat/completions without a version"),
	openCode("groq", "groq", "/v1", "GROQ_API_KEY", "its SDK appends /chat/completions without a version"),
	openCode("cerebras", "cerebras", "/v1", "CEREBRAS_API_KEY", "its SDK appends /chat/completions without a version"),
	openCode("openrouter", "openrouter", "/v1", "OPENROUTER_API_KEY", "its SDK appends /chat/completions without a version"),
	openCode("moonshot", "moonshotai", "/v1", "MOONSHOT_API_KEY", "its SDK appends /chat/completions without a version"),
	openCode("kimi", "kimi-code-plan-cn", "/v1", "KIMI_API_KEY", "its SDK appends /chat/completions without a version"),
	openCode("kimi", "kimi-code-plan-global", "/v1", "KIMI_API_KEY", "the same key under another name; KIMI_BASE_URL says where it belongs"),
	openCode("minimax", "minimax", "/v1", "MINIMAX_API_KEY", "it speaks Anthropic's language and appends /messages"),
	openCode("zen", "opencode", "/v1", "OPENCODE_API_KEY", "OpenCode's own gateway, which speaks both languages"),
}

// openCode is OpenCode's row for a provider, which it knows as id. A project's
// opencode.json can neither move the provider, nor name one of its own and have
// the prompt sent there. It asks for no title of a session: that would be a
// second model request beside the first, refused a second time where the token
// is dead, and OpenCode then takes a second or more to end instead of a tenth.
func openCode(provider, id, suffix, keyName, why string) launch {
	return launch{
		engine: "opencode", provider: provider,
		env: []string{keyName + "={token}"},
		config: []string{
			"provider." + id + `.options.baseURL="{grant}` + suffix + `"`,
			"provider." + id + `.options.apiKey="{token}"`,
			"agent.title.disable=true",
		},
		alone: []string{`enabled_providers[]="` + id + `"`},
		why:   why,
	}
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

// settings fills in how engine e reaches the grants of the turn's keys through
// a token, and how it stays quiet. Without keys there is no token.
func (e engine) settings(token string, turn Turn, to *Issued) error {
	granted := map[string]bool{"": true}
	for _, k := range turn.Keys {
		if k.declaredHost() != "" {
			to.Env[k.EnvName] = token
			continue
		}
		p, ok := providerNamed(k.Provider)
		if !ok {
			continue // newGrants refused it before
		}
		granted[p.name] = true
		if p.baseEnv == "" {
			continue // the engine's launch row has all of it
		}
		if k.Login == "" { // a sign-in has no variable
			to.Env[k.EnvName] = token
		}
		to.Env[p.baseEnv] = grantURL(token, p.name)
		if p.baseHasVersion {
			to.Env[p.baseEnv] += p.version
		}
	}
	var config []string
	for _, l := range launches {
		if l.engine != e.name || !granted[l.provider] {
			continue
		}
		base, _ := BaseURLName(l.provider)
		fill := strings.NewReplacer("{grant}", grantURL(token, l.provider), "{token}", token, "{base}", base)
		put(to.Env, l.env, fill)
		put(to.Quiet, l.quiet, fill)
		put(to.Files, l.files, fill)
		rows := l.config
		if turn.Alone && len(turn.Unbrokered) == 0 {
			rows = append(rows[:len(rows):len(rows)], l.alone...)
		}
		for _, row := range rows {
			config = append(config, fill.Replace(row))
		}
	}
	if err := e.deliver(config, turn.Given, to); err != nil {
		return err
	}
	to.Unbrokered = slices.DeleteFunc(slices.Clone(turn.Unbrokered), func(name string) bool {
		_, ours := to.Env[name]
		return ours // in its place
	})
	if holdsKey(to.Env[e.variable], token) {
		to.Unbrokered = append(to.Unbrokered, e.variable)
		slices.Sort(to.Unbrokered)
	}
	return nil
}

func put(to map[string]string, pairs []string, fill *strings.Replacer) {
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		to[name] = fill.Replace(value)
	}
}

// deliver hands the configuration to the engine in the engine's way.
func (e engine) deliver(config []string, given map[string]string, to *Issued) error {
	if len(config) == 0 {
		return nil
	}
	if e.each != "" {
		for _, row := range config {
			to.Argv = append(to.Argv, e.each, row)
		}
		return nil
	}
	text, err := document(config, given[e.variable])
	switch {
	case err != nil:
		return reason.New(reason.BadSpec, "%s %w", e.variable, err)
	case e.document != "":
		to.Argv = append(to.Argv, e.document, text)
	case e.variable != "":
		to.Env[e.variable] = text
	case e.file != "":
		to.Files[e.file] = text
	}
	return nil
}

func grantURL(token, grant string) string { return boxAddr + "/b/" + token + "/" + grant }
