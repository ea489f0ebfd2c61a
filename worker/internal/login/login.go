package login

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

const (
	// early is how long before its end a token is renewed.
	early = 5 * time.Minute
	// askWithin bounds one question to the issuer.
	askWithin = 20 * time.Second
	// pause is how long an issuer that could not be reached is left alone, and
	// the least time between two renewals because of a token that was refused.
	pause       = 5 * time.Second
	rejectPause = time.Minute
	lockWithin  = 15 * time.Second
	// coarse is above the step in which file systems count time.
	coarse = 100 * time.Millisecond
)

// Why there is no token.
var (
	ErrEnded   = errors.New("the sign-in has ended: its issuer gives no new token for it")
	ErrAway    = errors.New("the issuer of the sign-in could not be asked for a new token")
	ErrUnsaved = errors.New("the new token of the sign-in could not be written to its file")
	ErrGone    = errors.New("the file of the sign-in is gone, or holds none")
)

// Access is what a request to the vendor carries.
type Access struct {
	Token   secret.Text
	Account string
}

// Store opens each sign-in below one HOME once, so that all boxes share it.
type Store struct {
	home   string
	mu     sync.Mutex
	opened map[string]*Login
}

// NewStore has nothing open yet.
func NewStore(home string) *Store { return &Store{home: home, opened: map[string]*Login{}} }

