package api

import (
	"net/http"
	"strconv"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/report"
)

// ReportOnly is the interface for whoever may read the signed report and do
// nothing: there is no other route.
func ReportOnly(sign func(nonce string) (report.Signed, error)) http.Handler {
	answer := signedReport(sign)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet || r.URL.Path != report.Path:
			noSuchRoute(w, r)
		case r.ContentLength != 0:
			fail(w, reason.New(reason.Usage, "whoever asks for the report sends no body"))
		default:
			answer(w, r)
		}
	})
}

// signedReport answers with the signed report, in the one spelling that
// verifies.
func signedReport(sign func(nonce string) (report.Signed, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if len(query["nonce"]) > 1 || len(query) > 1 || (len(query) == 1 && query.Get("nonce") == "") {
			fail(w, reason.New(reason.Usage, "the signed report takes nonce=… once, and nothing else"))
			return
		}
		signed, err := sign(query.Get("nonce"))
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
		w.Header().Set("Content-Length", strconv.Itoa(len(text))) // one piece also for who reads HTTP by hand
		w.Header().Set("Cache-Control", "no-store")
		w.Write(text)
	}
}
