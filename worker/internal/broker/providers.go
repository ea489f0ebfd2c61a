package broker

import (
	"slices"
	"strings"
)

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
	// anthropicToo: requests with Anthropic's version header carry the key as
	// Anthropic's do.
	anthropicToo bool
	shape        shape
	routes       []route
	why          string
}

// keyVar is an environment variable that holds a key, and how a key that came
// in it is sent: the vendors tie the header to the variable.
type keyVar struct {
	env    string
	header string
	scheme string // before the key, with its blank
	// only names the one engine whose launch settings bring this key here; the
	// key of any other program stays raw, for its program would send a token to
	// the vendor. Empty: every program, by the base URL variable.
	only string
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

const (
	local  = true
	bearer = "Bearer "
)

// chatRoutes and messageRoutes are what the vendors serve that speak OpenAI's or
// Anthropic's language.
var (
	chatRoutes = []route{
		{"POST", "/v1/chat/completions", false, "inference"},
		{"POST GET HEAD", "/v1/responses/**", false, "inference, of the vendors that have it"},
		{"GET HEAD", "/v1/models/**", false, "model discovery"},
	}
	messageRoutes = []route{
		{"POST", "/v1/messages/**", false, "inference and token counts"},
		{"GET HEAD", "/v1/models/**", false, "model discovery"},
	}
)

var providers = []provider{
	{
		name: "anthropic",
		keys: []keyVar{
			{"ANTHROPIC_API_KEY", "X-Api-Key", "", ""},
			{"ANTHROPIC_AUTH_TOKEN", "Authorization", bearer, ""},
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
			{"OPENAI_API_KEY", "Authorization", bearer, ""},
			{"CODEX_API_KEY", "Authorization", bearer, ""},
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
			{"GEMINI_API_KEY", "X-Goog-Api-Key", "", ""},
			{"GOOGLE_API_KEY", "X-Goog-Api-Key", "", ""},
			{"GOOGLE_GENERATIVE_AI_API_KEY", "X-Goog-Api-Key", "", ""},
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
	{
		name: "xai",
		keys: []keyVar{
			{"GROK_API_KEY", "Authorization", bearer, ""},
			{"XAI_API_KEY", "Authorization", bearer, "opencode"},
		},
		baseEnv: "GROK_BASE_URL", base: "https://api.x.ai/v1",
		version: "/v1", baseHasVersion: true, shape: openaiShape, routes: chatRoutes,
		why: "the Grok CLI of npm takes GROK_BASE_URL and GROK_API_KEY; the vendor's own Grok, which takes XAI_API_KEY, has no base URL",
	},
	viaOpenCode("mistral", "MISTRAL", "https://api.mistral.ai/v1", openaiShape),
	viaOpenCode("groq", "GROQ", "https://api.groq.com/openai/v1", openaiShape),
	viaOpenCode("cerebras", "CEREBRAS", "https://api.cerebras.ai/v1", openaiShape),
	viaOpenCode("openrouter", "OPENROUTER", "https://openrouter.ai/api/v1", openaiShape),
	viaOpenCode("moonshot", "MOONSHOT", "https://api.moonshot.ai/v1", openaiShape),
	viaOpenCode("kimi", "KIMI", "https://api.kimi.com/coding/v1", openaiShape),
	viaOpenCode("minimax", "MINIMAX", "https://api.minimax.io/anthropic/v1", anthropicShape),
	{
		name:    "zen",
		keys:    []keyVar{{"OPENCODE_API_KEY", "Authorization", bearer, "opencode"}},
		baseEnv: "OPENCODE_BASE_URL", base: "https://opencode.ai/zen/v1",
		version: "/v1", baseHasVersion: true, anthropicToo: true, shape: openaiShape,
		routes: append(slices.Clone(chatRoutes), messageRoutes...),
		why:    "OpenCode's own gateway, by OpenCode's own setting",
	},
}

// viaOpenCode is a vendor that OpenCode speaks to, and whose base URL it takes
// from its configuration. The variable only tells us the upstream.
func viaOpenCode(name, prefix, base string, s shape) provider {
	p := provider{
		name:    name,
		keys:    []keyVar{{prefix + "_API_KEY", "Authorization", bearer, "opencode"}},
		baseEnv: prefix + "_BASE_URL", base: base,
		version: "/v1", baseHasVersion: true, shape: s, routes: chatRoutes,
		why: "OpenCode takes every provider's base URL from its configuration; other programs take none",
	}
	if s == anthropicShape {
		p.keys[0].header, p.keys[0].scheme, p.routes = "X-Api-Key", "", messageRoutes
	}
	return p
}

// unbrokerable are the credentials that no setting of any engine can bring
// here. They stay raw in the box and the report names them, so that the gap is
// seen, and so do keys of providers whose engine is another one.
var unbrokerable = []struct{ env, why string }{
	{"GREENFERENCE_API_KEY", "no base URL variable"},
	{"MODELGO_API_KEY", "no base URL variable"},
	{"CURSOR_API_KEY", "the vendor's own protocol, no base URL"},
	{"CURSOR_AUTH_TOKEN", "the vendor's own protocol, no base URL"},
	{"FACTORY_API_KEY", "the vendor's own protocol, no base URL"},
	{"CLINE_API_KEY", "no base URL variable"},
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