// Open finds a sign-in by its engine's name.
func (s *Store) Open(name string) (*Login, error) {
	k, ok := kindNamed(name)
	if !ok {
		return nil, reason.New(reason.BadSpec, "the spec is not usable: field broker.logins: there is no sign-in %q that can stay outside", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.opened[name]
	if l == nil {
		l = newLogin(k, s.home)
	}
	if err := l.check(); err != nil {
		return nil, reason.New(reason.BadSpec, "the spec is not usable: field broker.logins: %s cannot be used: %w", filepath.Join("~", k.dir, k.file), err).
			WithHint("sign in outside of a box first: %s", k.signIn)
	}
	s.opened[name] = l
	return l, nil
}

// Login is one sign-in. Its methods may be called at the same time.
type Login struct {
	kind
	home   string
	client *http.Client
	now    func() time.Time

	mu       sync.Mutex
	folder   *folder
	seen     stamp
	held     tokens
	flight   *flight
	ended    tokens // the issuer gives nothing for its refresh token any more
	unsaved  *unsaved
	away     time.Time // when the issuer could not be asked
	rejected secret.Text
	renewed  time.Time // because of a rejected token
}

// flight is a renewal that is under way.
type flight struct {
	done chan struct{}
	got  tokens
	err  error
}

// unsaved is an answer that has to be written before it may be used.
type unsaved struct {
	answer
	posted tokens
	at     time.Time
}

func newLogin(k kind, home string) *Login {
	return &Login{kind: k, home: home, now: time.Now, client: &http.Client{
		Timeout:       askWithin,
		Transport:     &http.Transport{Proxy: nil, TLSHandshakeTimeout: 10 * time.Second, DisableKeepAlives: true, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// check tells whether there is a sign-in at all.
func (l *Login) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.load(); err != nil {
		return err
	}
	if unlock, err := l.folder.flock(0); err == nil {
		l.adoptDrafts()
		unlock()
	}
	return nil
}

// load gives what the file holds; it is read again when it has changed.
func (l *Login) load() (tokens, error) {
	if l.folder == nil {
		folder, err := openFolder(l.home, l.kind)
		if err != nil {
			return tokens{}, err
		}
		l.folder = folder
	}
	seen, err := l.folder.stamp()
	if err != nil {
		return tokens{}, err
	}
	if seen == l.seen {
		return l.held, nil
	}
	b, err := l.folder.read()
	if err != nil {
		return tokens{}, err
	}
	_, t, err := l.parse(b)
	if err != nil {
		return tokens{}, err
	}
	l.seen, l.held = seen, t
	if time.Since(seen.mtime) < coarse {
		l.seen = stamp{} // another write in the same tick would look like this one
	}
	return t, nil
}

// due tells whether a token has to be renewed first.
func (l *Login) due(t tokens) bool {
	if !l.rejected.Empty() && t.equals(l.rejected) {
		return true
	}
	return l.unsaved != nil || !t.expires.IsZero() && !l.now().Add(early).Before(t.expires)
}

// Access gives a token that is good for a while, and is in the file.
func (l *Login) Access(ctx context.Context) (Access, error) {
	l.mu.Lock()
	f := l.flight
	if f == nil {
		t, err := l.load()
		if err != nil {
			l.mu.Unlock()
			return Access{}, ErrGone
		}
		resting := l.unsaved == nil && l.now().Sub(l.away) < pause
		if !l.due(t) || resting && l.valid(t) {
			l.mu.Unlock()
			return Access{t.access, t.account}, nil
		}
		if resting {
			l.mu.Unlock()
			return Access{}, ErrAway
		}
		f = &flight{done: make(chan struct{})}
		l.flight = f
		go l.fly(f)
	}
	l.mu.Unlock()
	select {
	case <-f.done:
		return Access{f.got.access, f.got.account}, f.err
	case <-ctx.Done():
		return Access{}, ctx.Err()
	}
}

// valid tells whether a token is good yet, whatever is due.
func (l *Login) valid(t tokens) bool {
	return (t.expires.IsZero() || l.now().Before(t.expires)) && !t.equals(l.rejected)
}

// Reject notes that the vendor refused a token, which is then renewed before its
// time, but not again and again.
func (l *Login) Reject(token secret.Text) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held.equals(token) && l.now().Sub(l.renewed) >= rejectPause {
		l.rejected, l.renewed = token, l.now()
	}
}

// fly renews. It runs whether or not anybody waits: a refresh token that was
// sent is spent, and its answer must reach the file.
func (l *Login) fly(f *flight) {
	got, err := l.renewLocked()
	l.mu.Lock()
	if err == nil && got.equals(l.rejected) {
		l.rejected = secret.Text{} // nothing newer is to be had
	}
	f.got, f.err, l.flight = got, err, nil
	l.mu.Unlock()
	close(f.done)
}

func (l *Login) renewLocked() (tokens, error) {
	unlock, err := l.folder.flock(lockWithin)
	if err != nil {
		return l.orValid(ErrAway)
	}
	defer unlock()
	l.adoptDrafts()
	if l.locks {
		release, err := lock(filepath.Join(l.home, l.dir), lockWithin)
		if err == nil {
			defer release()
		} else if !errors.Is(err, errLocked) {
			return l.orValid(ErrUnsaved) // what cannot take a folder cannot take a file
		}
	}
	return l.renew(true)
}

// orValid gives the token that is good yet, or the error.
func (l *Login) orValid(err error) (tokens, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, ErrAway) {
		l.away = l.now()
	}
	if t, lerr := l.load(); lerr == nil && l.valid(t) && l.unsaved == nil {
		return t, nil
	}
	return tokens{}, err
}

// renew asks the issuer, unless somebody else did meanwhile. again is false in
// the second try, with a refresh token that came up after the first.
func (l *Login) renew(again bool) (tokens, error) {
	l.mu.Lock()
	t, err := l.load()
	kept, ended, due := l.unsaved, l.ended, l.due(t)
	l.mu.Unlock()
	switch {
	case err != nil:
		return tokens{}, ErrGone
	case !due:
		return t, nil
	case kept == nil && !ended.refresh.Empty() && ended.same(t):
		return l.orValid(ErrEnded)
	}
	d, err := l.folder.draft()
	if err != nil {
		return l.orValid(ErrUnsaved)
	}
	if kept == nil {
		a, err := l.ask(t)
		if err != nil {
			d.drop()
			return l.refused(t, err, again)
		}
		kept = &unsaved{a, t, l.now()}
		l.mu.Lock()
		l.unsaved = kept
		l.mu.Unlock()
	}
	return l.save(d, kept)
}

// refused ends a renewal that the issuer did not grant. The user's own engine
// may have spent the refresh token a moment before us.
func (l *Login) refused(t tokens, err error, again bool) (tokens, error) {
	if !errors.Is(err, ErrEnded) {
		return l.orValid(err)
	}
	l.mu.Lock()
	l.ended = t
	now, lerr := l.load()
	l.mu.Unlock()
	if lerr == nil && !now.same(t) && again {
		return l.renew(false)
	}
	return l.orValid(err)
}

// save writes an answer into the file as it is now. A sign-in of the user's own
// that came up meanwhile and lives longer stays.
func (l *Login) save(d *draft, kept *unsaved) (tokens, error) {
	b, err := l.folder.read()
	if err != nil {
		d.drop()
		return tokens{}, ErrGone
	}
	doc, now, err := l.parse(b)
	if err != nil { // signed out meanwhile: the user's word is the last
		d.drop()
		l.forget()
		return tokens{}, ErrGone
	}
	if !now.same(kept.posted) && now.expires.After(kept.at.Add(time.Duration(kept.ExpiresIn)*time.Second)) {
		d.drop()
		l.forget()
		return now, nil
	}
	content, err := l.kind.renewed(doc, kept.answer, kept.at)
	if err != nil || len(content) > maxFile {
		d.drop()
		return tokens{}, ErrUnsaved
	}
	if err := d.commit(content); err != nil {
		return tokens{}, ErrUnsaved
	}
	l.forget()
	l.mu.Lock()
	defer l.mu.Unlock()
	t, err := l.load()
	if err != nil {
		return tokens{}, ErrGone
	}
	return t, nil
}

func (l *Login) forget() {
	l.mu.Lock()
	l.unsaved = nil
	l.mu.Unlock()
}

// ask sends the refresh token to its issuer.
func (l *Login) ask(t tokens) (answer, error) {
	req, err := http.NewRequest("POST", l.endpoint, bytes.NewReader(l.question(t)))
	if err != nil {
		return answer{}, ErrAway
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	res, err := l.client.Do(req)
	if err != nil {
		return answer{}, ErrAway // its text names addresses
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxFile))
	var a answer
	switch {
	case (res.StatusCode == http.StatusBadRequest || res.StatusCode == http.StatusUnauthorized) && saysError(body):
		return a, ErrEnded
	case err != nil || res.StatusCode != http.StatusOK || json.Unmarshal(body, &a) != nil:
		return a, ErrAway
	case !sendable(a.Access), a.Refresh != "" && !sendable(a.Refresh), a.ExpiresIn < 0, a.ExpiresIn > 10*365*24*3600:
		return a, ErrAway
	}
	return a, nil
}

// saysError tells an issuer's own refusal from that of something in front of it.
func saysError(body []byte) bool {
	var refusal struct {
		Error json.RawMessage `json:"error"`
	}
	return json.Unmarshal(body, &refusal) == nil && len(refusal.Error) > 0
}
