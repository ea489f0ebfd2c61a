package broker

import (
	"net/http"
	"strings"
)

// headerRule is a header that does not cross the broker. A name that ends with
// "*" stands for all names with that beginning.
type headerRule struct{ name, why string }

// overrides ask an upstream to read another method than the one we checked.
var overrides = newHeaderSet([]headerRule{
	{"x-http-method-override", "Google APIs and many frameworks"},
	{"x-http-method", "Microsoft's spelling"},
	{"x-method-override", "another spelling"},
})

const (
	whyCredential = "a credential of the client's; the grant's key is the only one that goes out"
	whyHop        = "belongs to one connection"
	whyOrigin     = "tells the upstream about an address or a page that is none of its business"
	whyRewrite    = "asks the upstream to serve another path than the one we checked"
	whyFraming    = "framing is made anew"
	whyOurs       = "marks the broker's own answers"
)

var requestDrops = newHeaderSet([]headerRule{
	{"authorization", whyCredential},
	{"proxy-authorization", whyCredential},
	{"x-api-key", whyCredential},
	{"api-key", whyCredential},
	{"x-goog-api-key", whyCredential},
	{"x-goog-user-project", "chooses whom Google bills"},
	{"x-goog-iam-*", whyCredential},
	{"x-amz-*", whyCredential},
	{"cookie", whyCredential},
	{"cookie2", whyCredential},
	{"x-auth-token", whyCredential},
	{"x-access-token", whyCredential},
	{"x-functions-key", whyCredential},
	{"ocp-apim-subscription-key", whyCredential},
	{"cf-access-*", whyCredential},
	{"cf-aig-authorization", whyCredential},
	{"openai-organization", "chooses whom OpenAI bills"},
	{"openai-project", "chooses whom OpenAI bills"},
	{"chatgpt-account-id", "chooses whom ChatGPT bills"},

	{"forwarded", whyOrigin},
	{"x-forwarded-*", whyOrigin},
	{"x-real-ip", whyOrigin},
	{"via", whyOrigin},
	{"origin", whyOrigin},
	{"referer", whyOrigin},
	{"x-original-url", whyRewrite},
	{"x-rewrite-url", whyRewrite},

	{"connection", whyHop},
	{"keep-alive", whyHop},
	{"proxy-connection", whyHop},
	{"te", whyHop},
	{"trailer", whyHop},
	{"transfer-encoding", whyHop},
	{"upgrade", whyHop},
	{"content-length", whyFraming},
})

const (
	whyChallenge = "starts a sign-in that cannot work behind a broker, and that engines remember"
	whyBrowser   = "binds an origin of the upstream's, and the box sees another"
	whyUpstream  = "names the upstream; a client that followed it would leave the broker"
	whyTells     = "tells about the upstream's inside"
)

var responseDrops = newHeaderSet([]headerRule{
	{"www-authenticate", whyChallenge},
	{"proxy-authenticate", whyChallenge},
	{"authentication-info", whyChallenge},
	{"proxy-authentication-info", whyChallenge},

	{"set-cookie", whyCredential},
	{"set-cookie2", whyCredential},
	{"authorization", whyCredential},
	{"access-token", whyCredential},
	{"x-access-token", whyCredential},
	{"x-auth-token", whyCredential},
	{"x-api-key", whyCredential},
	{"api-key", whyCredential},
	{"x-goog-api-key", whyCredential},

	{"location", whyUpstream},
	{"content-location", whyUpstream},
	{"refresh", whyUpstream},
	{"link", whyUpstream},
	{"alt-svc", whyUpstream},

	{"clear-site-data", whyBrowser},
	{"report-to", whyBrowser},
	{"reporting-endpoints", whyBrowser},
	{"nel", whyBrowser},
	{"strict-transport-security", whyBrowser},
	{"public-key-pins", whyBrowser},
	{"public-key-pins-report-only", whyBrowser},
	{"access-control-*", whyBrowser},

	{"x-omb-broker", whyOurs},
	{"server-timing", whyTells},
	{"x-envoy-*", whyTells},

	{"connection", whyHop},
	{"keep-alive", whyHop},
	{"proxy-connection", whyHop},
	{"te", whyHop},
	{"trailer", whyHop},
	{"transfer-encoding", whyHop},
	{"upgrade", whyHop},
	{"content-length", whyFraming},
})

// headerSet is a list of rules, made ready for look-ups.
type headerSet struct {
	rules    []headerRule
	exact    map[string]bool
	prefixes []string
}

func newHeaderSet(rules []headerRule) headerSet {
	s := headerSet{rules: rules, exact: map[string]bool{}}
	for _, r := range rules {
		if prefix, wild := strings.CutSuffix(r.name, "*"); wild {
			s.prefixes = append(s.prefixes, prefix)
		} else {
			s.exact[r.name] = true
		}
	}
	return s
}

// has compares without case and takes "_" for "-": CGI and WSGI upstreams fold
// the two, so X_Api_Key would reach them as a second X-Api-Key.
func (s headerSet) has(name string) bool {
	var room [64]byte // no name of a rule is longer; on the stack, for this is asked for each field
	folded := room[:0]
	for i := range min(len(name), len(room)) {
		c := name[i]
		switch {
		case c == '_':
			c = '-'
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		folded = append(folded, c)
	}
	if len(name) <= len(room) && s.exact[string(folded)] {
		return true
	}
	for _, prefix := range s.prefixes {
		if len(folded) >= len(prefix) && string(folded[:len(prefix)]) == prefix {
			return true
		}
	}
	return false
}

func (s headerSet) hasAny(h http.Header) bool {
	for name := range h {
		if s.has(name) {
			return true
		}
	}
	return false
}

// pass copies into dst what may cross: not the names in drops, and not those
// that src's Connection header declares to be for one hop.
func pass(dst, src http.Header, drops headerSet) {
	for name, values := range src {
		if drops.has(name) || namesToken(src["Connection"], name) {
			continue
		}
		dst[name] = append([]string(nil), values...)
	}
}

// namesToken tells whether one of the comma-separated lists holds token.
func namesToken(lists []string, token string) bool {
	for _, list := range lists {
		for part := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}
