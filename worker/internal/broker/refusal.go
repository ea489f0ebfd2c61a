package broker

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// refusal is an answer that the broker makes itself. Engines decide by status,
// by x-should-retry and by the body's shape whether they try again, so each is
// a row and each row says what it is for.
type refusal struct {
	code    string // also in the event
	status  int
	openai  int // another status for OpenAI-shaped answers, 0 = the same
	retry   bool
	close   bool // end the connection, too
	message string
	why     string
}

var refusals = []refusal{
	{"bad_request", 400, 0, false, true, "The broker does not take this form of request.",
		"absolute-form, authority-form and encoded dots choose an upstream or a path behind our back"},
	{"unknown_token", 401, 0, false, false, "This token is unknown to the broker.",
		"Claude Code stops at once on 401 with x-should-retry: false"},
	{"token_revoked", 401, 400, false, false, "This token was revoked or has expired. Start a new turn.",
		"Codex ignores x-should-retry and posts six times on 401 or 403, once on 400"},
	{"wrong_box", 403, 0, false, true, "This token belongs to another box. It was revoked.",
		"a token seen elsewhere was stolen"},
	{"missing_grant", 403, 0, false, false, "This token has no such grant.",
		"the box asks for a key that its turn was not given"},
	{"path_refused", 403, 0, false, false, "This endpoint is not open to boxes.",
		"only inference paths are in the table: an administrator's key could make new keys"},
	{"foreign_credential", 403, 0, false, false, "This host takes no other credential than the box's own token.",
		"with a key of its own a box could leave data in a stranger's account at a host that is open to it"},
	{"token_misplaced", 400, 0, false, false, "The token stands where no credential belongs.",
		"it becomes the key only where it is the whole of a credential: inside of a URL or a text it would carry the key away"},
	{"not_found", 404, 0, false, false, "Nothing is served here.",
		"engines look for OAuth metadata and registration at the root after any 401"},
	{"method_refused", 405, 0, false, false, "This method is not open to boxes.",
		"TRACE echoes the key, CONNECT chooses an upstream, an override hides the method"},
	{"misdirected", 421, 0, false, true, "The Host is another one than the connection was opened to.",
		"what is asked of one declared host must not reach another with its key"},
	{"upgrade_required", 426, 0, false, true, "There is no WebSocket here; use POST.",
		"Codex falls back to POST at once on 426; any other status costs seven attempts"},
	{"limit_concurrent", 429, 0, true, false, "This turn has too many open requests.",
		"one of them ends before long, and Retry-After says when to ask again"},
	{"limit_requests", 429, 0, true, false, "This turn has made too many requests in a minute.",
		"Retry-After says when the next one may begin"},
	{"limit_bytes", 429, 0, false, true, "This turn has used up the bytes that it may send and receive.",
		"no later try can succeed"},
	{"limit_tokens", 429, 0, false, false, "This turn has used up the tokens that it may spend.",
		"no later try can succeed"},
	{"too_many_headers", 431, 0, false, true, "The request has too many header fields.",
		"a bound on what one request can make us hold"},
	{"login_ended", 401, 400, false, false, "The subscription's sign-in outside of the box has ended. Sign in again on the machine, and start a new turn.",
		"no later try can succeed; 400 for Codex, which posts six times on 401"},
	{"login_unsaved", 503, 0, true, false, "The subscription's new sign-in could not be written to its file outside of the box, so it is not used yet.",
		"a refresh token that is lost signs the user out; the next try writes again"},
	{"login_away", 502, 0, true, false, "The subscription's sign-in could not be renewed: its issuer did not answer the broker.",
		"a fault outside the box; the engine may try again"},
	{"upstream_redirect", 502, 0, false, false, "The provider answered with a redirect, which the broker does not follow.",
		"a followed redirect takes the key, and a passed one the client, somewhere else"},
	{"upstream_protocol", 502, 0, false, false, "The provider answered with something that is no final response.",
		"a switched protocol would be a tunnel that nobody looks into"},
	{"upstream_name", 502, 0, true, false, "The provider's name could not be resolved from the broker.",
		"a fault outside the box; the engine may try again"},
	{"upstream_tls", 502, 0, false, false, "The provider's TLS certificate was not accepted by the broker.",
		"trying again does not help"},
	{"upstream_unreachable", 502, 0, true, false, "The broker could not reach the provider.",
		"a fault outside the box; the engine may try again"},
	{"upstream_encoding", 502, 0, false, false, "The provider compressed its answer although it was asked not to, in a way that the broker does not read.",
		"what cannot be searched for the key is not passed on"},
	{"grants_lost", 503, 400, false, false, "The broker has no grants for this box: they were lost, or never made. Start a new turn.",
		"without its grant there is nothing that a request could be sent with; 400 as for a token that is revoked"},
	{"upstream_timeout", 504, 0, true, false, "The provider did not answer the WebSocket handshake in time.",
		"a fault outside the box; the engine may try again"},
	{"broker_fault", 500, 0, false, true, "The broker failed on this request; the fault is ours.",
		"a fault of ours must not end the worker"},
}

