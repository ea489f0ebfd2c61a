package login

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/openmausbot/botbox/worker/internal/secret"
)

// tokens are what a file holds of a sign-in.
type tokens struct {
	access, refresh secret.Text
	expires         time.Time // zero where nothing tells
	account, scope  string
}

func (t tokens) same(other tokens) bool { return t.refresh.Reveal() == other.refresh.Reveal() }

// equals tells whether its access token is this one.
func (t tokens) equals(token secret.Text) bool {
	return !token.Empty() && t.access.Reveal() == token.Reveal()
}

// document is a whole file: what we do not know in it stays as it is.
type document struct {
	top, inner map[string]json.RawMessage
}

var errNoSignIn = errors.New("it holds no sign-in")

func (k kind) parse(b []byte) (document, tokens, error) {
	var d document
	if json.Unmarshal(b, &d.top) != nil || json.Unmarshal(d.top[k.object], &d.inner) != nil || d.inner == nil {
		return d, tokens{}, errNoSignIn // without the decoder's words: they quote it
	}
	t := tokens{
		access: secret.New(text(d.inner[k.fields.access])), refresh: secret.New(text(d.inner[k.fields.refresh])),
		expires: k.expires(d.inner), account: text(d.inner[k.fields.account]), scope: k.scope,
	}
	var scopes []string
	if json.Unmarshal(d.inner[k.fields.scopes], &scopes) == nil && len(scopes) > 0 {
		t.scope = strings.Join(scopes, " ")
	}
	if !sendable(t.access.Reveal()) || !sendable(t.refresh.Reveal()) || t.account != "" && !sendable(t.account) {
		return d, tokens{}, errNoSignIn
	}
	return d, t, nil
}

// sendable: not empty, visible ASCII, no longer than a header takes.
func sendable(s string) bool {
	return s != "" && len(s) <= 16<<10 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func text(raw json.RawMessage) (s string) {
	json.Unmarshal(raw, &s)
	return s
}

// answer is the issuer's.
type answer struct {
	Access    string `json:"access_token"`
	Refresh   string `json:"refresh_token"`
	ID        string `json:"id_token"`
	Scope     string `json:"scope"`
	ExpiresIn int64  `json:"expires_in"`
}

// question is the body that asks the issuer for new tokens.
func (k kind) question(t tokens) []byte {
	b, err := json.Marshal(map[string]string{
		"grant_type": "refresh_token", "refresh_token": t.refresh.Reveal(), "client_id": k.client, "scope": t.scope,
	})
	if err != nil { // of strings: it cannot fail
		panic(err)
	}
	return b
}

// renewed puts an answer into a document. What the issuer did not send stays.
func (k kind) renewed(d document, a answer, now time.Time) ([]byte, error) {
	set := func(m map[string]json.RawMessage, name string, value any, given bool) {
		if name != "" && given {
			m[name], _ = json.Marshal(value) // strings, numbers and lists of them
		}
	}
	set(d.inner, k.fields.access, a.Access, true)
	set(d.inner, k.fields.refresh, a.Refresh, a.Refresh != "")
	set(d.inner, k.fields.id, a.ID, a.ID != "")
	set(d.inner, k.fields.scopes, strings.Fields(a.Scope), a.Scope != "")
	set(d.inner, k.fields.expires, now.Add(time.Duration(a.ExpiresIn)*time.Second).UnixMilli(), a.ExpiresIn > 0)
	set(d.top, k.fields.renewed, now.UTC().Format(time.RFC3339Nano), true)
	inner, err := json.Marshal(d.inner)
	if err != nil {
		return nil, err
	}
	d.top[k.object] = inner
	return json.MarshalIndent(d.top, "", "  ")
}
