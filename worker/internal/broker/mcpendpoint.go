package broker

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
)

// mcpEndpoint is where the messages of one stream of the 2024-11-05 transport
// are posted. The box gets it sealed: it stays good for the next worker, the
// box cannot make one, and what the upstream wrote in it is not shown.
type mcpEndpoint struct {
	Stream  string
	Target  string // path and query on the server's origin
	Foreign string // the other host that the server named
}

func (l *leases) sealEndpoint(of *lease, server string, e mcpEndpoint) string {
	plain, err := json.Marshal(struct {
		mcpEndpoint
		Server string
	}{e, server})
	if err != nil { // strings only
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(l.endpoint.seal(of.digest, plain))
}

func (l *leases) openEndpoint(of *lease, server, sealed string) *mcpEndpoint {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return nil
	}
	plain, err := l.endpoint.aead.Open(nil, nil, raw, of.digest[:])
	if err != nil {
		return nil
	}
	var e struct {
		mcpEndpoint
		Server string
	}
	if json.Unmarshal(plain, &e) != nil || e.Server != server {
		return nil
	}
	return &e.mcpEndpoint
}

// endpointURL gives the address for a message of the 2024-11-05 transport.
func (m *mcpServer) endpointURL(e *mcpEndpoint, t target) *url.URL {
	u, err := m.base.Parse(e.Target)
	if err != nil || !sameOrigin(u, m.base) {
		return nil
	}
	if t.query != "" {
		if u.RawQuery != "" {
			u.RawQuery += "&"
		}
		u.RawQuery += t.query
	}
	return u
}

func newStreamID() string {
	var raw [12]byte
	rand.Read(raw[:])
	return hex.EncodeToString(raw[:])
}

// endpointFor gives the address under which the box reaches what a server
// calls its endpoint. It is written from the root on: that is the form that
// every client takes.
func (b *Broker) endpointFor(c mcpCall, from *url.URL, stream, data string) string {
	e := mcpEndpoint{Stream: stream}
	next, foreign := follow(from, data)
	if foreign != "" {
		e.Foreign = foreign
	} else {
		e.Target = next.RequestURI()
	}
	return "/b/" + c.target.token + "/" + c.target.grant + "/~" + b.mcp.sealEndpoint(c.lease, c.server.name, e)
}
