package login

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// issuer hands out tokens. A refresh token works once.
type issuer struct {
	*httptest.Server
	t      *testing.T
	mu     sync.Mutex
	good   string // the refresh token that works
	n      int
	bodies []string
	before func() // called before it answers
	status int    // of every answer, when it is not 200
	jwt    bool   // Codex's kind
}

func newIssuer(t *testing.T, good string) *issuer {
	i := &issuer{t: t, good: good}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.bodies = append(i.bodies, string(b))
	var q struct {
		Refresh string `json:"refresh_token"`
		Grant   string `json:"grant_type"`
		Client  string `json:"client_id"`
	}
	json.Unmarshal(b, &q)
	if i.before != nil {
		i.before()
	}
	switch {
	case i.status != 0:
		w.WriteHeader(i.status)
		io.WriteString(w, "<html>the proxy's own words</html>")
	case q.Grant != "refresh_token" || q.Client == "" || q.Refresh != i.good:
		w.WriteHeader(400)
		io.WriteString(w, `{"error":"invalid_grant"}`)
	default:
		i.n++
		i.good = fmt.Sprintf("refresh-%d", i.n)
		access := fmt.Sprintf("access-%d", i.n)
		if i.jwt {
			access = jwt(time.Now().Add(time.Hour), access)
		}
		fmt.Fprintf(w, `{"access_token":%q,"refresh_token":%q,"expires_in":3600,"scope":"user:inference user:profile","id_token":"id-%d"}`, access, i.good, i.n)
	}
}

func (i *issuer) asked() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.bodies)
}

func jwt(exp time.Time, id string) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"exp":%d,"jti":%q}`, exp.Unix(), id)) + ".x"
}

func claudeFile(access, refresh string, expires time.Time) string {
	return fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"refreshToken":%q,"expiresAt":%d,"scopes":["user:inference"],"subscriptionType":"max","new":{"x":12345678901234567890}},"mcpOAuth":{"keep":"this"}}`,
		access, refresh, expires.UnixMilli())
}

// signedIn makes a HOME with a sign-in, and its Login with a stand-in issuer.
func signedIn(t *testing.T, name, content string, i *issuer) (*Login, string) {
	t.Helper()
	k, _ := kindNamed(name)
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, k.dir), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(home, k.dir, k.file)
	write(t, path, content)
	k.endpoint = i.URL
	l := newLogin(k, home)
	if err := l.check(); err != nil {
		t.Fatal(err)
	}
	return l, path
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func access(t *testing.T, l *Login) string {
	t.Helper()
	a, err := l.Access(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return a.Token.Reveal()
}

func TestATokenThatIsGoodIsUsed(t *testing.T) {
	i := newIssuer(t, "refresh-0")
	l, path := signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now().Add(time.Hour)), i)
	before := read(t, path)
	if got := access(t, l); got != "access-0" || i.asked() != 0 || read(t, path) != before {
		t.Errorf("%s, %d questions", got, i.asked())
	}
}

// Fifty requests, one renewal; the file holds the new tokens before anybody has
// them, with all else as it was, closed to others.
func TestOneRenewalForAll(t *testing.T) {
	i := newIssuer(t, "refresh-0")
	l, path := signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now().Add(4*time.Minute)), i)
	i.before = func() { time.Sleep(50 * time.Millisecond) }
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			a, err := l.Access(context.Background())
			if err != nil || a.Token.Reveal() != "access-1" {
				t.Errorf("%v %v", a.Token.Reveal(), err)
			}
			if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), "refresh-1") {
				t.Errorf("used before it was written: %s %v", b, err)
			}
		})
	}
	all.Wait()
	if i.asked() != 1 {
		t.Errorf("%d questions", i.asked())
	}
	var whole struct {
		Claude map[string]json.RawMessage `json:"claudeAiOauth"`
		MCP    map[string]string          `json:"mcpOAuth"`
	}
	if err := json.Unmarshal([]byte(read(t, path)), &whole); err != nil {
		t.Fatal(err)
	}
	if string(whole.Claude["new"]) != "{\n      \"x\": 12345678901234567890\n    }" || whole.MCP["keep"] != "this" || string(whole.Claude["subscriptionType"]) != `"max"` ||
		!strings.Contains(string(whole.Claude["scopes"]), "user:profile") {
		t.Errorf("%s", read(t, path))
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("%v", info.Mode())
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*botbox*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(filepath.Dir(path) + ".lock"); err == nil {
		t.Error("the lock was left")
	}
	if !strings.Contains(i.bodies[0], `"scope":"user:inference"`) || !strings.Contains(i.bodies[0], l.kind.client) {
		t.Errorf("%s", i.bodies[0])
	}
}

