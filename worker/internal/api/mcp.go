package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/mcpprobe"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// body reads a request's only JSON value.
func body(r *http.Request, into any, form string) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil || d.More() {
		return reason.New(reason.Usage, "the body is not %s", form) // an error would quote values
	}
	return nil
}

// Addresses are a conversation's URL servers as its engine reaches them.
type Addresses struct {
	MCPAddresses map[string]string `json:"mcp_addresses"`
	Env          map[string]string `json:"env"` // the variables of the box that hold them
	Expires      time.Time         `json:"expires"`
	New          bool              `json:"new"` // not those of the turn before
}

// mcpAddresses gives the addresses ahead of a turn, for a driver that writes
// them into a configuration. They work as soon as a box of the conversation
// has the same servers in its spec.
func (s *Server) mcpAddresses(r *http.Request) (any, error) {
	var ask struct {
		Bot string     `json:"bot"`
		MCP []spec.MCP `json:"mcp"`
	}
	if err := body(r, &ask, `{"bot":"…","mcp":[{"name":"…","url":"…","headers":{}}]}`); err != nil {
		return nil, err
	}
	if err := spec.CheckMCP(ask.MCP); err != nil {
		return nil, err
	}
	if !spec.IsID(r.PathValue("id")) || ask.Bot != "" && !spec.IsID(ask.Bot) {
		return nil, reason.New(reason.BadSpec, "a conversation or a bot is named with letters, digits and _ . : - only")
	}
	servers, err := s.Runner.MCPServers(ask.MCP)
	if err != nil {
		return nil, err
	}
	issued, err := s.Runner.Broker.IssueMCP(broker.MCPTurn{Bot: ask.Bot, Conversation: r.PathValue("id"), Servers: servers})
	if err != nil {
		return nil, err
	}
	a := Addresses{map[string]string{}, map[string]string{}, issued.Expires, issued.New}
	for name, address := range issued.Addresses {
		a.MCPAddresses[name] = address
		a.Env[name] = broker.MCPEnv(name)
	}
	return a, nil
}

// mcpFailed notes that an engine could not start a server, and gives the
// sentence that the chat shows.
func (s *Server) mcpFailed(r *http.Request) (any, error) {
	var ask struct {
		Bot    string `json:"bot"`
		Server string `json:"server"`
	}
	if err := body(r, &ask, `{"server":"…"}`); err != nil {
		return nil, err
	}
	return s.Runner.Broker.FailMCP(ask.Bot, r.PathValue("id"), ask.Server)
}

// mcpTest tries a server the way a turn does.
func (s *Server) mcpTest(r *http.Request) (any, error) {
	var ask struct {
		Name    string                `json:"name"`
		URL     string                `json:"url"`
		Headers map[string]spec.Value `json:"headers"`
	}
	if err := body(r, &ask, `{"name":"…","url":"…","headers":{}}`); err != nil {
		return nil, err
	}
	if ask.Name == "" {
		ask.Name = "server"
	}
	list := []spec.MCP{{Name: ask.Name, URL: ask.URL, Headers: ask.Headers}}
	if err := spec.CheckMCP(list); err != nil {
		return nil, err
	}
	servers, err := s.Runner.MCPServers(list)
	if err != nil {
		return nil, err
	}
	if err := broker.CheckMCPServer(servers[0]); err != nil {
		return nil, err
	}
	return mcpprobe.Run(r.Context(), s.Runner.Broker, servers[0]), nil
}
