package selfcheck

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/report"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// openBroker makes a broker of the self-check's own: what the probe does to its
// token is nothing that the worker's may count, log or keep.
func (o *outside) openBroker() (err error) {
	var options broker.Options
	rand.Read(options.BootKey[:])
	if o.broker, err = broker.New(options); err == nil {
		o.later(func() error { o.broker.Close(); return nil })
	}
	return err
}

// issueTokens makes those that the probe may not use: two of its own box that
// have ended, and one of another box that lives.
func (o *outside) issueTokens() error {
	o.box = "check_" + random()
	revoked, err := o.token(o.box, 0)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go o.broker.Serve(l, o.box)
	address := l.Addr().(*net.TCPAddr).AddrPort()
	if o.lived = o.tokenIs(address, revoked, http.StatusOK); o.lived == nil {
		o.broker.Revoke(o.box)
		o.lived = o.tokenIs(address, revoked, http.StatusUnauthorized)
	}
	const life = 50 * time.Millisecond
	expires, err := o.token(o.box, life)
	if err != nil {
		return err
	}
	o.lived = errors.Join(o.lived, o.tokenIs(address, expires, http.StatusOK))
	for end := deadline(); time.Now().Before(end) && o.tokenIs(address, expires, http.StatusUnauthorized) != nil; {
		time.Sleep(life / 5)
	}
	o.lived = errors.Join(o.lived, o.tokenIs(address, expires, http.StatusUnauthorized))
	o.DeadTokens = []string{revoked, expires}
	return o.openOther()
}

// openOther serves the broker to another box, which has a token and no more.
func (o *outside) openOther() error {
	name := o.box + "_other"
	token, err := o.token(name, 0)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go o.broker.Serve(l, name)
	o.later(l.Close)
	o.other, o.ForeignToken = l.Addr().(*net.TCPAddr).AddrPort(), token
	return nil
}

// ownIs asks for the probe's own token on a listener of its box's that is ours.
func (o *outside) ownIs(token string, want int) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go o.broker.Serve(l, o.box)
	return o.tokenIs(l.Addr().(*net.TCPAddr).AddrPort(), token, want)
}

// endsWithItsEngine looks whether the probe's token is good for anything when
// the probe has ended. Under a mutation it is shown another of the same box.
func (e *evidence) endsWithItsEngine() report.Result {
	token := e.ours
	if e.revive {
		var err error
		if token, err = e.token(e.box, 0); err != nil {
			return unclear("issue a token: %v", err)
		}
	}
	switch err := e.ownIs(token, http.StatusUnauthorized); {
	case err == nil:
		return passed("401")
	case e.ownIs(token, http.StatusOK) == nil:
		return failed("it is good, though its engine has ended")
	default:
		return unclear("call with it: %v", err)
	}
}

// token asks the broker for one, as a turn does.
func (o *outside) token(box string, life time.Duration) (string, error) {
	issued, err := o.broker.Issue(broker.Turn{
		Box: box, Engine: "none", TTL: life,
		Keys: []broker.Key{{Provider: granted, EnvName: keyName, Secret: secret.New(o.key), Upstream: "http://" + o.provider.address.String()}},
	})
	if err != nil {
		return "", err
	}
	return tokenOf(issued.Env[baseName])
}

// tokenOf takes the token out of a base URL.
func tokenOf(base string) (string, error) {
	_, rest, ok := strings.Cut(base, "/b/")
	token, _, _ := strings.Cut(rest, "/")
	if !ok || token == "" {
		return "", errors.New("the broker's address has no token in it")
	}
	return token, nil
}

// tokenIs wants a status for a call with a token.
func (o *outside) tokenIs(address netip.AddrPort, token string, want int) error {
	code, err := status(address, "/b/"+token+"/"+granted+o.Call, "")
	if err == nil && code != want {
		err = fmt.Errorf("it is answered %d", code)
	}
	return err
}
