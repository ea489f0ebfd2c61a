package provider

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxBody is above the largest request that a real provider takes (32 MB).
const maxBody = 64 << 20

// Options say what a Server expects and answers.
type Options struct {
	Key   string        // the credential that each request must carry
	Tool  string        // a shell command for the engine to run; empty = text only
	Calls []Call        // Anthropic only: tools for the engine to call, all in one reply
	Reply string        // the text that ends the turn
	Pace  time.Duration // pause before each streamed event after the first
	Log   io.Writer     // gets one JSON line a request, if not nil
}

// Call is a tool with its arguments.
type Call struct {
	Name string
	Args map[string]any
}

// Request is one request as it arrived.
type Request struct {
	Method string      `json:"method"`
	URI    string      `json:"uri"` // the raw request target
	Host   string      `json:"host"`
	Header http.Header `json:"header"`
	Body   string      `json:"body"`
}

// Server is the stand-in provider.
type Server struct {
	opt Options

	mu   sync.Mutex
	seen []Request
}

// New makes a Server.
func New(opt Options) *Server { return &Server{opt: opt} }

// Requests gives the requests so far, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// route matches on the path's end, for the part before it is the broker's.
type route struct {
	suffix string
	of     *vendor
	answer func(*exchange)
}

var routes = []route{
	{"/v1/messages/count_tokens", &anthropic, (*exchange).countTokens},
	{"/v1/messages", &anthropic, (*exchange).messages},
	{"/responses", &openai, (*exchange).responses},
	{"/chat/completions", &openai, (*exchange).chat},
	{":streamGenerateContent", &gemini, (*exchange).generate},
	{":generateContent", &gemini, (*exchange).generate},
}

// exchange is one request with all that its answer depends on.
type exchange struct {
	opt    Options
	w      http.ResponseWriter
	r      *http.Request
	model  string
	stream bool
	call   *toolCall // nil = answer with text
	calls  []Call    // instead of call
}

// ServeHTTP logs a request, checks its credential and answers it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	s.record(r, body)
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	// Engines probe with HEAD before they have a credential in hand.
	if r.Method == http.MethodHead {
		return
	}
	i := slices.IndexFunc(routes, func(rt route) bool { return strings.HasSuffix(r.URL.Path, rt.suffix) })
	if i < 0 || r.Method != http.MethodPost {
		reply(w, http.StatusNotFound, obj{"error": obj{"type": "not_found_error", "message": "no such endpoint"}})
		return
	}
	of := routes[i].of
	if !of.authentic(r, s.opt.Key) {
		reply(w, http.StatusUnauthorized, of.refusal(http.StatusUnauthorized, "the credential is not the expected one"))
		return
	}
	var ask obj
	if json.Unmarshal(body, &ask) != nil {
		reply(w, http.StatusBadRequest, of.refusal(http.StatusBadRequest, "the body is not a JSON object"))
		return
	}
	model, _ := ask["model"].(string)
	stream, _ := ask["stream"].(bool)
	routes[i].answer(&exchange{s.opt, w, r, model, stream, choose(s.opt.Tool, ask), s.opt.calls(ask)})
}

func (s *Server) record(r *http.Request, body []byte) {
	req := Request{r.Method, r.RequestURI, r.Host, r.Header.Clone(), string(body)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, req)
	if s.opt.Log != nil {
		json.NewEncoder(s.opt.Log).Encode(req)
	}
}

// obj is a JSON object.
type obj = map[string]any

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

// event is one server-sent event; raw data is sent as it is.
type event struct {
	name string
	data any
}

func (x *exchange) events(list ...event) {
	x.w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(x.w)
	for i, e := range list {
		if i > 0 && x.opt.Pace > 0 {
			time.Sleep(x.opt.Pace)
		}
		data, raw := e.data.(string)
		if !raw {
			b, _ := json.Marshal(e.data) // maps of plain values always encode
			data = string(b)
		}
		if e.name != "" {
			io.WriteString(x.w, "event: "+e.name+"\n")
		}
		io.WriteString(x.w, "data: "+data+"\n\n")
		out.Flush()
	}
}
