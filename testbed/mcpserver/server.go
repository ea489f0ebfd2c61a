package mcpserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Revisions are all that there are.
var Revisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}

// Options say what a Server speaks and where.
type Options struct {
	Revision string
	Target   string // its path and query, to the byte
	From     string // a path that answers with 307 to Target; empty = none
	Events   bool   // answers are event streams where the client takes them
	Absolute bool   // 2024-11-05: the endpoint event names the whole URL
	Header   string // a request without this header's Value is answered with 401
	Value    string
	Refuse   string           // this JSON-RPC method is answered with 401 although the header is right
	Slow     time.Duration    // before the answer to a tool's call
	Reply    func(string) any // the result of tool echo; nil = its text
}

// Request is one request as it arrived.
type Request struct {
	Method, URI string
	Header      http.Header
	Body        string
}

// Server is the stand-in server.
type Server struct {
	opt Options

	mu       sync.Mutex
	seen     []Request
	faults   []string
	next     int
	sessions map[string]*session
}

// session is one client's conversation.
type session struct {
	out    chan []byte // messages for the client's stream
	events int
	log    []string // what went out on the stream, for resumption
}

// New makes a Server.
func New(opt Options) *Server { return &Server{opt: opt, sessions: map[string]*session{}} }

// Requests gives the requests so far, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// Faults gives what was wrong with requests.
func (s *Server) Faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faults)
}

// Pardon forgets the faults so far: the test made them on purpose.
func (s *Server) Pardon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Sessions counts the living sessions.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Forget ends all sessions, as a restart does.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

func (s *Server) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// Serves tells whether the request target is this server's.
func (s *Server) Serves(target string) bool {
	return target == s.opt.Target || s.opt.From != "" && target == s.opt.From || s.opt.Revision == "2024-11-05" && strings.HasPrefix(target, s.messages())
}

// messages is where clients of 2024-11-05 post to.
func (s *Server) messages() string {
	path, _, _ := strings.Cut(s.opt.Target, "?")
	return strings.TrimSuffix(path, "/") + "-messages?session="
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	s.mu.Lock()
	s.seen = append(s.seen, Request{r.Method, r.RequestURI, r.Header.Clone(), string(body)})
	s.mu.Unlock()
	for _, name := range []string{"Origin", "Referer", "Cookie", "Forwarded", "Via", "X-Forwarded-For"} {
		if r.Header.Get(name) != "" {
			s.fault("header %s came through", name)
		}
	}
	if all := fmt.Sprint(r.RequestURI, r.Header, string(body)); strings.Contains(all, "omb_t0_") || strings.Contains(r.Host, "18080") {
		s.fault("a token or the broker's address came through: %s %s", r.Method, r.RequestURI)
	}
	var m message
	json.Unmarshal(body, &m) // a batch is read below
	switch {
	case !s.Serves(r.RequestURI):
		s.fault("target %s", r.RequestURI)
		http.Error(w, "<html>not found</html>", http.StatusNotFound)
	case s.opt.Header != "" && (r.Header.Get(s.opt.Header) != s.opt.Value || len(r.Header.Values(s.opt.Header)) != 1),
		s.opt.Refuse != "" && (m.Method == s.opt.Refuse || r.Method == s.opt.Refuse):
		w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="http://`+r.Host+`/.well-known/oauth-protected-resource"`)
		w.Header().Set("Location", "http://"+r.Host+"/sign-in")
		w.Header().Set("Set-Cookie", "sign-in=begun")
		http.Error(w, `{"error":"invalid_token"}`, http.StatusUnauthorized)
	case s.opt.From != "" && r.RequestURI == s.opt.From:
		http.Redirect(w, r, s.opt.Target, http.StatusTemporaryRedirect)
	case s.opt.Revision == "2024-11-05":
		s.old(w, r, body)
	case s.opt.Revision == "2026-07-28":
		s.stateless(w, r, body)
	default:
		s.streamable(w, r, body)
	}
}

type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  struct {
		Name      string
		Arguments struct{ Text string }
		Meta      map[string]json.RawMessage `json:"_meta"`
	} `json:"params"`
}

type obj = map[string]any

// answer gives the response to a message, nil for a notification.
func (s *Server) answer(m message) any {
	if len(m.ID) == 0 {
		return nil
	}
	result := func(v obj) any { return obj{"jsonrpc": "2.0", "id": m.ID, "result": v} }
	switch m.Method {
	case "initialize":
		return result(obj{"protocolVersion": s.opt.Revision, "capabilities": obj{"tools": obj{}}, "serverInfo": obj{"name": "standin", "version": s.opt.Revision}})
	case "server/discover":
		return result(obj{"resultType": "complete", "supportedVersions": []string{s.opt.Revision}, "capabilities": obj{"tools": obj{}}, "ttlMs": 0, "cacheScope": "private",
			"_meta": obj{"io.modelcontextprotocol/serverInfo": obj{"name": "standin", "version": s.opt.Revision}}})
	case "ping":
		return result(obj{})
	case "tools/list":
		list := obj{"tools": []obj{{"name": "echo", "description": "gives the text back", "inputSchema": obj{
			"type": "object", "properties": obj{"text": obj{"type": "string"}}, "required": []string{"text"}}}}}
		if s.opt.Revision == "2026-07-28" {
			list["resultType"], list["ttlMs"], list["cacheScope"] = "complete", 0, "private"
		}
		return result(list)
	case "tools/call":
		time.Sleep(s.opt.Slow)
		if s.opt.Reply != nil {
			return obj{"jsonrpc": "2.0", "id": m.ID, "result": s.opt.Reply(m.Params.Arguments.Text)}
		}
		r := obj{"content": []obj{{"type": "text", "text": s.opt.Revision + " says " + m.Params.Arguments.Text}}}
		if s.opt.Revision == "2026-07-28" {
			r["resultType"] = "complete"
		}
		return result(r)
	}
	return obj{"jsonrpc": "2.0", "id": m.ID, "error": obj{"code": -32601, "message": "no such method"}}
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func rpcError(code int, text string, id json.RawMessage, data any) obj {
	e := obj{"code": code, "message": text}
	if data != nil {
		e["data"] = data
	}
	return obj{"jsonrpc": "2.0", "id": id, "error": e}
}

func event(v any) []byte {
	b, _ := json.Marshal(v) // plain values always encode
	return []byte("event: message\ndata: " + string(b) + "\n\n")
}

// send gives an answer in the form that the options want.
func (s *Server) send(w http.ResponseWriter, r *http.Request, v any) {
	if !s.opt.Events || !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		write(w, http.StatusOK, v)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, ": a comment first\n\n")
	w.Write(event(v))
}
