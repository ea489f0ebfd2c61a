package provider

import (
	"net/http"
	"net/url"
)

// vendor is how one provider reads a credential and refuses a request.
type vendor struct {
	header  string // where it reads the key
	prefix  string // what stands before the key there
	refusal func(status int, message string) obj
}

var (
	anthropic = vendor{"X-Api-Key", "", func(status int, message string) obj {
		kind := "invalid_request_error"
		if status == http.StatusUnauthorized {
			kind = "authentication_error"
		}
		return obj{"type": "error", "error": obj{"type": kind, "message": message}, "request_id": "req_standin"}
	}}
	openai = vendor{"Authorization", "Bearer ", func(status int, message string) obj {
		var code any
		if status == http.StatusUnauthorized {
			code = "invalid_api_key"
		}
		return obj{"error": obj{"message": message, "type": "invalid_request_error", "param": nil, "code": code}}
	}}
	gemini = vendor{"X-Goog-Api-Key", "", func(status int, message string) obj {
		kind := "INVALID_ARGUMENT"
		if status == http.StatusUnauthorized {
			kind = "UNAUTHENTICATED"
		}
		return obj{"error": obj{"code": status, "message": message, "status": kind}}
	}}
)

// credentialHeaders and credentialParams are every place in which one of the
// three providers would look for a credential.
var (
	credentialHeaders = []string{"X-Api-Key", "Authorization", "X-Goog-Api-Key", "Api-Key"}
	credentialParams  = []string{"key", "api_key", "access_token"}
)

// authentic tells whether the key is in the vendor's own header, once, and no
// other credential is anywhere.
func (v *vendor) authentic(r *http.Request, key string) bool {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return false
	}
	n := 0
	for _, name := range credentialHeaders {
		n += len(r.Header.Values(name))
	}
	for _, name := range credentialParams {
		n += len(query[name])
	}
	return n == 1 && r.Header.Get(v.header) == v.prefix+key
}
