package mcpprobe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"
)

const (
	newest     = "2025-11-25" // of those with a handshake
	modern     = "2026-07-28" // without one
	readMost   = 8 << 20
	toolsMost  = 1000
	pagesMost  = 20
	eventsMost = 1000 // of one stream, before the answer
)

// found is what a server said of itself.
type found struct {
	protocol, server string
	tools            []Tool
}

// answerError is an answer that is no success, in words for a person.
type answerError struct {
	status int
	code   int // JSON-RPC's
	words  string
}

func (e answerError) Error() string { return e.words }

// session is a conversation with one server, in whichever revision it speaks.
type session struct {
	ctx      context.Context
	http     *http.Client
	url      string
	id       int
	protocol string
	session  string  // Mcp-Session-Id
	events   *events // the transport of 2024-11-05
}

// probe begins a session and lists the tools: with the handshake first, which
// four of five revisions have, without it where the server knows none, and
// with the oldest transport where it takes no POST.
func probe(ctx context.Context, client *http.Client, url string) (found, error) {
	s := &session{ctx: ctx, http: client, url: url}
	f, err := s.handshake()
	var told answerError
	if errors.As(err, &told) && (told.code == -32601 || told.code == -32020 || told.code == -32022 || told.code == -32602) {
		s = &session{ctx: ctx, http: client, url: url, protocol: modern}
		f, err = s.discover()
	} else if told.status == http.StatusNotFound || told.status == http.StatusMethodNotAllowed || told.status == http.StatusBadRequest {
		s = &session{ctx: ctx, http: client, url: url}
		was := err
		if f, err = s.oldHandshake(); err != nil {
			err = was // the server's words about the usual way
		}
	}
	defer s.end()
	if err != nil {
		return f, err
	}
	f.tools, err = s.tools()
	return f, err
}

var clientInfo = map[string]string{"name": "botbox-mcp-test", "version": "1"}

func (s *session) handshake() (found, error) {
	var f found
	result, err := s.call("initialize", map[string]any{
		"protocolVersion": newest, "capabilities": map[string]any{}, "clientInfo": clientInfo,
	})
	if err != nil {
		return f, err
	}
	var said struct {
		ProtocolVersion string
		ServerInfo      struct{ Name, Version string }
	}
	if json.Unmarshal(result, &said) != nil || said.ProtocolVersion == "" {
		return f, answerError{words: "The server's answer to initialize names no protocol version."}
	}
	s.protocol = said.ProtocolVersion
	f.protocol, f.server = clean(said.ProtocolVersion, 20), clean(said.ServerInfo.Name+" "+said.ServerInfo.Version, 100)
	return f, s.notify("notifications/initialized")
}

func (s *session) discover() (found, error) {
	var f found
	result, err := s.call("server/discover", map[string]any{})
	if err != nil {
		return f, err
	}
	var said struct {
		SupportedVersions []string
		Meta              map[string]json.RawMessage `json:"_meta"`
	}
	var info struct{ Name, Version string }
	if json.Unmarshal(result, &said) != nil {
		return f, answerError{words: "The server's answer to server/discover cannot be read."}
	}
	json.Unmarshal(said.Meta["io.modelcontextprotocol/serverInfo"], &info) // it may have none
	f.protocol, f.server = modern, clean(info.Name+" "+info.Version, 100)
	return f, nil
}

func (s *session) oldHandshake() (found, error) {
	req, err := http.NewRequestWithContext(s.ctx, "GET", s.url, nil)
	if err != nil {
		return found{}, err
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := s.http.Do(req)
	if err != nil {
		return found{}, err
	}
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		defer res.Body.Close()
		return found{}, refused(res)
	}
	s.events = newEvents(res.Body)
	for range eventsMost {
		e, err := s.events.next()
		if err != nil {
			return found{}, err
		}
		if e.name != "endpoint" {
			continue
		}
		base, _ := url.Parse(s.url)
		to, err := base.Parse(strings.TrimSpace(e.data))
		if err != nil || to.Host != base.Host || to.Scheme != base.Scheme {
			return found{}, answerError{words: "The server names another host for its messages."}
		}
		s.url = to.String()
		return s.handshake()
	}
	return found{}, answerError{words: "The server's stream does not say where its messages go."}
}

