package spec

import "strings"

// checkMCP holds the URL servers to boxes that can use them. What a name, an
// address or a header may be, the broker says.
func (s *Spec) checkMCP() error {
	switch {
	case len(s.Broker.MCP) == 0:
		return nil
	case s.Kind == "browser":
		return bad("field broker.mcp is not for kind browser, which has no engine")
	case s.Net.Mode != "gated":
		return bad("field broker.mcp needs net.mode gated: without it the box has no broker")
	case s.Profile.Keys == "none":
		return bad("field broker.mcp needs a token, and profile.keys none gives none")
	}
	return CheckMCP(s.Broker.MCP)
}

// CheckMCP wants each server to have a name of its own, and an address.
func CheckMCP(list []MCP) error {
	seen := map[string]bool{}
	for _, m := range list {
		switch {
		case m.Name == "" || m.URL == "":
			return bad("field broker.mcp: a server needs name and url")
		case seen[m.Name]:
			return bad("field broker.mcp: two servers have one name")
		case strings.ContainsFunc(m.URL, func(r rune) bool { return r <= ' ' || r > '~' }):
			return bad("field broker.mcp: an address holds a blank or a letter that no URL has")
		}
		seen[m.Name] = true
	}
	return nil
}

// IsID tells whether s may name a bot or a conversation.
func IsID(s string) bool { return made(s, idBytes, 128) }
