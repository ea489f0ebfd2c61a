package broker

import "strings"

// provider is one vendor whose key can be replaced by a token, because its
// SDKs and engines take a base URL from outside.
type provider struct {
	name    string   // also the grant's name in the path
	keys    []keyVar // in order: the first that is set is the one that is sent
	baseEnv string
	base    string // upstream when the caller's environment names none
	// version is the path prefix that clients put, or forget, or put twice
	// before an endpoint; empty when there is more than one of them.
	version string
	// baseHasVersion: by this vendor's convention the base URL ends with it.
	baseHasVersion bool
	shape          shape
	routes         []route
	why            string
}

// keyVar is an environment variable that holds a key, and how a key that came
// in it is sent: the vendors tie the header to the variable.
type keyVar struct {
	env    string
	header string
	scheme string // before the key, with its blank
}

// route is something that a grant may ask for. A method or path without a row
// is refused: with a raw pass-through, a key of an administrator would let the
// box make new keys.
type route struct {
	methods string // separated by blanks
	path    string // see matchPath
	local   bool   // answered by the broker, never sent
	why     string
}

const local = true

var providers = []provider{
	{
		name: "anthropic",
		keys: []keyVar{
			{"ANTHROPIC_API_KEY", "X-Api-Key", ""},
			{"ANTHROPIC_AUTH_TOKEN", "Authorization", "Bearer "},
		},
		baseEnv: "ANTHROPIC_BASE_URL", base: "https://api.anthropic.com",
		version: "/v1", shape: anthropicShape,
		routes: []route{
			{"POST GET HEAD", "/v1/messages/**", false, "inference, token counts and batches"},
			{"GET HEAD", "/v1/models/**", false, "model discovery"},
			{"POST GET HEAD DELETE", "/v1/files/**", false, "attachments, which the engine removes again"},
			{"GET HEAD", "/api/hello", local, "Claude Code's probe at start; it asks whether somebody is there, which is us"},
			{"HEAD", "/", local, "the documented form of the same probe"},
		},
		why: "Claude Code and the SDKs take ANTHROPIC_BASE_URL, without /v1",
	},
	{
		name: "openai",
		keys: []keyVar{
			{"OPENAI_API_KEY", "Authorization", "Bearer "},
			{"CODEX_API_KEY", "Authorization", "Bearer "},
		},
		baseEnv: "OPENAI_BASE_URL", base: "https://api.openai.com/v1",
		version: "/v1", baseHasVersion: true, shape: openaiShape,
		routes: []route{
			{"POST GET HEAD", "/v1/responses/**", false, "inference and Codex's remote compaction"},
			{"POST", "/v1/chat/completions", false, "inference of OpenAI-compatible clients"},
			{"GET HEAD", "/v1/models/**", false, "model discovery"},
			{"POST", "/v1/embeddings", false, "search in the engine's own index"},
			{"POST GET HEAD DELETE", "/v1/files/**", false, "attachments, which the engine removes again"},
			{"HEAD", "/", local, "probe at start"},
		},
		why: "the SDKs take OPENAI_BASE_URL, with /v1; Codex needs arguments too, see engines",
	},
	{
		name: "gemini",
		keys: []keyVar{
			{"GEMINI_API_KEY", "X-Goog-Api-Key", ""},
			{"GOOGLE_API_KEY", "X-Goog-Api-Key", ""},
			{"GOOGLE_GENERATIVE_AI_API_KEY", "X-Goog-Api-Key", ""},
		},
		baseEnv: "GOOGLE_GEMINI_BASE_URL", base: "https://generativelanguage.googleapis.com",
		shape: googleShape,
		routes: []route{
			{"POST GET HEAD", "/v1*/models/**", false, "inference and model discovery; clients differ in v1 and v1beta"},
			{"POST GET HEAD", "/v1*/cachedContents/**", false, "context caches"},
			{"POST", "/upload/**", false, "attachments"},
			{"GET HEAD DELETE", "/v1*/files/**", false, "an attachment's state, asked for until it is ready"},
			{"HEAD", "/", local, "probe at start"},
		},
		why: "Gemini CLI and the SDK take GOOGLE_GEMINI_BASE_URL, without a version",
	},
}

// unbrokerable are the credentials that no base URL can bring here. They stay
// raw in the box and the report names them, so that the gap is seen.
var unbrokerable = []struct{ env, why string }{
	{"XAI_API_KEY", "Grok takes no base URL from the environment"},
	{"MISTRAL_API_KEY", "no base URL variable"},
	{"GROQ_API_KEY", "no base URL variable"},
	{"GREENFERENCE_API_KEY", "no base URL variable"},
	{"MODELGO_API_KEY", "no base URL variable"},
	{"CEREBRAS_API_KEY", "no base URL variable"},
	{"MINIMAX_API_KEY", "no base URL variable"},
	{"KIMI_API_KEY", "no base URL variable"},
	{"MOONSHOT_API_KEY", "no base URL variable"},
	{"CURSOR_API_KEY", "the vendor's own protocol, no base URL"},
	{"CURSOR_AUTH_TOKEN", "the vendor's own protocol, no base URL"},
	{"FACTORY_API_KEY", "the vendor's own protocol, no base URL"},
	{"CLINE_API_KEY", "no base URL variable"},
	{"OPENCODE_API_KEY", "OpenCode's own gateway has no base URL variable"},
	{"OPENROUTER_API_KEY", "no base URL variable"},
	{"CLAUDE_CODE_OAUTH_TOKEN", "a sign-in, which Claude Code sends to its vendor only"},
}

func providerNamed(name string) (*provider, bool) {
	for i := range providers {
		if providers[i].name == name {
			return &providers[i], true
		}
	}
	return nil, false
}

// BaseURLName gives the variable that holds a provider's address.
func BaseURLName(provider string) (name string, known bool) {
	p, known := providerNamed(provider)
	if !known {
		return "", false
	}
	return p.baseEnv, true
}

// keyVarNamed gives the variable's place in the order, too.
func (p *provider) keyVarNamed(env string) (keyVar, int, bool) {
	for i, v := range p.keys {
		if v.env == env {
			return v, i, true
		}
	}
	return keyVar{}, 0, false
}

// rule finds the row for a request. path is what follows the grant. The second
// result tells whether the path has a row for any method.
func (p *provider) rule(method, path string) (*route, bool) {
	known := false
	for i := range p.routes {
		r := &p.routes[i]
		at := path
		if !r.local {
			at = p.canonical(path)
		}
		if !matchPath(r.path, at) {
			continue
		}
		known = true
		for m := range strings.FieldsSeq(r.methods) {
			if m == method {
				return r, true
			}
		}
	}
	return nil, known
}

// canonical gives the path with the version exactly once: the SDKs of one
// vendor disagree about who writes it, and a doubled one is their best known
// configuration fault.
func (p *provider) canonical(path string) string {
	if p.version == "" {
		return path
	}
	if under(path, p.version+p.version) {
		return path[len(p.version):]
	}
	if under(path, p.version) {
		return path
	}
	return p.version + path
}

// join gives the upstream's path for path below a base path. Both are raw.
func (p *provider) join(base, path string) string {
	base = strings.TrimSuffix(base, "/")
	path = p.canonical(path)
	if p.version != "" && (p.baseHasVersion || strings.HasSuffix(base, p.version)) {
		path = path[len(p.version):]
	}
	return base + path
}
