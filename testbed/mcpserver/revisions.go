package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// old is the transport of 2024-11-05: a stream that begins by telling where to
// post, and on which all answers come.
func (s *Server) old(w http.ResponseWriter, r *http.Request, body []byte) {
	if id, ok := strings.CutPrefix(r.RequestURI, s.messages()); ok {
		s.oldMessage(w, r, id, body)
		return
	}
	if r.Method != "GET" {
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	id, one := s.begin()
	defer s.remove(id)
	w.Header().Set("Content-Type", "text/event-stream")
	to := s.messages() + id
	if s.opt.Absolute {
		to = "http://" + r.Host + to
	}
	fmt.Fprintf(w, "event: endpoint\ndata: %s\n\n", to)
	w.(http.Flusher).Flush()
	for {
		select {
		case b := <-one.out:
			w.Write(b)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (s *Server) oldMessage(w http.ResponseWriter, r *http.Request, id string, body []byte) {
	one := s.find(id)
	var m message
	if r.Method != "POST" || one == nil || json.Unmarshal(body, &m) != nil {
		s.fault("old transport: %s %s", r.Method, r.RequestURI)
		http.Error(w, "no such session", http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	if m.Method == "server/discover" { // a server of that age knows nothing of it
		one.out <- event(rpcError(-32601, "no such method", m.ID, nil))
	} else if a := s.answer(m); a != nil {
		one.out <- event(a)
	}
}

func (s *Server) begin() (string, *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	id := fmt.Sprintf("session-%d!~", s.next) // visible ASCII
	s.sessions[id] = &session{out: make(chan []byte, 16)}
	return id, s.sessions[id]
}

func (s *Server) find(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

func (s *Server) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, id)
}

// streamable is the transport of 2025: sessions, batches in the first of its
// revisions, the version's header in the later ones.
func (s *Server) streamable(w http.ResponseWriter, r *http.Request, body []byte) {
	batch := bytes.HasPrefix(bytes.TrimSpace(body), []byte("["))
	var m message
	var all []message
	switch {
	case r.Method == "GET" || r.Method == "DELETE":
	case r.Method != "POST":
		s.fault("method %s", r.Method)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	case batch && s.opt.Revision == "2025-03-26":
		if json.Unmarshal(body, &all) != nil {
			s.fault("a batch that is none")
		}
	case json.Unmarshal(body, &m) != nil:
		s.fault("a body that is no message: %q", body)
		write(w, http.StatusBadRequest, rpcError(-32700, "parse error", nil, nil))
		return
	}
	if m.Method == "initialize" {
		id, _ := s.begin()
		w.Header().Set("Mcp-Session-Id", id)
		s.send(w, r, s.answer(m))
		return
	}
	if m.Method == "server/discover" { // as the TypeScript SDK of that time
		write(w, http.StatusBadRequest, rpcError(-32000, "Bad Request: Server not initialized", nil, nil))
		return
	}
	id := r.Header.Get("Mcp-Session-Id")
	one := s.find(id)
	version := r.Header.Get("Mcp-Protocol-Version")
	switch {
	case id == "":
		write(w, http.StatusBadRequest, rpcError(-32000, "Bad Request: Mcp-Session-Id header is required", nil, nil))
	case one == nil:
		write(w, http.StatusNotFound, rpcError(-32001, "Session not found", nil, nil))
	case s.opt.Revision > "2025-03-26" && version != s.opt.Revision:
		s.fault("%s %s: version header %q", r.Method, m.Method, version)
		write(w, http.StatusBadRequest, rpcError(-32000, "Bad Request: Unsupported protocol version", nil, nil))
	case r.Method == "DELETE":
		s.remove(id)
		w.WriteHeader(http.StatusOK)
	case r.Method == "GET":
		s.listen(w, r, one)
	case batch:
		var answers []any
		for _, m := range all {
			if a := s.answer(m); a != nil {
				answers = append(answers, a)
			}
		}
		s.send(w, r, answers)
	default:
		if a := s.answer(m); a != nil {
			s.send(w, r, a)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

// listen is the client's standing stream. It gives an event at once, and again
// what a client missed that names the last one it had.
func (s *Server) listen(w http.ResponseWriter, r *http.Request, one *session) {
	w.Header().Set("Content-Type", "text/event-stream")
	last, err := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	if err != nil {
		last = 0
	}
	s.mu.Lock()
	if last == 0 {
		one.events++
		one.log = append(one.log, fmt.Sprintf("id: %d\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"event %d\"}}\n\n", one.events, one.events))
		last = one.events - 1
	}
	missed := strings.Join(one.log[min(last, len(one.log)):], "")
	s.mu.Unlock()
	io.WriteString(w, missed)
	w.(http.Flusher).Flush()
	for {
		select {
		case b := <-one.out:
			w.Write(b)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// stateless is 2026-07-28: POST only, no session, and headers that mirror the
// message.
func (s *Server) stateless(w http.ResponseWriter, r *http.Request, body []byte) {
	var m message
	if r.Method != "POST" {
		w.Header().Set("Allow", "POST")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	if json.Unmarshal(body, &m) != nil {
		s.fault("a body that is no message")
		write(w, http.StatusBadRequest, rpcError(-32700, "parse error", nil, nil))
		return
	}
	var asked string
	json.Unmarshal(m.Params.Meta["io.modelcontextprotocol/protocolVersion"], &asked)
	header := r.Header.Get("Mcp-Protocol-Version")
	switch {
	case m.Method == "initialize":
		write(w, http.StatusNotFound, rpcError(-32601, "no such method", m.ID, nil))
	case asked != s.opt.Revision:
		write(w, http.StatusBadRequest, rpcError(-32022, "unsupported protocol version", m.ID, obj{"supported": []string{s.opt.Revision}, "requested": asked}))
	case header != asked, r.Header.Get("Mcp-Method") != m.Method,
		m.Method == "tools/call" && r.Header.Get("Mcp-Name") != m.Params.Name:
		s.fault("headers do not mirror %s: %q %q %q", m.Method, header, r.Header.Get("Mcp-Method"), r.Header.Get("Mcp-Name"))
		write(w, http.StatusBadRequest, rpcError(-32020, "header mismatch", m.ID, nil))
	case r.Header.Get("Mcp-Session-Id") != "" || r.Header.Get("Last-Event-ID") != "":
		s.fault("a header of sessions")
		write(w, http.StatusBadRequest, rpcError(-32020, "no sessions here", m.ID, nil))
	case len(m.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
	default:
		s.send(w, r, s.answer(m))
	}
}