func TestCodex(t *testing.T) {
	i := newIssuer(t, "refresh-0")
	i.jwt = true
	file := fmt.Sprintf(`{"OPENAI_API_KEY":null,"tokens":{"id_token":"id-0","access_token":%q,"refresh_token":"refresh-0","account_id":"acc-1"},"last_refresh":"2026-01-01T00:00:00Z"}`,
		jwt(time.Now().Add(time.Minute), "access-0"))
	l, path := signedIn(t, "codex", file, i)
	a, err := l.Access(context.Background())
	if err != nil || a.Account != "acc-1" || !strings.Contains(a.Token.Reveal(), ".") || i.asked() != 1 {
		t.Errorf("%+v %v", a, err)
	}
	now := read(t, path)
	if !strings.Contains(now, `"id-1"`) || !strings.Contains(now, "refresh-1") || strings.Contains(now, "2026-01-01") || !strings.Contains(now, `"OPENAI_API_KEY": null`) {
		t.Errorf("%s", now)
	}
	access(t, l)
	if i.asked() != 1 {
		t.Error("asked again for a token that is good")
	}
}

// A refresh token that was revoked is asked for once, not by every request, and
// a new sign-in of the user's mends it.
func TestARevokedRefreshToken(t *testing.T) {
	i := newIssuer(t, "another")
	l, path := signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now().Add(-time.Hour)), i)
	for range 5 {
		if _, err := l.Access(context.Background()); !errors.Is(err, ErrEnded) {
			t.Errorf("%v", err)
		}
	}
	if i.asked() != 1 {
		t.Errorf("%d questions", i.asked())
	}
	write(t, path, claudeFile("access-9", "refresh-9", time.Now().Add(time.Hour)))
	if got := access(t, l); got != "access-9" {
		t.Errorf("%s", got)
	}
	os.Remove(path)
	if _, err := l.Access(context.Background()); !errors.Is(err, ErrGone) {
		t.Errorf("signed out: %v", err)
	}
}

// While the issuer is away a token that is good yet is used, and one that is not
// is an error; nothing hammers.
func TestTheIssuerIsAway(t *testing.T) {
	for _, status := range []int{500, 429, 403, 302, 400} {
		i := newIssuer(t, "refresh-0")
		i.status = status
		l, path := signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now().Add(2*time.Minute)), i)
		for range 5 {
			if got := access(t, l); got != "access-0" {
				t.Errorf("%d: %s", status, got)
			}
		}
		if i.asked() != 1 {
			t.Errorf("%d: %d questions", status, i.asked())
		}
		write(t, path, claudeFile("access-0", "refresh-0", time.Now().Add(-2*time.Minute)))
		for range 5 {
			if _, err := l.Access(context.Background()); !errors.Is(err, ErrAway) {
				t.Errorf("%d: %v", status, err)
			}
		}
		i.status = 0
		l.now = func() time.Time { return time.Now().Add(pause) }
		if got := access(t, l); got != "access-1" {
			t.Errorf("%d, it is back: %s", status, got)
		}
	}
}

// The user's own engine renewed while we asked: with our refresh token, so that
// the issuer refuses us, or with a sign-in that lives longer than ours.
func TestTheUsersOwnRenewalWins(t *testing.T) {
	i := newIssuer(t, "spent")
	l, path := signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now()), i)
	i.before = func() { write(t, path, claudeFile("theirs", "refresh-theirs", time.Now().Add(time.Hour))) }
	if got := access(t, l); got != "theirs" || i.asked() != 1 {
		t.Errorf("refused: %s, %d questions", got, i.asked())
	}

	i = newIssuer(t, "refresh-0")
	l, path = signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now()), i)
	i.before = func() { write(t, path, claudeFile("theirs", "refresh-theirs", time.Now().Add(2*time.Hour))) }
	if got := access(t, l); got != "theirs" || !strings.Contains(read(t, path), "refresh-theirs") {
		t.Errorf("lives longer: %s %s", got, read(t, path))
	}

	i = newIssuer(t, "refresh-0")
	l, path = signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now()), i)
	i.before = func() { os.Remove(path); write(t, path, `{}`) }
	if _, err := l.Access(context.Background()); !errors.Is(err, ErrGone) || read(t, path) != "{}" {
		t.Errorf("signed out meanwhile: %v %s", err, read(t, path))
	}

	i = newIssuer(t, "refresh-0")
	l, path = signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now()), i)
	i.before = func() {
		write(t, path, strings.Replace(claudeFile("access-0", "refresh-0", time.Now()), `"this"`, `"that"`, 1))
	}
	if got := access(t, l); got != "access-1" || !strings.Contains(read(t, path), `"that"`) {
		t.Errorf("another setting changed: %s %s", got, read(t, path))
	}
}

