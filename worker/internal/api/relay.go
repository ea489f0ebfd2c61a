package api

import (
	"encoding/json"
	"net/http"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/gate/signin"
)

// relayBody is a redirect in one of its two forms; see package signin.
type relayBody struct {
	URL     *string `json:"url"`
	Port    *int    `json:"port"`
	Request *struct {
		Method string `json:"method"`
		Target string `json:"target"`
	} `json:"request"`
}

// relay delivers the redirect of a sign-in, and gives the engine's answer.
func (s *Server) relay(r *http.Request) (any, error) {
	var body relayBody
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil || d.More() {
		return nil, notRedirect()
	}
	c, err := body.callback()
	if err != nil {
		return nil, err
	}
	t, err := s.Runner.Find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return t.Deliver(r.Context(), c)
}

func notRedirect() error {
	return reason.New(reason.BadRedirect, `the body is neither {"url":…} nor {"port":…,"request":{"method":"GET","target":…}}`)
}

func (b relayBody) callback() (signin.Callback, error) {
	switch {
	case b.URL != nil && b.Port == nil && b.Request == nil:
		return signin.ParseURL(*b.URL)
	case b.URL == nil && b.Port != nil && b.Request != nil:
		return signin.New(*b.Port, b.Request.Method, b.Request.Target)
	}
	return signin.Callback{}, notRedirect()
}
