package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/openmausbot/botbox/shared/reason"
)

// rotate reads the secrets of living grants again: all of them, or with
// {"ref":"NAME"} the one that is named.
func (s *Server) rotate(r *http.Request) (any, error) {
	var body *struct {
		Ref string `json:"ref"`
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(&body)
	if errors.Is(err, io.EOF) || err == nil && body == nil { // nothing, or null
		return s.Runner.Broker.Rotate(s.Runner.Secrets, "")
	}
	if err != nil || d.More() || body.Ref == "" {
		return nil, reason.New(reason.Usage, `the body is neither empty nor {"ref":"NAME"}`)
	}
	return s.Runner.Broker.Rotate(s.Runner.Secrets, body.Ref)
}