// A disk that takes nothing costs no refresh token, and one that filled up in
// the middle keeps the answer from being used, but not from being kept.
func TestTheFileCannotBeWritten(t *testing.T) {
	i := newIssuer(t, "refresh-0")
	l, path := signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now()), i)
	dir := filepath.Dir(path)
	// A folder in the draft's way, for root may write anywhere.
	l.folder.name, l.kind.file = "no/such.json", "no/such.json"
	if _, err := l.folder.draft(); err == nil {
		t.Fatal("a draft was made")
	}
	l.folder.name, l.kind.file = ".credentials.json", ".credentials.json"
	i.before = func() { // its folder is exchanged while the issuer answers
		os.Rename(dir, dir+"2")
		os.RemoveAll(dir + "2/.credentials.json")
		os.MkdirAll(dir+"2/.credentials.json/x", 0o700)
	}
	if _, err := l.Access(context.Background()); err == nil {
		t.Error("a token came that is in no file")
	}
	if l.unsaved == nil || i.asked() != 1 {
		t.Fatalf("the answer was lost: %v, %d questions", l.unsaved, i.asked())
	}
	os.RemoveAll(dir + "2/.credentials.json")
	write(t, dir+"2/.credentials.json", claudeFile("access-0", "refresh-0", time.Now()))
	os.Rename(dir+"2", dir)
	if got := access(t, l); got != "access-1" || i.asked() != 1 || !strings.Contains(read(t, path), "refresh-1") {
		t.Errorf("%s, %d questions, %s", got, i.asked(), read(t, path))
	}
}

// No room for the draft: the issuer is not asked, and the token that is good yet
// is used.
func TestADiskThatIsFull(t *testing.T) {
	if os.Getenv("BOTBOX_TEST_FULL") == "" { // the limit would hold for the test's own log, too
		cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "BOTBOX_TEST_FULL=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	i := newIssuer(t, "refresh-0")
	l, path := signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now()), i)
	before := read(t, path)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	small := syscall.Rlimit{Cur: 1024, Max: limit.Max} // Go ignores SIGXFSZ: a write then fails
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	_, err := l.Access(context.Background())
	l.now = func() time.Time { return time.Now().Add(-time.Minute) }
	a, early := l.Access(context.Background())
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, ErrUnsaved) || i.asked() != 0 || early != nil || a.Token.Reveal() != "access-0" || read(t, path) != before {
		t.Errorf("%v, %v %v, %d questions", err, a.Token.Reveal(), early, i.asked())
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*botbox*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	l.now = time.Now
	if got := access(t, l); got != "access-1" {
		t.Errorf("with room: %s", got)
	}
}

// A process that was killed between the draft and the file left a sign-in that
// is the only one that works.
func TestAKilledRenewal(t *testing.T) {
	i := newIssuer(t, "refresh-1")
	l, path := signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now()), i)
	dir := filepath.Dir(path)
	drafted := claudeFile("access-1", "refresh-1", time.Now().Add(time.Hour)) + strings.Repeat("\x00", 1000)
	write(t, filepath.Join(dir, ".credentials.json.botbox.1.1"), drafted)
	write(t, filepath.Join(dir, ".credentials.json.botbox.1.2"), strings.Repeat("\x00", 1000))
	write(t, filepath.Join(dir, ".credentials.json.botbox.1.3"), claudeFile("older", "older", time.Now().Add(-time.Hour)))
	if err := l.check(); err != nil {
		t.Fatal(err)
	}
	if got := access(t, l); got != "access-1" || i.asked() != 0 || !strings.Contains(read(t, path), "refresh-1") {
		t.Errorf("%s, %d questions", got, i.asked())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*botbox*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Two writes in one step of the file system's clock, of the same length.
func TestTwoWritesInOneTick(t *testing.T) {
	i := newIssuer(t, "refresh-0")
	l, path := signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now().Add(time.Hour)), i)
	access(t, l)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, claudeFile("access-9", "refresh-9", time.Now().Add(time.Hour)))
	os.Chtimes(path, info.ModTime(), info.ModTime())
	if got := access(t, l); got != "access-9" {
		t.Errorf("%s", got)
	}
}

// The vendor refuses a token before its time: it is renewed, once a minute.
func TestARejectedToken(t *testing.T) {
	i := newIssuer(t, "refresh-0")
	l, _ := signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now().Add(time.Hour)), i)
	l.Reject(secret.New("somebody's"))
	if got := access(t, l); got != "access-0" {
		t.Errorf("another token was refused: %s", got)
	}
	l.Reject(secret.New("access-0"))
	if got := access(t, l); got != "access-1" || i.asked() != 1 {
		t.Errorf("%s %d", got, i.asked())
	}
	l.Reject(secret.New("access-1"))
	if got := access(t, l); got != "access-1" || i.asked() != 1 {
		t.Errorf("again at once: %s %d", got, i.asked())
	}
	l.now = func() time.Time { return time.Now().Add(rejectPause) }
	l.Reject(secret.New("access-1"))
	if got := access(t, l); got != "access-2" {
		t.Errorf("after a minute: %s", got)
	}
}

