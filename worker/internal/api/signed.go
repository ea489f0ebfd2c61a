package api

import (
	"net/http"

	"github.com/openmausbot/botbox/shared/reason"
)

// signed answers with the signed report, in the one spelling that verifies.
func (s *Server) signed(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if len(query["nonce"]) > 1 || len(query) > 1 || (len(query) == 1 && query.Get("nonce") == "") {
		fail(w, reason.New(reason.Usage, "the signed report takes nonce=… once, and nothing else"))
		return
	}
	signed, err := s.Signed(query.Get("nonce"))
	if err != nil {
		fail(w, err)
		return
	}
	text, err := signed.Encode()
	if err != nil {
		fail(w, reason.New(reason.Internal, "encode the report: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(text)
}
