package boxenv

// The engines by the names that --engine takes.
const (
	claude   = "claude"
	codex    = "codex"
	gemini   = "gemini"
	opencode = "opencode"
	grok     = "grok"
	all      = ""
)

// table is read from above; the first row that fits decides. Its parts are:
// keys that are one engine's own, refusals, our names, the rest of our names,
// the broker's names, what passes.
var table = concat(ownKeys, refused, ourNames, ourRest, brokered, passed)

func concat(parts ...[]Row) []Row {
	var rows []Row
	for _, part := range parts {
		rows = append(rows, part...)
	}
	return rows
}

// ownKeys are keys of the workspace's own features which are also an engine's
// key. Only in a box of that engine are they the broker's; everywhere else the
// rows of refused keep them out.
var ownKeys = []Row{
	{"XAI_API_KEY", grok, Credential, "the engine's own key"},
	{"XAI_API_KEY", opencode, Credential, "a provider that OpenCode speaks to"},
	{"MISTRAL_API_KEY", opencode, Credential, "a provider that OpenCode speaks to"},
	{"CEREBRAS_API_KEY", opencode, Credential, "a provider that OpenCode speaks to"},
	{"OPENCODE_API_KEY", opencode, Credential, "the engine's own key"},
	{"GROK_API_KEY", grok, Credential, "the engine's own key"},
}

// ourNames is BOX_ENV_OMB_NAMES: of the chat server's own variables, the ones
// that an engine, its hooks and its MCP helpers read.
var ourNames = []Row{
	{"OMB_HARNESS_URL", all, Pass, "where the helpers find the harness gate"},
	{"OMB_BOT_ID", all, Pass, "whose turn this is"},
	{"OMB_THREAD_ID", all, Pass, "whose turn this is"},
	{"OMB_COMMS_TOKEN", all, Pass, "this turn's bearer at the harness gate"},
	{"OMB_TURN_DEPTH", all, Pass, "how deep one bot has asked another"},
	{"OMB_CONTROL_URL", all, Pass, "computer control, through the harness gate"},
	{"OMB_CONTROL_TOKEN", all, Pass, "this turn's bearer for computer control"},
	{"OMB_CONTROL_WAIT_MS", all, Pass, "timing of computer control"},
	{"OMB_CONTROL_POLL_MS", all, Pass, "timing of computer control"},
	{"OMB_CONNECTOR_UPSTREAM_URL", all, Pass, "connected apps, through the harness gate"},
	{"OMB_HOOK_URL", all, Pass, "where the hook helper reports"},
	{"OMB_HOOK_TOKEN_FILE", all, Pass, "where the hook helper's bearer lies"},
	{"OMB_HOOK_NODE", all, Pass, "the program that runs the hook helper"},
	{"OMB_HOOK_HELPER", all, Pass, "the hook helper"},
	{"OMB_HOOK_TIMEOUT_MS", all, Pass, "timing of the hook helper"},
	{"OMB_GATED_MCP_COMMAND", all, Pass, "the MCP server behind the approval helper"},
	{"OMB_GATED_MCP_ARGS", all, Pass, "the MCP server behind the approval helper"},
	{"OMB_CLAUDE_INHERIT_USER_CONFIG", claude, Pass, "whether Claude Code reads the user's own settings"},
	{"OGB_BOX_ID", all, Pass, "which remote computer a bot uses"},
	{"OGB_BOX_API", all, Pass, "where that computer answers"},
	{"OMB_MANAGED_CODEX_TOKEN", codex, Credential, "a key of the hosted service"},
}

// ourRest keeps out every other name of ours, those of next year among them.
var ourRest = []Row{
	{"OMB_*", all, Refused, "a setting of the chat server or of the box that nothing in a box reads"},
	{"OGB_*", all, Refused, "a setting of the chat server that nothing in a box reads"},
	{"OPENMAUSBOT_QWEN_*_API_KEY", all, Credential, "a provider key of Qwen Code"},
	{"OPENMAUSBOT_*", all, Refused, "access to the chat server itself"},
}

