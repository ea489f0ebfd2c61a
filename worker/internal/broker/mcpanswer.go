package broker

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// mcpRefusal is what the broker says in a URL server's place. A person reads
// it in the chat, or an engine reads it out to one: so it names the server and
// what to do, and holds no address.
type mcpRefusal struct {
	code  string // also in the event
	rpc   int    // JSON-RPC's code, of the implementation's own range
	fault bool   // HTTP 502: it is nobody's decision, another try may do
	words string
	cause string // for the sentence about a server that did not start
	why   string
}

const (
	rpcRefused = -32010 // the server or we said no
	rpcMoved   = -32011
	rpcFailed  = -32012
	rpcGone    = -32013 // the address is not this box's any more
	rpcParse   = -32700
)

var mcpRefusals = []mcpRefusal{
	{"mcp_unauthorized", rpcRefused, false,
		"The MCP server {server} refused the key that it was given (HTTP {status}). Somebody has to give it a new one in the MCP settings; trying again does not help.",
		"it refused its key, HTTP {status}", "a challenge would start a sign-in that cannot work behind a broker, and engines keep what is left of it (anthropics/claude-code#47296)"},
	{"upstream_redirect", rpcMoved, false,
		"The MCP server {server} points to {target}, where its headers must not go. Somebody has to put its new address into the MCP settings; trying again does not help.",
		"it points to {target}", "clients that follow a redirect send the configured headers along"},
	{"upstream_refused", rpcMoved, false,
		"The address of the MCP server {server} leads to a place that no bot may reach. Somebody has to correct it in the MCP settings; trying again does not help.",
		"its address leads where no bot may go", "cloud metadata, link-local addresses, and the server behind the harness gate"},
	{"endpoint_foreign", rpcMoved, false,
		"The MCP server {server} wants its messages sent to {target}, where its headers must not go. Somebody has to correct the server, or its address in the MCP settings.",
		"it names {target} for its messages", "the endpoint event of 2024-11-05 may name any address"},
	{"redirect_loop", rpcMoved, true, "The MCP server {server} points on and on; the fault is on the server's side.", "it points on and on", "four hops are more than any server needs"},
	{"redirect_long", rpcMoved, true, "The MCP server {server} points elsewhere, and this message is too long to be sent twice; its exact address in the MCP settings would help.", "it points elsewhere", "only a message that was kept can be sent again"},
	{"upstream_name", rpcFailed, true, "The name of the MCP server {server} could not be resolved: its address is wrong, or the fault is on our side.", "its name could not be resolved", "DNS"},
	{"upstream_tls", rpcFailed, true, "The certificate of the MCP server {server} was not accepted; the fault is on the server's side.", "its certificate was not accepted", "TLS"},
	{"upstream_unreachable", rpcFailed, true, "The MCP server {server} could not be reached: it is down, or the fault is on our side.", "it could not be reached", "TCP and TLS"},
	{"upstream_protocol", rpcFailed, true, "The MCP server {server} gave no final answer; the fault is on the server's side.", "it gave no final answer", "1xx"},
	{"upstream_encoding", rpcFailed, true, "The MCP server {server} compressed its answer although it was asked not to; the fault is on the server's side.", "its answer cannot be read", "what cannot be searched for the headers is not passed on"},
	{"upstream_failed", rpcFailed, true, "The MCP server {server} failed (HTTP {status}); the fault is on the server's side.", "it failed, HTTP {status}", "a page for people is no answer to a program"},
	{"token_revoked", rpcGone, false, "The address of this MCP server was replaced. It connects again on the next message.", "", "an engine that is kept has the old one"},
	{"unknown_token", rpcGone, false, "This MCP server's address is not known here. It connects again on the next message.", "", "a 401 would start a sign-in"},
	{"grants_lost", rpcGone, false, "The MCP servers of this turn were lost; the fault is ours. They connect again on the next message.", "", "fail closed, and say so"},
	{"wrong_box", rpcGone, false, "This MCP server's address belongs to another conversation.", "", "a token seen elsewhere was stolen"},
	{"missing_grant", rpcGone, false, "This conversation has no MCP server of that name.", "", "names come from the path"},
	{"limit_concurrent", rpcRefused, false, "This turn has too many open requests to the MCP server {server}; one of them has to end first.", "", "limits.concurrent"},
	{"limit_requests", rpcRefused, false, "This turn has made too many requests to the MCP server {server} in a minute.", "", "limits.requests_per_min"},
	{"limit_bytes", rpcRefused, false, "This turn has used up the bytes that it may exchange with the MCP server {server}.", "", "limits.bytes"},
	{"broker_fault", rpcFailed, true, "The broker failed on this request; the fault is ours.", "the fault is ours", "a fault of ours must not end the worker"},
}

func mcpRefusalFor(code, message string) mcpRefusal {
	for _, r := range mcpRefusals {
		if r.code == code {
			return r
		}
	}
	return mcpRefusal{code: code, rpc: rpcRefused, words: message}
}

