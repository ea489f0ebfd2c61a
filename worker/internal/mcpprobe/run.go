package mcpprobe

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/broker"
)

const (
	// Within is the most that a test takes.
	Within = 9 * time.Second
	// askDirectly: a server that has not answered through the broker after this
	// long is also asked without it, so that both fit into Within.
	askDirectly = 4500 * time.Millisecond
)

// Result is what a test found.
type Result struct {
	OK       bool   `json:"ok"`
	Code     string `json:"code"` // empty, mcp_failed or broker_unreachable
	Message  string `json:"message"`
	Protocol string `json:"protocol"`
	Server   string `json:"server"` // as it calls itself
	Tools    []Tool `json:"tools"`
	Ms       int64  `json:"ms"`
}

// Tool is one that the server offers.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Issuer is the broker, as far as a test needs it.
type Issuer interface {
	IssueMCP(broker.MCPTurn) (broker.MCPIssued, error)
	Serve(net.Listener, string) error
	Revoke(box string) int
	MCPTransport() http.RoundTripper
}

// Run tries a server. Nothing of it is left when it returns.
func Run(ctx context.Context, b Issuer, s broker.MCPServer) Result {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	through := attempt(func() (found, error) { return throughBroker(ctx, b, s) })
	var f found
	var err, direct error
	asked := false
	select {
	case o := <-through:
		f, err = o.found, o.err
	case <-time.After(askDirectly):
		late := attempt(func() (found, error) { return directly(ctx, b, s) })
		o := <-through // ends with ctx at the latest
		f, err, asked = o.found, o.err, true
		if err != nil {
			direct = (<-late).err
		}
	}
	if err != nil && !asked {
		_, direct = directly(ctx, b, s)
	}
	r := Result{Tools: []Tool{}, Ms: time.Since(start).Milliseconds()}
	switch {
	case err == nil:
		r.OK, r.Message = true, fmt.Sprintf("Connected: %d tools.", len(f.tools))
		r.Protocol, r.Server, r.Tools = f.protocol, f.server, append(r.Tools, f.tools...)
	case direct == nil:
		r.Code = string(reason.BrokerUnreachable)
		r.Message = "Your bots can't reach this server: it answers this machine, but not through the broker that your bots use. The fault is ours, not the server's. (" + say(err, s.Name) + ")"
	default:
		r.Code, r.Message = string(reason.MCPFailed), say(err, s.Name)
	}
	return r
}

type outcome struct {
	found found
	err   error
}

// attempt does something aside, and takes a fault of ours for a failure.
func attempt(do func() (found, error)) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if fault := recover(); fault != nil {
				o.err = errors.New("the test itself failed")
			}
			done <- o
		}()
		o.found, o.err = do()
	}()
	return done
}

// say puts an error into words for a person: the server's are cut and cleaned,
// and of an error of Go's, which holds the address, only its kind is told.
func say(err error, server string) string {
	var told answerError
	switch {
	case errors.As(err, &told):
		return clean(told.words, 400)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("The MCP server %s did not answer within %d seconds.", server, int(Within.Seconds()))
	}
	return "The MCP server " + server + " could not be reached."
}

// throughBroker is a turn's way, but for the box: its listener is one that
// nobody else can dial.
func throughBroker(ctx context.Context, b Issuer, s broker.MCPServer) (found, error) {
	var raw [8]byte
	rand.Read(raw[:])
	box := "mcp-test_" + hex.EncodeToString(raw[:])
	defer b.Revoke(box) // whatever becomes of the next line
	issued, err := b.IssueMCP(broker.MCPTurn{Box: box, Servers: []broker.MCPServer{s}})
	if err != nil {
		return found{}, err
	}
	l := newPipe()
	served := make(chan error, 1)
	go func() { served <- b.Serve(l, box) }()
	defer func() { l.Close(); <-served }()
	transport := &http.Transport{DialContext: l.dial, DisableCompression: true}
	defer transport.CloseIdleConnections()
	return probe(ctx, &http.Client{Transport: transport}, issued.Addresses[s.Name])
}

// directly asks the server from this process.
func directly(ctx context.Context, b Issuer, s broker.MCPServer) (found, error) {
	transport := b.MCPTransport()
	client := &http.Client{
		Transport: s.WithHeaders(transport),
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > 4 {
				return errors.New("too many redirects")
			}
			return nil
		},
	}
	defer client.CloseIdleConnections()
	return probe(ctx, client, s.URL)
}
