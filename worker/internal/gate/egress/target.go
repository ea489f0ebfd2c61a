package egress

import (
	"strings"

	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/http1"
)

// connectTarget reads the target of a CONNECT: HOST:PORT and nothing else.
func connectTarget(req *http1.Request) (hostport.Host, *gate.Refusal) {
	if req.Framing.Kind != http1.None {
		return hostport.Host{}, gate.Malformed("CONNECT has no body") // RFC 9110 §9.3.6
	}
	if strings.ContainsAny(req.Target, `/\?#`) {
		return hostport.Host{}, gate.Malformed("CONNECT takes HOST:PORT, not a URL")
	}
	h, err := hostport.Parse(req.Target)
	if err != nil {
		return hostport.Host{}, gate.Malformed(err.Error())
	}
	return h, nil
}

const scheme = "http://"

// urlTarget splits an absolute http URL into its host and the bytes behind
// it, which go to the origin as they are.
func urlTarget(req *http1.Request) (h hostport.Host, path string, r *gate.Refusal) {
	if req.Method == "TRACE" { // it would echo what other parts added
		return h, "", &gate.Refusal{Status: 405, Class: "method", Reason: "TRACE is not passed on", Hint: "Use another method.", ProxyStatus: "http_request_denied"}
	}
	t := req.Target
	if len(t) < len(scheme) || !strings.EqualFold(t[:len(scheme)], scheme) {
		return h, "", wrongForm(t)
	}
	if strings.IndexByte(t, '#') >= 0 {
		return h, "", gate.Malformed("a fragment (#) is never sent to a server")
	}
	authority, path := t[len(scheme):], ""
	if i := strings.IndexAny(authority, "/?"); i >= 0 {
		authority, path = authority[:i], authority[i:]
	}
	h, err := hostport.ParseDefault(authority, 80)
	if err != nil {
		return h, "", gate.Malformed(err.Error())
	}
	// An inner Host that differs would reach another site than the one that
	// was judged (codex PR#13275).
	if v, n := req.Fields.Get("host"); n == 1 {
		if other, err := hostport.ParseDefault(v, 80); err != nil || other != h {
			return h, "", gate.Malformed("the Host field differs from the URL")
		}
	}
	switch {
	case path == "" && req.Method == "OPTIONS":
		path = "*" // RFC 9112 §3.2.4
	case path == "" || path[0] == '?':
		path = "/" + path
	}
	return h, path, nil
}

// wrongForm says what is wrong with a target that is no http URL.
func wrongForm(target string) *gate.Refusal {
	name, _, isURL := strings.Cut(target, "://")
	switch {
	case isURL && strings.EqualFold(name, "https"):
		return gate.Malformed("use CONNECT for https")
	case isURL:
		return gate.Malformed("only http URLs and CONNECT are served")
	}
	r := gate.Malformed("this is a proxy: send http://HOST/PATH or CONNECT")
	r.Hint = "Set HTTP_PROXY and HTTPS_PROXY to this address; do not open it as a site."
	return r
}

// hostField leaves the default port out, for some origins compare the field.
func hostField(h hostport.Host) string { return strings.TrimSuffix(h.String(), ":80") }