// brokered are names whose value the broker takes: keys, what carries keys,
// and base URLs, which tell it the upstream and become its own address.
var brokered = []Row{
	{"ANTHROPIC_API_KEY", all, Credential, "a provider key"},
	{"ANTHROPIC_AUTH_TOKEN", all, Credential, "a provider key"},
	{"ANTHROPIC_BASE_URL", all, Credential, "the broker's upstream; becomes the broker's address"},
	{"ANTHROPIC_CUSTOM_HEADERS", all, Credential, "headers, which may carry keys"},
	{"CLAUDE_CODE_OAUTH_TOKEN", claude, Credential, "a subscription's token"},
	{"OPENAI_API_KEY", all, Credential, "a provider key"},
	{"OPENAI_BASE_URL", all, Credential, "the broker's upstream; becomes the broker's address"},
	{"CODEX_API_KEY", codex, Credential, "a provider key"},
	{"GEMINI_API_KEY", all, Credential, "a provider key"},
	{"GOOGLE_API_KEY", all, Credential, "a provider key"},
	{"GOOGLE_GENERATIVE_AI_API_KEY", all, Credential, "a provider key"},
	{"GOOGLE_GEMINI_BASE_URL", all, Credential, "the broker's upstream; becomes the broker's address"},
	{"GOOGLE_VERTEX_BASE_URL", gemini, Credential, "the broker's upstream; becomes the broker's address"},
	{"GEMINI_CLI_CUSTOM_HEADERS", gemini, Credential, "headers, which may carry keys"},
	{"OPENCODE_CONFIG_CONTENT", opencode, Credential, "settings, which may carry keys; the broker's lie over them"},
	{"GROK_BASE_URL", grok, Credential, "the broker's upstream; becomes the broker's address"},
	{"GROK_BASE_URL", opencode, Credential, "the broker's upstream for XAI_API_KEY"},
	{"MISTRAL_BASE_URL", opencode, Credential, "the broker's upstream"},
	{"GROQ_BASE_URL", opencode, Credential, "the broker's upstream"},
	{"CEREBRAS_BASE_URL", opencode, Credential, "the broker's upstream"},
	{"OPENROUTER_BASE_URL", opencode, Credential, "the broker's upstream"},
	{"MOONSHOT_BASE_URL", opencode, Credential, "the broker's upstream"},
	{"KIMI_BASE_URL", opencode, Credential, "the broker's upstream"},
	{"MINIMAX_BASE_URL", opencode, Credential, "the broker's upstream"},
	{"OPENCODE_BASE_URL", opencode, Credential, "the broker's upstream"},
	{"GROQ_API_KEY", all, Credential, "a provider key"},
	{"OPENROUTER_API_KEY", all, Credential, "a provider key"},
	{"KIMI_API_KEY", all, Credential, "a provider key"},
	{"MOONSHOT_API_KEY", all, Credential, "a provider key"},
	{"MINIMAX_API_KEY", all, Credential, "a provider key"},
	{"CURSOR_API_KEY", all, Credential, "a provider key"},
	{"CURSOR_AUTH_TOKEN", all, Credential, "a provider key"},
	{"FACTORY_API_KEY", all, Credential, "a provider key"},
	{"CLINE_API_KEY", all, Credential, "a provider key"},
	{"GREENFERENCE_API_KEY", all, Credential, "a provider key"},
	{"MODELGO_API_KEY", all, Credential, "a provider key"},
}

