package harness

import (
	"strings"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

const (
	prefix   = "/api/internal/"
	maxPath  = 4 << 10
	maxQuery = 8 << 10
)

// methods is what passes. Names that servers treat specially (CONNECT, TRACE)
// and names that they may not know are not in it.
var methods = map[string]bool{
	"GET": true, "HEAD": true, "POST": true, "PUT": true, "PATCH": true, "DELETE": true, "OPTIONS": true,
}

// pathByte is true for the bytes that mean themselves to every reader of a
// path. Not among them: backslash (a slash to the URL standard), semicolon
// (parameters to some servers), and what a URL cannot hold.
var pathByte = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,=:@/") {
		t[c] = true
	}
	return t
}()

// judge decides on a request line. The target is visible ASCII already.
func judge(method, target string) *gate.Refusal {
	if !methods[method] {
		return gate.Denied("method", "this method is not passed to the server", "Use GET, POST, PUT, PATCH, DELETE or HEAD.")
	}
	path, query, _ := strings.Cut(target, "?")
	if !strings.HasPrefix(path, prefix) {
		return gate.Denied("path", "only /api/internal/ of the server is open to boxes", "Call the server's internal API only.")
	}
	if len(path) > maxPath || len(query) > maxQuery || !plainPath(path) || strings.IndexByte(query, '#') >= 0 {
		return gate.Denied("path", "the path is not in its plain form", "Write the path without dot segments, empty segments and encoded separators.")
	}
	return nil
}

// plainPath tells whether a path has one reading only.
func plainPath(path string) bool {
	for i := 0; i < len(path); i++ {
		if path[i] == '%' {
			if !plainEscape(path[i:]) {
				return false
			}
			i += 2
		} else if !pathByte[path[i]] {
			return false
		}
	}
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		last := i == len(segments)-1
		if s == "." || s == ".." || s == "" && !last {
			return false
		}
	}
	return true
}

// plainEscape takes an escape at the start of s unless it stands for a byte
// that changes the path when some reader decodes it: a dot, either slash, a
// percent sign, a control byte.
func plainEscape(s string) bool {
	if len(s) < 3 {
		return false
	}
	hi, ok1 := hex(s[1])
	lo, ok2 := hex(s[2])
	c := hi<<4 | lo
	return ok1 && ok2 && c >= ' ' && c != 0x7f && strings.IndexByte(`./\%`, c) < 0
}

func hex(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// dropped tells whether a field stays behind: whatever speaks of where a
// request came from or what it really is, which only a trusted proxy may say,
// and cookies, for a box is known by its bearer token alone. Some servers read
// an underscore as a hyphen.
func dropped(key string) bool {
	key = strings.ReplaceAll(key, "_", "-")
	switch key {
	case "forwarded", "x-forwarded", "via", "x-real-ip", "x-cluster-client-ip", "x-original-forwarded-for", "x-original-host", "x-client-ip", "true-client-ip", "cf-connecting-ip", "fly-client-ip",
		"cookie", "cookie2", "x-http-method-override", "x-http-method", "x-method-override",
		"x-original-url", "x-rewrite-url":
		return true
	}
	return strings.HasPrefix(key, "x-forwarded-") || strings.HasPrefix(key, "proxy-")
}

// held tells whether a field of the server's answer stays outside. A cookie of
// the server's would be a session that the box was not given: its bearer is all
// that it has.
func held(key string) bool {
	key = strings.ReplaceAll(key, "_", "-")
	return key == "set-cookie" || key == "set-cookie2"
}
