package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
)

// Every code has a status: the caller's fault, a box that cannot be, or ours.
func TestStatus(t *testing.T) {
	special := map[reason.Code]int{reason.NoSuchBox: http.StatusNotFound, reason.NoSuchRoute: http.StatusNotFound, reason.NotYours: http.StatusForbidden, reason.NoSuchTalk: http.StatusNotFound,
		reason.NoRelay: http.StatusConflict, reason.RelayNotReady: http.StatusConflict, reason.PortTaken: http.StatusConflict,
		reason.RelayBusy: http.StatusTooManyRequests, reason.RelayFailed: http.StatusBadGateway}
	byExit := map[int]int{
		reason.ExitUsage: http.StatusBadRequest, reason.ExitNoBox: http.StatusConflict, reason.ExitSystem: http.StatusServiceUnavailable,
	}
	for _, row := range reason.All() {
		want, known := special[row.Code]
		if !known {
			want, known = byExit[row.Exit]
		}
		if got := status(row.Code); got != want || !known {
			t.Errorf("%s, exit status %d: %d, want %d", row.Code, row.Exit, got, want)
		}
	}
	if got := status("no-such-code"); got != http.StatusServiceUnavailable {
		t.Errorf("a code that nobody knows: %d", got)
	}
}

func TestErrorsHaveCodeMessageAndHint(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{reason.New(reason.NoSuchBox, "there is no running box %q", "x"), 404, "no-such-box"},
		{errors.New("a cause"), 503, "internal"},
	} {
		w := httptest.NewRecorder()
		fail(w, c.err)
		var body map[string]string
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		if w.Code != c.status || body["code"] != c.code || body["message"] == "" || body["hint"] == "" || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%v: %d %v", c.err, w.Code, body)
		}
	}
}

// A stranger is refused on every route, before anything is looked at.
func TestAStrangerIsRefusedEverywhere(t *testing.T) {
	s := &Server{}
	stranger := context.WithValue(t.Context(), peerFault{}, reason.New(reason.NotYours, "this worker belongs to another user"))
	for _, route := range []string{
		"GET /api/cloud/box", "GET /v1/boxes", "GET /v1/boxes/x", "DELETE /v1/boxes/x", "POST /v1/boxes/x/signal", "POST /v1/boxes/x/relay", "POST /v1/selfcheck",
		"GET /v1/events", "GET /v1/boxes/x/why",
	} {
		method, path, _ := strings.Cut(route, " ")
		w := httptest.NewRecorder()
		s.routes().ServeHTTP(w, httptest.NewRequest(method, path, nil).WithContext(stranger))
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", route, w.Code, w.Body)
		}
	}
}