// Claude Code's own lock is waited for, and one that was left behind is not.
func TestTheEnginesOwnLock(t *testing.T) {
	i := newIssuer(t, "refresh-0")
	l, path := signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now()), i)
	folder := filepath.Dir(path) + ".lock"
	os.Mkdir(folder, 0o700)
	first, taken := path, folder
	go func() {
		time.Sleep(300 * time.Millisecond)
		write(t, first, claudeFile("theirs", "refresh-theirs", time.Now().Add(time.Hour)))
		os.Remove(taken)
	}()
	if got := access(t, l); got != "theirs" || i.asked() != 0 {
		t.Errorf("%s, %d questions", got, i.asked())
	}
	l, path = signedIn(t, "claude", claudeFile("access-0", "refresh-0", time.Now()), i)
	folder = filepath.Dir(path) + ".lock"
	os.Mkdir(folder, 0o700)
	os.Chtimes(folder, time.Now(), time.Now().Add(-lockStale-time.Second))
	if got := access(t, l); got != "access-1" {
		t.Errorf("a stale lock: %s", got)
	}
}

func TestOpen(t *testing.T) {
	home := t.TempDir()
	s := NewStore(home)
	file := filepath.Join(home, ".claude/.credentials.json")
	for what, lay := range map[string]func(){
		"nothing":          func() {},
		"a file":           func() { write(t, filepath.Join(home, ".claude"), "x") },
		"a linked folder":  func() { os.Symlink(t.TempDir(), filepath.Join(home, ".claude")) },
		"no sign-in":       func() { os.Mkdir(filepath.Dir(file), 0o700); write(t, file, `{"other":1}`) },
		"no JSON":          func() { os.Mkdir(filepath.Dir(file), 0o700); write(t, file, `sk-canary`) },
		"no refresh token": func() { os.Mkdir(filepath.Dir(file), 0o700); write(t, file, claudeFile("sk-canary", "", time.Now())) },
		"a line break": func() {
			os.Mkdir(filepath.Dir(file), 0o700)
			write(t, file, claudeFile("sk-canary\n", "r", time.Now()))
		},
		"a link": func() {
			os.Mkdir(filepath.Dir(file), 0o700)
			write(t, filepath.Join(home, "f"), claudeFile("sk-canary", "r", time.Now()))
			os.Symlink(filepath.Join(home, "f"), file)
		},
		"a folder": func() { os.MkdirAll(file, 0o700) },
	} {
		os.RemoveAll(filepath.Join(home, ".claude"))
		lay()
		if _, err := s.Open("claude"); reason.Of(err).Code != reason.BadSpec || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Open("vim"); reason.Of(err).Code != reason.BadSpec {
		t.Errorf("%v", err)
	}
	os.RemoveAll(filepath.Join(home, ".claude"))
	os.Mkdir(filepath.Dir(file), 0o700)
	write(t, file, claudeFile("a", "r", time.Now().Add(time.Hour)))
	one, err := s.Open("claude")
	if err != nil {
		t.Fatal(err)
	}
	if two, err := s.Open("claude"); err != nil || one != two {
		t.Errorf("a second box has another: %v", err)
	}
}

func FuzzDocument(f *testing.F) {
	f.Add(claudeFile("a", "r", time.Unix(1, 0)), `{"access_token":"x","expires_in":1}`)
	f.Add(`{"claudeAiOauth":{"accessToken":"a","refreshToken":"b"},"claudeAiOauth":null}`, `{}`)
	f.Fuzz(func(t *testing.T, file, reply string) {
		k := kinds[0]
		d, old, err := k.parse([]byte(file))
		var a answer
		if err != nil || json.Unmarshal([]byte(reply), &a) != nil || !sendable(a.Access) || a.Refresh != "" && !sendable(a.Refresh) || a.ExpiresIn < 0 || a.ExpiresIn > 1e9 {
			return
		}
		b, err := k.renewed(d, a, time.Unix(1e9, 0))
		if err != nil {
			t.Fatal(err)
		}
		_, now, err := k.parse(b)
		if err != nil || now.access.Reveal() != a.Access || a.Refresh == "" && !now.same(old) || a.Refresh != "" && now.refresh.Reveal() != a.Refresh {
			t.Errorf("%q %q became %q", file, reply, b)
		}
	})
}