// refuse finds a row. An unknown code is a fault of ours, never a way through.
func refuse(code string) *refusal {
	for i := range refusals {
		if refusals[i].code == code {
			return &refusals[i]
		}
	}
	return refuse("broker_fault")
}

// shape is how a vendor's clients expect an error to look.
type shape int

const (
	plainShape shape = iota // {"code","message"}, as the worker's own API
	anthropicShape
	openaiShape
	googleShape
)

// shapeOf goes by the name in the path, also when the token has no such grant:
// the client speaks that vendor's language all the same.
func shapeOf(grant string) shape {
	if p, ok := providerNamed(grant); ok {
		return p.shape
	}
	return plainShape
}

// errorTypes are the vendors' own words for a status.
var errorTypes = []struct {
	status            int
	anthropic, google string
}{
	{400, "invalid_request_error", "INVALID_ARGUMENT"},
	{401, "authentication_error", "UNAUTHENTICATED"},
	{403, "permission_error", "PERMISSION_DENIED"},
	{404, "not_found_error", "NOT_FOUND"},
	{405, "invalid_request_error", "UNIMPLEMENTED"},
	{421, "invalid_request_error", "INVALID_ARGUMENT"},
	{426, "invalid_request_error", "FAILED_PRECONDITION"},
	{429, "rate_limit_error", "RESOURCE_EXHAUSTED"},
	{431, "invalid_request_error", "INVALID_ARGUMENT"},
	{500, "api_error", "INTERNAL"},
	{502, "api_error", "UNAVAILABLE"},
	{503, "api_error", "UNAVAILABLE"},
	{504, "api_error", "DEADLINE_EXCEEDED"},
}

func (r *refusal) body(s shape, status int) any {
	anthropic, google := "api_error", "INTERNAL"
	for _, t := range errorTypes {
		if t.status == status {
			anthropic, google = t.anthropic, t.google
		}
	}
	type object = map[string]any
	switch s {
	case anthropicShape:
		return object{"type": "error", "error": object{"type": anthropic, "message": r.message}}
	case openaiShape:
		kind := "invalid_request_error"
		switch {
		case status >= 500:
			kind = "server_error"
		case status == 429 && r.retry:
			kind = "rate_limit_error"
		case status == 429:
			kind = "insufficient_quota"
		}
		return object{"error": object{"message": r.message, "type": kind, "param": nil, "code": r.code}}
	case googleShape:
		return object{"error": object{"code": status, "message": r.message, "status": google}}
	}
	return object{"code": r.code, "message": r.message}
}

// write sends the refusal. X-Omb-Broker tells it from an upstream's answer.
func (r *refusal) write(w http.ResponseWriter, s shape) {
	status := r.status
	if s == openaiShape && r.openai != 0 {
		status = r.openai
	}
	body, err := json.Marshal(r.body(s, status))
	if err != nil { // only strings and numbers are in it
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Omb-Broker", "1")
	if !r.retry {
		h.Set("X-Should-Retry", "false")
	}
	if r.close {
		h.Set("Connection", "close")
	}
	w.WriteHeader(status)
	w.Write(body)
}