var passed = []Row{
	{"HOME", all, Pass, "where the engine keeps its state; the plan sets it by the box's own HOME"},
	{"PATH", all, Pass, "where programs are"},
	{"USER", all, Pass, "what a shell expects"},
	{"LOGNAME", all, Pass, "what a shell expects"},
	{"SHELL", all, Pass, "what a shell expects"},
	{"TERM", all, Pass, "what the terminal can do"},
	{"COLORTERM", all, Pass, "what the terminal can do"},
	{"TERM_PROGRAM", all, Pass, "which terminal it is"},
	{"TERM_PROGRAM_VERSION", all, Pass, "which terminal it is"},
	{"COLUMNS", all, Pass, "how wide the terminal is"},
	{"LINES", all, Pass, "how high the terminal is"},
	{"NO_COLOR", all, Pass, "colours in output"},
	{"FORCE_COLOR", all, Pass, "colours in output"},
	{"CLICOLOR", all, Pass, "colours in output"},
	{"CLICOLOR_FORCE", all, Pass, "colours in output"},
	{"LANG", all, Pass, "language and encoding"},
	{"LANGUAGE", all, Pass, "language and encoding"},
	{"LC_*", all, Pass, "language and encoding"},
	{"TZ", all, Pass, "time zone"},
	{"CI", all, Pass, "no questions, please"},
	{"XDG_CONFIG_HOME", all, Pass, "where programs keep their state"},
	{"XDG_DATA_HOME", all, Pass, "where programs keep their state"},
	{"XDG_CACHE_HOME", all, Pass, "where programs keep their state"},
	{"XDG_STATE_HOME", all, Pass, "where programs keep their state"},
	{"GIT_AUTHOR_NAME", all, Pass, "whose commits these are"},
	{"GIT_AUTHOR_EMAIL", all, Pass, "whose commits these are"},
	{"GIT_COMMITTER_NAME", all, Pass, "whose commits these are"},
	{"GIT_COMMITTER_EMAIL", all, Pass, "whose commits these are"},
	{"GIT_TERMINAL_PROMPT", all, Pass, "whether git may ask"},
	{"NPM_CONFIG_LOGLEVEL", all, Pass, "keeps npm's words out of a stdio MCP stream"},
	{"PYTHONUNBUFFERED", all, Pass, "output of a Python MCP server at once"},
	{"PYTHONIOENCODING", all, Pass, "encoding of a Python MCP server"},
	{"PYTHONDONTWRITEBYTECODE", all, Pass, "no litter in the work folder"},
	{"SSL_CERT_FILE", all, Pass, "a company's own roots; trusted in this box only"},
	{"SSL_CERT_DIR", all, Pass, "a company's own roots; trusted in this box only"},
	{"NODE_EXTRA_CA_CERTS", all, Pass, "a company's own roots; trusted in this box only"},
	{"REQUESTS_CA_BUNDLE", all, Pass, "a company's own roots; trusted in this box only"},
	{"CURL_CA_BUNDLE", all, Pass, "a company's own roots; trusted in this box only"},
	{"GIT_SSL_CAINFO", all, Pass, "a company's own roots; trusted in this box only"},
	{"PIP_CERT", all, Pass, "a company's own roots; trusted in this box only"},
	{"CARGO_HTTP_CAINFO", all, Pass, "a company's own roots; trusted in this box only"},
	{"FACTORY_HOME_OVERRIDE", all, Pass, "where Droid keeps its state"},
	{"KIMI_CODE_HOME", all, Pass, "where Kimi keeps its state"},

	{"CLAUDE_CONFIG_DIR", claude, Pass, "where the engine keeps its state"},
	{"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", claude, Pass, "set by the driver: no task outlives its turn"},
	{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", claude, Pass, "fewer requests"},
	{"CLAUDE_CODE_MAX_OUTPUT_TOKENS", claude, Pass, "limits of the engine"},
	{"CLAUDE_CODE_SUBAGENT_MODEL", claude, Pass, "which model"},
	{"MAX_THINKING_TOKENS", claude, Pass, "limits of the engine"},
	{"MAX_MCP_OUTPUT_TOKENS", claude, Pass, "limits of the engine"},
	{"MCP_TIMEOUT", claude, Pass, "timing of MCP servers"},
	{"MCP_TOOL_TIMEOUT", claude, Pass, "timing of MCP servers"},
	{"API_TIMEOUT_MS", claude, Pass, "timing of the provider"},
	{"BASH_DEFAULT_TIMEOUT_MS", claude, Pass, "timing of commands"},
	{"BASH_MAX_TIMEOUT_MS", claude, Pass, "timing of commands"},
	{"ANTHROPIC_MODEL", claude, Pass, "which model"},
	{"ANTHROPIC_SMALL_FAST_MODEL", claude, Pass, "which model"},
	{"ANTHROPIC_DEFAULT_*_MODEL", claude, Pass, "which model"},
	{"ANTHROPIC_BETAS", claude, Pass, "which features of the provider"},
	{"DISABLE_TELEMETRY", claude, Pass, "fewer requests"},
	{"DISABLE_ERROR_REPORTING", claude, Pass, "fewer requests"},
	{"DISABLE_AUTOUPDATER", claude, Pass, "the image is read-only"},

	{"CODEX_HOME", codex, Pass, "where the engine keeps its state"},
	{"RUST_LOG", codex, Pass, "how much the engine logs"},

	{"GEMINI_MODEL", gemini, Pass, "which model"},
	{"GEMINI_API_KEY_AUTH_MECHANISM", gemini, Pass, "which header the key rides in"},
	{"GOOGLE_GENAI_USE_VERTEXAI", gemini, Pass, "which of the provider's services"},
	{"GOOGLE_GENAI_USE_GCA", gemini, Pass, "which of the provider's services"},
	{"GOOGLE_GENAI_API_VERSION", gemini, Pass, "which version of the provider's service"},
	{"GOOGLE_CLOUD_PROJECT", gemini, Pass, "which project pays"},
	{"GOOGLE_CLOUD_LOCATION", gemini, Pass, "which region answers"},
	{"GEMINI_CLI_TRUST_WORKSPACE", gemini, Pass, "set by the driver: whether the project's settings are read"},
	{"OTEL_SDK_DISABLED", gemini, Pass, "telemetry of the operator's own; ours turns it off"},

	{"OPENCODE_CONFIG", opencode, Pass, "where the engine's settings are"},
	{"OPENCODE_CONFIG_DIR", opencode, Pass, "where the engine's settings are"},
	{"OPENCODE_PERMISSION", opencode, Pass, "what the engine asks about"},
	{"OPENCODE_DISABLE_AUTOUPDATE", opencode, Pass, "the image is read-only"},
	{"OPENCODE_DISABLE_MODELS_FETCH", opencode, Pass, "fewer requests"},
	{"OPENCODE_DISABLE_PROJECT_CONFIG", opencode, Pass, "whether the project's settings are read"},

	{"GROK_HOME", grok, Pass, "where the engine keeps its state"},
	{"GROK_MODEL", grok, Pass, "which model"},
}
