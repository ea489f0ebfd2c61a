package broker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/mcpserver"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

const mcpKey = "Bearer sk-mcp-canary-0123456789abcdef"

// mcpStage is a stage with one URL server, and a box that may call it.
type mcpStage struct {
	*stage
	addr, base string // of the box's listener, and of the server's grant
	issued     MCPIssued
}

// lease gives box the addresses of servers in the conversation "talk".
func (s *stage) lease(box string, servers ...MCPServer) MCPIssued {
	s.t.Helper()
	issued, err := s.IssueMCP(MCPTurn{Box: box, Bot: "bot", Conversation: "talk", Servers: servers})
	if err != nil {
		s.t.Fatal(err)
	}
	return issued
}

func notes(url string) MCPServer {
	return MCPServer{Name: "notes", URL: url, Headers: map[string]secret.Text{"authorization": secret.New(mcpKey)}}
}

func newMCPStage(t *testing.T, url string) *mcpStage {
	t.Helper()
	s := &mcpStage{stage: newStage(t, nil)}
	s.addr = s.serve("box_a")
	s.issued = s.lease("box_a", notes(url))
	s.base = strings.TrimPrefix(s.issued.Addresses["notes"], boxAddr)
	return s
}

// standin starts a server that speaks one revision.
func standin(t *testing.T, opt mcpserver.Options) (*mcpserver.Server, string) {
	t.Helper()
	opt.Header, opt.Value = "Authorization", mcpKey
	if opt.Target == "" {
		opt.Target = "/mcp"
	}
	m := mcpserver.New(opt)
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	t.Cleanup(func() {
		for _, f := range m.Faults() {
			t.Errorf("%s: %s", opt.Revision, f)
		}
	})
	return m, s.URL
}

// post sends a message, as a client of the streamable transport does.
func (s *mcpStage) post(body string, header ...string) answer {
	s.t.Helper()
	return send(s.t, s.addr, "POST", s.base, mcpHead(header...), body)
}

func mcpHead(more ...string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = []string{more[i+1]}
	}
	return h
}

// listener is an open GET stream.
type listener struct {
	t    *testing.T
	conn net.Conn
	res  *http.Response
	r    *bufio.Reader
}

func (s *mcpStage) listen(uri string, header ...string) *listener {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:18080\r\nAccept: text/event-stream\r\n", uri)
	for i := 0; i+1 < len(header); i += 2 {
		fmt.Fprintf(conn, "%s: %s\r\n", header[i], header[i+1])
	}
	io.WriteString(conn, "\r\n")
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return &listener{s.t.(*testing.T), conn, res, bufio.NewReader(res.Body)}
}

// event reads up to the next blank line.
func (l *listener) event() string {
	l.t.Helper()
	var b strings.Builder
	for {
		line, err := l.r.ReadString('\n')
		b.WriteString(line)
		if err != nil {
			l.t.Fatalf("the stream ended after %q: %v", b.String(), err)
		}
		if line == "\n" {
			return b.String()
		}
	}
}

// challenges names what must never reach an engine.
func challenges(a answer) []string {
	var found []string
	for name := range a.header {
		switch strings.ToLower(name) {
		case "www-authenticate", "location", "set-cookie", "link", "proxy-authenticate":
			found = append(found, name)
		}
	}
	if a.status == 401 || a.status == 403 {
		found = append(found, fmt.Sprint(a.status))
	}
	if text := a.body + fmt.Sprint(a.header); strings.Contains(text, tokenPrefix) || strings.Contains(text, "canary") || strings.Contains(text, "127.0.0.1") {
		found = append(found, "an address, a key or a token")
	}
	return found
}