// fill puts the exchange's own words in.
func (m *mcpExchange) fill(text string) string {
	server := m.server
	if server == "" {
		server = "of this address"
	}
	return strings.NewReplacer("{server}", server, "{status}", strconv.Itoa(m.status), "{target}", m.target).Replace(text)
}

// refuseMCP answers in the server's place, in the form that the request wants:
// never with a status that makes a client sign in.
func (x *exchange) refuseMCP(code, message string) {
	m := x.mcp
	row := mcpRefusalFor(code, message)
	if m.lease != nil && m.server != "" && row.cause != "" {
		m.b.note(m.lease, m.server, m.fill(row.cause))
	}
	m.b.count("broker.mcp_refused")
	if x.r.Method == "POST" {
		x.refuseMessage(row)
		return
	}
	switch {
	case !mcpMethods[x.r.Method]:
		x.Header().Set("Allow", "GET, POST, DELETE")
		x.own(http.StatusMethodNotAllowed, m.rpcError(row, nil))
	case row.fault:
		x.own(http.StatusBadGateway, m.rpcError(row, nil))
	case x.r.Method == "DELETE": // the session is as good as gone
		x.own(http.StatusOK, nil)
	default:
		// "There is no such stream" is what every client takes; any other status
		// of 4xx makes one of them sign in.
		x.Header().Set("Allow", "POST")
		x.own(http.StatusMethodNotAllowed, m.rpcError(row, nil))
	}
}

// refuseMessage answers each call of a posted message.
func (x *exchange) refuseMessage(row mcpRefusal) {
	m := x.mcp
	if m.body == nil { // refused before it was read
		m.body, _ = m.b.readMCPBody(&upload{body: x.r.Body, meter: m.meter})
		m.body.release(m.b)
	}
	m.body.finish()
	scan := &m.body.scan
	status := http.StatusOK
	if row.fault {
		status = http.StatusBadGateway
	}
	switch {
	case !scan.whole() || scan.more:
		row.rpc = rpcParse
		x.own(http.StatusBadRequest, m.rpcError(row, nil))
		return
	case len(scan.calls) == 0 && row.fault:
		x.own(status, m.rpcError(row, nil))
		return
	case len(scan.calls) == 0: // notifications and answers
		x.own(http.StatusAccepted, nil)
		return
	}
	modern := x.r.Header.Get("Mcp-Protocol-Version") >= "2026-07-28"
	var answers []any
	for _, c := range scan.calls {
		if c.method == "tools/call" && !row.fault {
			answers = append(answers, m.toolResult(row, c, modern))
		} else {
			answers = append(answers, m.rpcError(row, c.id))
		}
	}
	if m.stream != "" { // the answers go where the client waits for them
		if s := m.lease.streams.find(m.stream); s != nil && s.insert(messageEvents(answers)) {
			x.own(http.StatusAccepted, nil)
			return
		}
		status = http.StatusBadGateway
	}
	switch {
	case status == http.StatusOK && onlyEvents(x.r.Header["Accept"]):
		x.ownBytes(status, "text/event-stream", messageEvents(answers))
	case scan.batch:
		x.own(status, answers)
	default:
		x.own(status, answers[0])
	}
}

type object = map[string]any

// toolResult is a tool's failure, which the model reads: an error of the
// protocol is for the client, and some of them sign in, or call the server dead.
func (m *mcpExchange) toolResult(row mcpRefusal, c rpcCall, modern bool) object {
	result := object{"content": []any{object{"type": "text", "text": m.fill(row.words)}}, "isError": true}
	if modern {
		result["resultType"] = "complete"
	}
	return object{"jsonrpc": "2.0", "id": c.id, "result": result}
}

func (m *mcpExchange) rpcError(row mcpRefusal, id json.RawMessage) object {
	return object{"jsonrpc": "2.0", "id": id, "error": object{"code": row.rpc, "message": m.fill(row.words), "data": object{"code": row.code}}}
}

func messageEvents(answers []any) []byte {
	var b strings.Builder
	for _, a := range answers {
		text, err := json.Marshal(a)
		if err != nil { // strings, numbers and ids that were valid
			panic(err)
		}
		b.WriteString("event: message\ndata: " + string(text) + "\n\n")
	}
	return []byte(b.String())
}

// onlyEvents: a client that takes both gets JSON.
func onlyEvents(accept []string) bool {
	all := strings.ToLower(strings.Join(accept, ","))
	return strings.Contains(all, "text/event-stream") && !strings.Contains(all, "json") && !strings.Contains(all, "*/*")
}

// own sends a body of ours; nil is none.
func (x *exchange) own(status int, body any) {
	if body == nil {
		x.ownBytes(status, "", nil)
		return
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	x.ownBytes(status, "application/json", text)
}

func (x *exchange) ownBytes(status int, kind string, body []byte) {
	h := x.Header()
	if kind != "" {
		h.Set("Content-Type", kind)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Omb-Broker", "1")
	h.Set("X-Should-Retry", "false")
	x.WriteHeader(status)
	x.Write(body)
}
