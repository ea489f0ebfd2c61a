package broker

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/testbed/mcpserver"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// asks makes one call from a box and gives the code of its refusal.
func (s *stage) asks(addr, address string) string {
	s.t.Helper()
	a := send(s.t, addr, "POST", strings.TrimPrefix(address, boxAddr), mcpHead(), listTools)
	if _, code, ok := strings.Cut(a.body, `"data":{"code":"`); ok {
		code, _, _ = strings.Cut(code, `"`)
		return code
	}
	return fmt.Sprint(a.status)
}

// The address stays while the servers stay, from turn to turn and box to box.
func TestAddressesStayWithTheConversation(t *testing.T) {
	up := newUpstream(t)
	s := newStage(t, nil)
	notes, other := notes(up.URL+"/mcp"), MCPServer{Name: "maps", URL: up.URL + "/maps"}
	first := s.lease("box_1", notes, other)
	if !first.New || first.Addresses["notes"] == "" || first.Addresses["maps"] == "" || first.Env["BOTBOX_MCP_NOTES"] != first.Addresses["notes"] {
		t.Fatalf("%+v", first)
	}
	one := s.serve("box_1")
	if got := s.asks(one, first.Addresses["notes"]); got != "200" {
		t.Fatalf("control: %s", got)
	}
	s.Revoke("box_1")
	if s.Living() != 0 {
		t.Errorf("%d grants without a box", s.Living())
	}
	changed := notes
	changed.Headers = map[string]secret.Text{"AUTHORIZATION": secret.New("Bearer sk-another-canary-22")}
	for _, c := range []struct {
		what    string
		same    bool
		servers []MCPServer
	}{
		{"the same", true, []MCPServer{notes, other}},
		{"another order", true, []MCPServer{other, notes}},
		{"another key in the header", true, []MCPServer{changed, other}},
		{"another address", false, []MCPServer{notes, {Name: "maps", URL: up.URL + "/maps/"}}},
		{"one more", false, []MCPServer{notes, other, {Name: "third", URL: up.URL}}},
		{"one less", false, []MCPServer{notes}},
		{"another header", false, []MCPServer{{Name: "notes", URL: notes.URL, Headers: map[string]secret.Text{"X-Key": secret.New("k")}}}},
	} {
		was := s.lease("box_2", notes, other)
		now := s.lease("box_3", c.servers...)
		if same := now.Addresses["notes"] == was.Addresses["notes"]; same != c.same || now.New == c.same {
			t.Errorf("%s: %v", c.what, same)
		}
		s.Revoke("box_2")
		s.Revoke("box_3")
	}
	// Ahead of the turn the addresses are the same, and work for nobody.
	ahead, err := s.IssueMCP(MCPTurn{Bot: "bot", Conversation: "talk", Servers: []MCPServer{changed, other}})
	if err != nil || s.Living() != 0 {
		t.Fatalf("%v, %d grants", err, s.Living())
	}
	then := s.lease("box_4", changed, other)
	if then.Addresses["notes"] != ahead.Addresses["notes"] {
		t.Error("the turn got other addresses than were foretold")
	}
	four := s.serve("box_4")
	if got := s.asks(four, then.Addresses["notes"]); got != "200" || up.last(t).Header.Get("Authorization") != "Bearer sk-another-canary-22" {
		t.Errorf("%s", got)
	}
	for what, turn := range map[string]MCPTurn{
		"another conversation": {Box: "box_5", Bot: "bot", Conversation: "other", Servers: []MCPServer{changed, other}},
		"another bot":          {Box: "box_5", Bot: "bob", Conversation: "talk", Servers: []MCPServer{changed, other}},
		"no conversation":      {Box: "box_5", Bot: "bot", Servers: []MCPServer{changed, other}},
	} {
		if issued, err := s.IssueMCP(turn); err != nil || issued.Addresses["notes"] == then.Addresses["notes"] {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := s.asks(four, then.Addresses["notes"]); got != "200" {
		t.Errorf("after the others: %s", got)
	}
	// A turn without servers ends the conversation's.
	s.lease("box_6")
	if got := s.asks(four, then.Addresses["notes"]); got != "token_revoked" {
		t.Errorf("after a turn without servers: %s", got)
	}
}

// A living box of the conversation, on its own listener: nobody else.
func TestMCPTokensAreBoundToBoxes(t *testing.T) {
	up := newUpstream(t)
	s := newStage(t, nil)
	a, b, stranger := s.serve("box_a"), s.serve("box_b"), s.serve("box_c")
	address := s.lease("box_a", notes(up.URL)).Addresses["notes"]
	s.lease("box_b", notes(up.URL)) // the next turn, while an engine is kept
	for _, addr := range []string{a, b, a} {
		if got := s.asks(addr, address); got != "200" {
			t.Errorf("%s", got)
		}
	}
	if got := s.asks(a, strings.Replace(address, "mcp-notes", "mcp-other", 1)); got != "missing_grant" {
		t.Errorf("a name that is none: %s", got)
	}
	if got := s.asks(a, strings.Replace(address, "mcp-notes", "anthropic", 1)); got != "missing_grant" {
		t.Errorf("a provider: %s", got)
	}
	turn, _ := s.issue("box_a", up.URL)
	if got := s.asks(a, grantURL(turn, "mcp-notes")); got != "missing_grant" {
		t.Errorf("a turn's own token: %s", got)
	}
	s.Revoke("box_b")
	if got := s.asks(a, address); got != "200" {
		t.Errorf("after the other box ended: %s", got)
	}
	before := len(up.requests())
	if got := s.asks(stranger, address); got != "wrong_box" {
		t.Errorf("a stranger: %s", got)
	}
	s.await(Stealing, func(e Event) bool { return e.Box == "box_c" && e.Owner == "box_a" && e.Conversation == "talk" })
	if got := s.asks(a, address); got != "token_revoked" || len(up.requests()) != before {
		t.Errorf("after it was stolen: %s, %d requests", got, len(up.requests())-before)
	}
	if again := s.lease("box_a", notes(up.URL)); again.Addresses["notes"] == address || s.asks(a, again.Addresses["notes"]) != "200" {
		t.Error("the next turn has no working address")
	}
	if got := s.asks(a, "http://127.0.0.1:18080/b/omb_t0_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/mcp-notes"); got != "unknown_token" {
		t.Errorf("a token that nobody made: %s", got)
	}
	// Asleep, it is a stranger's in every box.
	s.Revoke("box_a")
	asleep, _ := s.IssueMCP(MCPTurn{Bot: "bot", Conversation: "talk", Servers: []MCPServer{notes(up.URL)}})
	if got := s.asks(stranger, asleep.Addresses["notes"]); got != "wrong_box" {
		t.Errorf("between two turns: %s", got)
	}
}

// A server that did not start: its words for the chat, and another address.
func TestAFailedServerGetsAnotherAddress(t *testing.T) {
	_, url := standin(t, mcpserver.Options{Revision: "2025-11-25", Refuse: "initialize"})
	s := newMCPStage(t, url+"/mcp")
	want := "notes didn't connect; it connects again on the next message."
	if f, err := s.FailMCP("bot", "talk", "notes"); err != nil || f.Message != want || f.Code != "mcp_start_failed" || f.Server != "notes" {
		t.Errorf("%+v %v", f, err)
	}
	s.post(initialize)
	want = "notes didn't connect (it refused its key, HTTP 401); it connects again on the next message."
	if f, err := s.FailMCP("", "talk", "notes"); err != nil || f.Message != want {
		t.Errorf("%+v %v", f, err)
	}
	if a := s.post(listTools); a.status != 400 {
		t.Errorf("until the next turn the address stays: %+v", a)
	}
	again := s.lease("box_a2", notes(url+"/mcp"))
	if again.Addresses["notes"] == s.issued.Addresses["notes"] || !again.New {
		t.Error("the next turn has the same address")
	}
	if third := s.lease("box_a2", notes(url+"/mcp")); third.Addresses["notes"] != again.Addresses["notes"] {
		t.Error("a failure counts once")
	}
	for _, c := range []struct {
		bot, talk, server string
		code              reason.Code
	}{{"bot", "none", "notes", reason.NoSuchTalk}, {"bob", "talk", "notes", reason.NoSuchTalk}, {"bot", "talk", "a/b", reason.BadSpec}} {
		if _, err := s.FailMCP(c.bot, c.talk, c.server); reason.Of(err).Code != c.code {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// What is open may finish, and nothing begins.
func TestAReplacedTokenFinishesItsStreams(t *testing.T) {
	say := make(chan string, 1)
	up := newUpstream(t)
	up.then = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: begun\n\n")
		w.(http.Flusher).Flush()
		say := say
		if r.URL.Path != "/mcp" {
			say = nil // it is the first stream that speaks
		}
		for {
			select {
			case text := <-say:
				io.WriteString(w, text)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
	s := newMCPStage(t, up.URL+"/mcp")
	s.lingers = time.Hour // however long the machine takes for what comes before the end
	l := s.listen(s.base)
	l.event()
	s.lease("box_a", notes(up.URL+"/mcp/")) // other servers
	if got := s.asks(s.addr, s.issued.Addresses["notes"]); got != "token_revoked" {
		t.Errorf("a new request with the old token: %s", got)
	}
	say <- "data: still here\n\n"
	if e := l.event(); e != "data: still here\n\n" {
		t.Errorf("%q", e)
	}
	s.lingers = 100 * time.Millisecond
	again := s.listen(strings.TrimPrefix(s.lease("box_a", notes(up.URL+"/mcp/")).Addresses["notes"], boxAddr))
	again.event()
	begin := time.Now()
	last := s.lease("box_a", notes(up.URL+"/mcp")) // others again
	if _, err := io.ReadAll(again.r); err == nil || time.Since(begin) < s.lingers || time.Since(begin) > 10*time.Second {
		t.Errorf("the stream ended with %v after %v", err, time.Since(begin))
	}
	say <- "data: and still\n\n"
	if e := l.event(); e != "data: and still\n\n" {
		t.Errorf("the one that may linger: %q", e)
	}
	living := s.listen(strings.TrimPrefix(last.Addresses["notes"], boxAddr))
	living.event()
	s.Revoke("box_a")
	begin = time.Now()
	for _, l := range []*listener{living, l} {
		if _, err := io.ReadAll(l.r); err == nil || time.Since(begin) > 5*time.Second {
			t.Errorf("with its box the stream ends with %v after %v", err, time.Since(begin))
		}
	}
}

// A token lives a day from when it was made, however often it is used.
func TestMCPTokensEnd(t *testing.T) {
	up := newUpstream(t)
	s := newMCPStage(t, up.URL)
	if got := s.issued.Expires.Sub(s.clock); got != MaxTTL {
		t.Fatalf("%v", got)
	}
	s.advance(22 * time.Hour)
	if again := s.lease("box_a", notes(up.URL)); again.New || !again.Expires.Equal(s.issued.Expires) {
		t.Errorf("use moved its end: %+v", again)
	}
	s.advance(90 * time.Minute) // half an hour is left: the next turn should not lose it in the middle
	if got := s.asks(s.addr, s.issued.Addresses["notes"]); got != "200" {
		t.Errorf("%s", got)
	}
	s.advance(31 * time.Minute)
	if got := s.asks(s.addr, s.issued.Addresses["notes"]); got != "token_revoked" {
		t.Errorf("after a day: %s", got)
	}
	if again := s.lease("box_a", notes(up.URL)); !again.New {
		t.Error("the next turn got a token that has ended")
	}
}

// The next worker of the same boot knows the conversation's addresses, and a
// session goes on.
func TestAddressesOutliveAWorker(t *testing.T) {
	server, url := standin(t, mcpserver.Options{Revision: "2025-11-25"})
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "db")
	open := func() *Store {
		store, err := OpenStore(path)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	store := open()
	s := newStage(t, store)
	address := s.lease("box_a", notes(url+"/mcp")).Addresses["notes"]
	session := send(t, s.serve("box_a"), "POST", strings.TrimPrefix(address, boxAddr), mcpHead(), initialize).header.Get("Mcp-Session-Id")
	failing, _ := s.IssueMCP(MCPTurn{Bot: "bot", Conversation: "failing", Servers: []MCPServer{notes(url)}})
	s.FailMCP("bot", "failing", "notes")
	s.Close()
	store.Close()
	if raw, err := os.ReadFile(path); err != nil || bytes.Contains(raw, []byte("canary")) || bytes.Contains(raw, []byte(strings.Split(address, "/")[4])) {
		t.Errorf("%v, or the file holds a header or a token", err)
	}

	for _, boxLives := range []bool{true, false} {
		store = open()
		next := newStage(t, store)
		records, dropped, err := store.Recover([32]byte{1})
		if err != nil || dropped != 0 || len(records) != 2 {
			t.Fatalf("%v, %d dropped of %d", err, dropped, len(records))
		}
		if n := next.Adopt(records); n != 2 {
			t.Fatalf("%d adopted", n)
		}
		addr := next.serve("box_a")
		if !boxLives {
			for _, r := range records {
				for _, box := range r.BoxNames() {
					next.Revoke(box)
				}
			}
			addr = next.serve("box_b")
			if again := next.lease("box_b", notes(url+"/mcp")); again.Addresses["notes"] != address || again.New {
				t.Error("the next turn has another address")
			}
			if again, _ := next.IssueMCP(MCPTurn{Bot: "bot", Conversation: "failing", Servers: []MCPServer{notes(url)}}); again.Addresses["notes"] == failing.Addresses["notes"] {
				t.Error("that a server failed was forgotten")
			}
		}
		a := send(t, addr, "POST", strings.TrimPrefix(address, boxAddr), mcpHead("Mcp-Session-Id", session, "Mcp-Protocol-Version", "2025-11-25"), callEcho)
		if !strings.Contains(a.body, "2025-11-25 says hi") || server.Sessions() != 1 {
			t.Errorf("box lives %v: the session is lost: %+v", boxLives, a)
		}
		next.Close()
		store.Close()
	}
	// Another boot's worker knows nothing.
	store = open()
	defer store.Close()
	if records, dropped, err := store.Recover([32]byte{2}); err != nil || len(records) != 0 || dropped == 0 {
		t.Errorf("%v %d %d", err, len(records), dropped)
	}
}

// Headers from secrets change under living addresses.
func TestRotationReachesMCPHeaders(t *testing.T) {
	up := newUpstream(t)
	s := newMCPStage(t, up.URL)
	server := notes(up.URL)
	server.Refs = map[string]string{"authorization": "notes"}
	s.base = strings.TrimPrefix(s.lease("box_a", server).Addresses["notes"], boxAddr)
	value := "Bearer sk-second-canary-333"
	read := func(ref string) (secret.Text, error) { return secret.New(value), nil }
	done, err := s.Rotate(read, "")
	if err != nil || done.Grants != 1 || done.Boxes != 1 || strings.Join(done.Refs, ",") != "notes" {
		t.Fatalf("%+v %v", done, err)
	}
	s.post(listTools)
	if got := up.last(t).Header.Get("Authorization"); got != value {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{"", "a\nb", " x"} {
		value = bad
		if _, err := s.Rotate(read, "notes"); reason.Of(err).Code != reason.BadSpec {
			t.Errorf("%q: %v", bad, err)
		}
	}
	// What the old one was is still looked for.
	up.then = func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, mcpKey) }
	if a := s.post(listTools); strings.Contains(a.body, "canary") {
		t.Errorf("%s", a.body)
	}
}

func TestMCPServersAreChecked(t *testing.T) {
	head := func(name, value string) map[string]secret.Text {
		return map[string]secret.Text{name: secret.New(value)}
	}
	for what, list := range map[string][]MCPServer{
		"no name":         {{URL: "http://a/"}},
		"a slash":         {{Name: "a/b", URL: "http://a/"}},
		"a long name":     {{Name: strings.Repeat("a", 65), URL: "http://a/"}},
		"one variable":    {{Name: "a-b", URL: "http://a/"}, {Name: "A_b", URL: "http://a/"}},
		"no URL":          {{Name: "a"}},
		"another scheme":  {{Name: "a", URL: "file:///etc"}},
		"a password":      {{Name: "a", URL: "http://u:canary@a/"}},
		"a fragment":      {{Name: "a", URL: "http://a/#x"}},
		"two dots":        {{Name: "a", URL: "http://a/../x"}},
		"a line break":    {{Name: "a", URL: "http://a/", Headers: head("X-A", "canary\r\nB: c")}},
		"an empty header": {{Name: "a", URL: "http://a/", Headers: head("X-A", "")}},
		"no header name":  {{Name: "a", URL: "http://a/", Headers: head("X A", "canary")}},
		"host":            {{Name: "a", URL: "http://a/", Headers: head("host", "canary")}},
		"length":          {{Name: "a", URL: "http://a/", Headers: head("Content-Length", "4")}},
		"mcp-method":      {{Name: "a", URL: "http://a/", Headers: head("Mcp_Method", "canary")}},
		"twice":           {{Name: "a", URL: "http://a/", Headers: map[string]secret.Text{"x-a": secret.New("1"), "X-A": secret.New("2")}}},
		"65 of them":      make([]MCPServer, 65),
	} {
		s := newStage(t, nil)
		_, err := s.IssueMCP(MCPTurn{Box: "b", Servers: list})
		if reason.Of(err).Code != reason.BadSpec || strings.Contains(fmt.Sprint(err), "canary") || s.Living() != 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", notes("http://a/"), notes("http://a/"), []MCPServer{notes("http://a/")}); strings.Contains(text, "canary") {
		t.Errorf("%s", text)
	}
}

// A thousand turns leave one thing behind: the conversation's place.
func TestTurnsLeaveNoGrants(t *testing.T) {
	up := newUpstream(t)
	s := newStage(t, nil)
	first := ""
	for i := range 1000 {
		box := fmt.Sprint("box_", i)
		address := s.lease(box, notes(up.URL)).Addresses["notes"]
		if first == "" {
			first = address
		}
		if address != first || s.Living() != 1 {
			t.Fatalf("turn %d: another address, or %d grants", i, s.Living())
		}
		if i%100 == 0 {
			if got := s.asks(s.serve(box), address); got != "200" {
				t.Fatalf("turn %d: %s", i, got)
			}
		}
		s.Revoke(box)
		if s.Living() != 0 {
			t.Fatalf("turn %d: %d grants are left", i, s.Living())
		}
	}
	if n := len(s.mcp.byDigest); n != 1 || len(s.known) != 0 {
		t.Errorf("%d leases, %d boxes are known", n, len(s.known))
	}
}

// Turns, failures, rotations, requests and ends at the same time.
func TestLeasesAtOnce(t *testing.T) {
	up := newUpstream(t)
	s := newStage(t, nil)
	var wg sync.WaitGroup
	for i := range 8 {
		box := fmt.Sprint("box_", i)
		addr := s.serve(box)
		wg.Go(func() {
			for n := range 30 {
				servers := []MCPServer{notes(up.URL + strings.Repeat("/a", n%2))}
				issued, err := s.IssueMCP(MCPTurn{Box: box, Bot: "bot", Conversation: fmt.Sprint("talk", i%2), Servers: servers})
				if err != nil {
					t.Error(err)
				}
				if got := s.asks(addr, issued.Addresses["notes"]); got != "200" && got != "token_revoked" && got != "wrong_box" {
					t.Errorf("%s", got)
				}
				switch n % 3 {
				case 0:
					s.FailMCP("bot", fmt.Sprint("talk", i%2), "notes")
				case 1:
					s.Rotate(func(string) (secret.Text, error) { return secret.New("x"), nil }, "")
				}
				s.Revoke(box)
			}
		})
	}
	wg.Wait()
	if s.Living() != 0 || len(s.known) != 0 {
		t.Errorf("%d grants, %d boxes", s.Living(), len(s.known))
	}
}

// Limits are a turn's.
func TestMCPLimits(t *testing.T) {
	up := newUpstream(t)
	s := newStage(t, nil)
	addr := s.serve("box_a")
	lease := func(l Limits) string {
		issued, err := s.IssueMCP(MCPTurn{Box: "box_a", Bot: "bot", Conversation: "talk", Servers: []MCPServer{notes(up.URL)}, Limits: l})
		if err != nil {
			t.Fatal(err)
		}
		return issued.Addresses["notes"]
	}
	address := lease(Limits{PerMinute: 2})
	if got := s.asks(addr, address) + s.asks(addr, address) + s.asks(addr, address); got != "200200limit_requests" {
		t.Errorf("%s", got)
	}
	if again := lease(Limits{PerMinute: 2}); again != address || s.asks(addr, address) != "200" {
		t.Error("the next turn's does not begin anew")
	}
	lease(Limits{Bytes: 200})
	if got := s.asks(addr, address) + s.asks(addr, address) + s.asks(addr, address) + s.asks(addr, address) + s.asks(addr, address); !strings.HasSuffix(got, "limit_bytes") {
		t.Errorf("%s", got)
	}
}

// Where an MCP server may be: the address that is dialled decides.
func TestMCPPlaces(t *testing.T) {
	own := ""
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			own = p.Addr().String()
		}
	}
	for at, want := range map[string]bool{
		"127.0.0.1:8080": true, "127.0.0.1:8799": false, "[::1]:8799": false, "127.9.9.9:8799": false, "[::ffff:127.0.0.1]:8799": false, "0.0.0.0:8799": false,
		"1.1.1.1:8799": true, "1.1.1.1:443": true, "192.168.1.7:443": true, "100.64.0.1:80": true, "[2606:4700::1]:443": true,
		"169.254.169.254:80": false, "169.254.1.1:80": false, "[fd00:ec2::254]:80": false, "224.0.0.1:80": false, "[fe80::1]:80": false, "192.0.2.1:80": false,
		own + ":8799": false,
	} {
		if strings.HasPrefix(at, ":") {
			continue // this machine has loopback only
		}
		if got := mcpPlace(netip.MustParseAddrPort(at), 8799); got != want {
			t.Errorf("%s: %v", at, got)
		}
	}
	// The real way: a server on the port that is not to be reached.
	up := newUpstream(t)
	_, text, _ := net.SplitHostPort(up.Listener.Addr().String())
	port, _ := strconv.ParseUint(text, 10, 16)
	for own, status := range map[uint16]string{uint16(port): "upstream_refused", 1: "200"} {
		s := newStage(t, nil)
		b, err := New(Options{BootKey: [32]byte{1}, OwnPort: own})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		s.Broker = b
		for _, host := range []string{"127.0.0.1", "localhost"} {
			issued, err := b.IssueMCP(MCPTurn{Box: "box_a", Servers: []MCPServer{notes("http://" + host + ":" + text + "/mcp")}})
			if err != nil {
				t.Fatal(err)
			}
			before := len(up.requests())
			if got := s.asks(s.serve("box_a"), issued.Addresses["notes"]); got != status || (len(up.requests()) > before) != (status == "200") {
				t.Errorf("%s, own port %d: %s, %d requests", host, own, got, len(up.requests())-before)
			}
		}
	}
}
