package broker

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/login"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// Login is a subscription's sign-in that stays outside.
type Login interface {
	// Access gives a token that is good for a while.
	Access(context.Context) (login.Access, error)
	// Reject notes that the vendor refused one.
	Reject(secret.Text)
}

// loginRow is how a sign-in is sent. It goes to the vendor itself: no setting
// of a spec moves its upstream.
type loginRow struct {
	name     string // of the engine that made it, and may use it
	provider string
	instead  string // of this provider's keys: an engine that has both takes one of them
	beta     string // added to the client's own
	account  string // the header that names the account
	why      string
}

var logins = []loginRow{
	{"claude", "anthropic", "anthropic", "oauth-2025-04-20", "", "what Claude Code sends with its own sign-in, beside the features that it asks for"},
	{"codex", "chatgpt", "openai", "", "Chatgpt-Account-Id", "what Codex sends to the backend of ChatGPT with its own sign-in"},
}

func loginNamed(name string) (loginRow, bool) {
	for _, l := range logins {
		if l.name == name {
			return l, true
		}
	}
	return loginRow{}, false
}

// loginKeys stand for the turn's sign-ins among its keys.
func loginKeys(turn Turn) ([]Key, error) {
	var keys []Key
	for _, name := range turn.Logins {
		row, ok := loginNamed(name)
		if !ok || name != turn.Engine {
			return nil, reason.New(reason.BadSpec, "the spec is not usable: field broker.logins: a box of engine %s has no sign-in %q that can stay outside", turn.Engine, name)
		}
		for _, k := range turn.Keys {
			if k.Provider == row.instead {
				return nil, reason.New(reason.BadSpec, "the spec is not usable: field broker.logins: %s has a key already, in %s", name, k.EnvName)
			}
		}
		keys = append(keys, Key{Provider: row.provider, Login: name})
	}
	return keys, nil
}

// newLoginGrant makes the grant of a sign-in. Its key comes when it is needed.
func newLoginGrant(k Key, limits Limits, around around) (*grant, error) {
	row, known := loginNamed(k.Login)
	p, ok := providerNamed(row.provider)
	if !known || !ok || around.login == nil {
		return nil, reason.New(reason.BadSpec, "the broker knows no sign-in %q", k.Login)
	}
	source, err := around.login(k.Login)
	if err != nil {
		return nil, err
	}
	base, problem := parseUpstream(p.base)
	if problem != "" {
		return nil, reason.New(reason.Internal, "%s %s", p.name, problem)
	}
	g := &grant{
		provider: p, keyVar: keyVar{header: "Authorization", scheme: bearer}, base: base,
		transport: around.transport, login: source, row: row, meter: newMeter(limits),
	}
	if g.transport == nil {
		g.transport = newUpstreams(newTransport())
	}
	g.key.Store(newLiveKey(secret.Text{}, nil)) // sent by no request: see current
	return g, nil
}

// current gives the key for a request, or the code of its refusal.
func (g *grant) current(ctx context.Context) (*liveKey, string) {
	if g.login == nil {
		return g.key.Load(), ""
	}
	access, err := g.login.Access(ctx)
	switch {
	case errors.Is(err, login.ErrEnded), errors.Is(err, login.ErrGone):
		return nil, "login_ended"
	case errors.Is(err, login.ErrUnsaved):
		return nil, "login_unsaved"
	case err != nil:
		return nil, "login_away"
	}
	g.exchangeKey(access.Token)
	key := *g.key.Load()
	key.account = access.Account
	return &key, ""
}

// sign adds what belongs to a sign-in's token.
func (row loginRow) sign(h http.Header, account string) {
	if row.beta != "" && !namesToken(h["Anthropic-Beta"], row.beta) {
		h["Anthropic-Beta"] = []string{strings.Join(append(h["Anthropic-Beta"], row.beta), ",")}
	}
	if row.account != "" && account != "" {
		h[row.account] = []string{account}
	}
}
