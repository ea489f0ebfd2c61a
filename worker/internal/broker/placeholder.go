package broker

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// In a request to a declared host the token stands where the client would put
// the key. It becomes the key in the places that are made for credentials, and
// only when it is the whole of one: a header's value, alone or behind a scheme;
// user or password of Basic; a query's key. Never inside of something longer,
// and never in a body: a model that is asked to would say it backwards.

// credentials are what a request has of them.
type credentials struct {
	tokens  []string // different ones
	foreign bool     // there is one that holds no token
	stray   bool     // there is a token where no credential belongs
}

// hostDrops are the headers that do not go to a declared host.
var hostDrops = newHeaderSet(append(rowsOf(requestDrops.rules, whyHop, whyFraming, whyRewrite),
	headerRule{"proxy-authorization", whyCredential},
	headerRule{"cookie", "a session is a credential of the client's, and none is ever set through here"},
	headerRule{"cookie2", whyCredential},
))

// hostCredentials are the headers that are made for credentials.
var hostCredentials = newHeaderSet(rowsOf(requestDrops.rules, whyCredential))

// hostResponseDrops are those that do not come back from one.
var hostResponseDrops = newHeaderSet(append(rowsOf(responseDrops.rules, whyHop, whyFraming, whyCredential, whyOurs),
	headerRule{"alt-svc", "leads to a protocol that nobody could look into"},
))

func rowsOf(rules []headerRule, reasons ...string) (rows []headerRule) {
	for _, r := range rules {
		if slices.Contains(reasons, r.why) {
			rows = append(rows, r)
		}
	}
	return rows
}

// places looks through a request's head.
func places(r *http.Request) (c credentials) {
	note := func(text string) string {
		if !slices.Contains(c.tokens, text) {
			c.tokens = append(c.tokens, text)
		}
		return ""
	}
	for name, values := range r.Header {
		for _, v := range values {
			if hostDrops.has(name) || name == "Sec-Websocket-Protocol" {
				continue // it goes nowhere, or withoutKeys takes it out
			}
			switch left, ok := swap(v, note); {
			case ok:
				c.stray = c.stray || strings.Contains(left, tokenPrefix)
			case hostCredentials.has(name):
				c.foreign = true
			case strings.Contains(v, tokenPrefix) || strings.Contains(name, tokenPrefix):
				c.stray = true
			}
		}
	}
	path, query, _ := strings.Cut(r.RequestURI, "?")
	c.stray = c.stray || holdsPrefix(path)
	for param := range strings.SplitSeq(query, "&") {
		_, ok := swapParam(param, note)
		c.foreign = c.foreign || !ok && credentialParam(param)
		c.stray = c.stray || !ok && holdsPrefix(param)
	}
	return c
}

// holdsPrefix looks for the beginning of a token, also percent-encoded.
func holdsPrefix(s string) bool {
	plain, err := url.PathUnescape(s)
	return strings.Contains(s, tokenPrefix) || err == nil && strings.Contains(plain, tokenPrefix)
}

// swap puts something in a token's place, where the token is the whole of a
// credential.
func swap(value string, with func(token string) string) (string, bool) {
	if tokenForm(value) {
		return with(value), true
	}
	scheme, rest, ok := strings.Cut(value, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case !ok:
		return value, false
	case tokenForm(rest):
		return scheme + " " + with(rest), true
	case !strings.EqualFold(scheme, "basic"):
		return value, false
	}
	plain, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		plain, err = base64.RawStdEncoding.DecodeString(rest)
	}
	user, password, ok := strings.Cut(string(plain), ":")
	switch {
	case err != nil || !ok:
		return value, false
	case tokenForm(user):
		user = with(user)
	case tokenForm(password):
		password = with(password)
	default:
		return value, false
	}
	return scheme + " " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)), true
}

// swapParam is swap for one parameter of a query.
func swapParam(param string, with func(token string) string) (string, bool) {
	name, value, _ := strings.Cut(param, "=")
	plain, err := url.QueryUnescape(value)
	if err != nil || !credentialParam(param) || !tokenForm(plain) {
		return param, false
	}
	return name + "=" + url.QueryEscape(with(plain)), true
}

// swapped makes the request to a declared host: what the box wrote, with the
// key in the token's places. Another credential beside the token is dropped.
func (g *grant) swapped(ctx context.Context, r *http.Request, t target, body io.ReadCloser, key *liveKey) *http.Request {
	with := key.inPlaceOf
	u := *g.base
	u.RawPath = t.path
	u.Path, _ = url.PathUnescape(t.path) // hostPath has tried it
	u.ForceQuery = t.hasQuery && t.query == ""
	var params []string
	for param := range strings.SplitSeq(t.query, "&") {
		if out, ok := swapParam(param, with); ok || !credentialParam(param) {
			params = append(params, out)
		}
	}
	u.RawQuery = strings.Join(params, "&")

	h := http.Header{}
	pass(h, r.Header, hostDrops)
	for name, values := range h {
		var kept []string
		for _, v := range values {
			if out, ok := swap(v, with); ok || !hostCredentials.has(name) {
				kept = append(kept, out)
			}
		}
		if h[name] = kept; kept == nil {
			delete(h, name)
		}
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // otherwise net/http writes its own
	}
	h["Accept-Encoding"] = []string{"identity"}
	return g.send(ctx, r, &u, h, body)
}

// responseDrops are the headers of the upstream that do not cross.
func (g *grant) responseDrops() headerSet {
	if g.host != "" {
		return hostResponseDrops
	}
	return responseDrops
}