func (s *session) tools() ([]Tool, error) {
	var tools []Tool
	cursor := ""
	for range pagesMost {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		result, err := s.call("tools/list", params)
		var told answerError
		if errors.As(err, &told) && told.code == -32601 {
			return tools, nil // it has prompts or resources only
		}
		if err != nil {
			return nil, err
		}
		var page struct {
			Tools      []Tool
			NextCursor string
		}
		if json.Unmarshal(result, &page) != nil {
			return nil, answerError{words: "The server's list of tools cannot be read."}
		}
		for _, t := range page.Tools {
			if len(tools) < toolsMost {
				tools = append(tools, Tool{clean(t.Name, 128), clean(t.Description, 500)})
			}
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	return tools, nil
}

// end tells the server that the session is over.
func (s *session) end() {
	if s.events != nil {
		s.events.body.Close()
	}
	if s.session == "" {
		return
	}
	if req, err := http.NewRequestWithContext(s.ctx, "DELETE", s.url, nil); err == nil {
		s.mark(req, "")
		if res, err := s.http.Do(req); err == nil {
			res.Body.Close()
		}
	}
}

func (s *session) notify(method string) error {
	res, err := s.post(method, map[string]any{"jsonrpc": "2.0", "method": method})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return refused(res)
	}
	return nil
}

func (s *session) call(method string, params map[string]any) (json.RawMessage, error) {
	s.id++
	if s.protocol == modern {
		params["_meta"] = map[string]any{
			"io.modelcontextprotocol/protocolVersion": modern, "io.modelcontextprotocol/clientInfo": clientInfo,
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		}
	}
	res, err := s.post(method, map[string]any{"jsonrpc": "2.0", "id": s.id, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return nil, refused(res)
	}
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		s.session = id
	}
	from := s.events
	if from == nil && strings.HasPrefix(strings.ToLower(res.Header.Get("Content-Type")), "text/event-stream") {
		from = newEvents(res.Body)
	}
	if from == nil {
		b, err := io.ReadAll(io.LimitReader(res.Body, readMost))
		if err != nil {
			return nil, err
		}
		result, _, err := answerTo(b, s.id)
		return result, err
	}
	for range eventsMost {
		e, err := from.next()
		if err != nil {
			return nil, err
		}
		if result, ours, err := answerTo([]byte(e.data), s.id); ours {
			return result, err
		}
	}
	return nil, answerError{words: "The server's stream has no answer in it."}
}

func (s *session) post(method string, message map[string]any) (*http.Response, error) {
	b, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(s.ctx, "POST", s.url, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	s.mark(req, method)
	return s.http.Do(req)
}

// mark adds what the later messages of a session carry.
func (s *session) mark(req *http.Request, method string) {
	if s.protocol != "" && method != "initialize" {
		req.Header.Set("Mcp-Protocol-Version", s.protocol)
	}
	if s.session != "" {
		req.Header.Set("Mcp-Session-Id", s.session)
	}
	if s.protocol == modern && method != "" {
		req.Header.Set("Mcp-Method", method)
	}
}

// answerTo reads a message, and tells whether it is the answer to a call.
func answerTo(b []byte, id int) (result json.RawMessage, ours bool, err error) {
	var m struct {
		ID     json.RawMessage
		Result json.RawMessage
		Error  *struct {
			Code    int
			Message string
		}
	}
	if json.Unmarshal(b, &m) != nil {
		return nil, false, answerError{words: "The server's answer is no JSON-RPC."}
	}
	if m.Error != nil && (string(m.ID) == fmt.Sprint(id) || len(m.ID) == 0 || string(m.ID) == "null") {
		return nil, true, answerError{code: m.Error.Code, words: m.Error.Message}
	}
	if string(m.ID) != fmt.Sprint(id) || m.Result == nil {
		return nil, false, answerError{words: "The server's answer belongs to no call."}
	}
	return m.Result, true, nil
}

// refused reads an answer that is no success.
func refused(res *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	var m struct {
		Error struct {
			Code    int
			Message string
		}
	}
	if json.Unmarshal(b, &m) == nil && m.Error.Message != "" {
		return answerError{res.StatusCode, m.Error.Code, m.Error.Message}
	}
	return answerError{status: res.StatusCode, words: fmt.Sprintf("The server answered HTTP %d.", res.StatusCode)}
}

// events reads server-sent events.
type events struct {
	body io.ReadCloser
	line *bufio.Scanner
}

type event struct{ name, data string }

func newEvents(body io.ReadCloser) *events {
	s := bufio.NewScanner(body)
	s.Buffer(nil, readMost)
	return &events{body, s}
}

func (e *events) next() (event, error) {
	var now event
	var data []string
	for e.line.Scan() {
		line := strings.TrimSuffix(e.line.Text(), "\r")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && data != nil:
			now.data = strings.Join(data, "\n")
			return now, nil
		case field == "event":
			now.name = value
		case field == "data":
			data = append(data, value)
		}
	}
	if err := e.line.Err(); err != nil {
		return now, err
	}
	return now, answerError{words: "The server's stream ended without an answer."}
}

// clean makes text of a server's fit for a screen.
func clean(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "…"
	}
	return s
}
