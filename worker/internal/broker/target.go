package broker

import (
	"net/url"
	"strings"
)

// target is a request target, split and not decoded: what is forwarded are the
// bytes that the box wrote.
type target struct {
	token, grant string
	path         string // what follows the grant, at least "/"
	query        string
	hasQuery     bool // there was a question mark
	bare         bool // nothing followed the grant, no slash either
}

// splitTarget reads /b/<token>/<grant>[/…][?query]. It only splits; checkPath
// says whether the path may be forwarded.
func splitTarget(raw string) (target, bool) {
	var t target
	path, query, has := strings.Cut(raw, "?")
	t.query, t.hasQuery = query, has
	rest, ok := strings.CutPrefix(path, "/b/")
	if !ok {
		return t, false
	}
	if t.token, rest, ok = strings.Cut(rest, "/"); !ok || t.token == "" {
		return t, false
	}
	t.grant, rest, ok = strings.Cut(rest, "/")
	t.bare = !ok
	t.path = "/" + rest
	return t, t.grant != ""
}

// checkPath tells whether a raw path stays below whatever it is joined to, for
// every way in which an upstream may read it: as it is, decoded once, with a
// backslash as a separator (IIS) or with path parameters cut off (Tomcat).
func checkPath(raw string) bool {
	if !strings.HasPrefix(raw, "/") {
		return false
	}
	for i := range len(raw) {
		if !pathByte(raw[i]) {
			return false
		}
	}
	for segment := range strings.SplitSeq(raw, "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			return false
		}
		for i := range len(plain) {
			// '%' would be a second encoding that hides what is below it.
			if c := plain[i]; c < 0x20 || c == 0x7f || c == '/' || c == '\\' || c == '%' {
				return false
			}
		}
		if name, _, _ := strings.Cut(plain, ";"); name == "." || name == ".." {
			return false
		}
	}
	return true
}

// pathByte: RFC 3986 pchar, "/" and "%".
func pathByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("-._~!$&'()*+,;=:@/%", c) >= 0
}

// checkQuery refuses the bytes that could end a request line.
func checkQuery(raw string) bool {
	for i := range len(raw) {
		if c := raw[i]; c <= 0x20 || c >= 0x7f || c == '#' {
			return false
		}
	}
	return true
}

// matchPath: segment by segment; a "*" at a segment's end stands for the rest
// of that segment, a last segment "**" for any rest or none.
func matchPath(pattern, path string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, w := range want {
		if w == "**" {
			return true
		}
		if i >= len(have) {
			return false
		}
		prefix, wild := strings.CutSuffix(w, "*")
		if have[i] != w && !(wild && strings.HasPrefix(have[i], prefix)) {
			return false
		}
	}
	return len(want) == len(have)
}

// under tells whether path is prefix itself or below it.
func under(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

// credentialParams are query names that hold a credential somewhere. They are
// dropped: the grant's key is the only one that an upstream may see.
var credentialParams = []struct{ name, why string }{
	{"key", "Google APIs, and Gemini's Live API even with a header"},
	{"api_key", "common"},
	{"apikey", "common"},
	{"access_token", "RFC 6750"},
	{"oauth_token", "Google APIs"},
	{"bearer_token", "Google APIs"},
}

// stripQuery drops the credential parameters and leaves every other byte, its
// order and its spelling alone.
func stripQuery(raw string) string {
	if raw == "" {
		return ""
	}
	kept := make([]string, 0, 8)
	dropped := false
	for param := range strings.SplitSeq(raw, "&") {
		if credentialParam(param) {
			dropped = true
			continue
		}
		kept = append(kept, param)
	}
	if !dropped {
		return raw
	}
	return strings.Join(kept, "&")
}

func credentialParam(param string) bool {
	name, _, _ := strings.Cut(param, "=")
	// Only the name is decoded. A name that does not decode is compared raw.
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	for _, c := range credentialParams {
		if strings.EqualFold(name, c.name) {
			return true
		}
	}
	return false
}
