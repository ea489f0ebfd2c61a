package broker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestBrokerErrorsNameNoAddress(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	s := newStage(t, nil)
	addr := s.serve("b1")
	for _, c := range []struct{ base, code string }{
		{"http://" + closed.Addr().String(), "upstream_unreachable"},
		{"https://" + addr, "upstream_tls"}, // answers in plain HTTP
		{"http://name.invalid", "upstream_name"},
	} {
		if c.code == "upstream_name" {
			s.Broker.transport.(*upstreams).DialContext = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.DNSError{Err: "no such host", Name: "name.invalid", Server: "10.9.8.7:53"}
			}
		}
		token, _ := s.issue("b1", c.base)
		got := send(t, addr, "POST", "/b/"+token+"/openai/v1/responses", nil, "{}")
		text := strings.ToLower(got.body + fmt.Sprint(got.header))
		if got.status != 502 || !strings.Contains(got.body, c.code) || !strings.Contains(got.body, "server_error") {
			t.Errorf("%s: %d %s", c.code, got.status, got.body)
		}
		for _, bad := range []string{"127.0.0.1", "10.9.8.7", "invalid\"", "name.invalid", token} {
			if strings.Contains(text, bad) {
				t.Errorf("%s: the answer names %s", c.code, bad)
			}
		}
	}
}

func TestEchoedKeysAreRedacted(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	up.then = func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			fmt.Fprintf(w, "%s: %s\n", name, values)
			w.Write([]byte(base64.StdEncoding.EncodeToString([]byte(values[0])) + "\n"))
		}
		for _, c := range []byte(openaiKey) { // byte by byte
			w.Write([]byte{c})
			w.(http.Flusher).Flush()
		}
	}
	got := send(t, addr, "POST", "/b/"+token+"/openai/v1/responses", http.Header{"X-Mine": {"stays"}}, "{}")
	if len(leaks(got.body)) > 0 || strings.Contains(got.body, base64.RawStdEncoding.EncodeToString([]byte("Bearer " + openaiKey))[12:40]) {
		t.Errorf("the key came back:\n%s", got.body)
	}
	if !strings.Contains(got.body, "X-Mine: [stays]") || strings.Count(got.body, redacted) < 3 {
		t.Errorf("not redacted as it should be:\n%s", got.body)
	}
}

func TestRequestForms(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	line := "POST /b/" + token + "/openai/v1/responses HTTP/1.1\r\nHost: x\r\n"
	for name, c := range map[string]struct {
		raw  string
		want int
	}{
		"control":        {line + "Content-Length: 2\r\n\r\n{}", 200},
		"two lengths":    {line + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x", 400},
		"NUL in a value": {line + "X-A: a\x00b\r\n\r\n", 400},
		"bare CR":        {line + "X-A: a\rb\r\n\r\n", 400},
		"blank in name":  {line + "X-Api-Key : a\r\n\r\n", 400},
		"many fields":    {line + strings.Repeat("X-A: a\r\n", headerFields+1) + "\r\n", 431},
		"long block":     {line + "X-A: " + strings.Repeat("a", headerBytes+8<<10) + "\r\n\r\n", 431},
		"unknown coding": {line + "Transfer-Encoding: gzip\r\n\r\n", 501},
		"two hosts":      {line + "Host: y\r\n\r\n", 400},
	} {
		before := len(up.requests())
		if got := exchangeRaw(t, addr, "POST", c.raw); got.status != c.want {
			t.Errorf("%s: %d, want %d", name, got.status, c.want)
		}
		if forwarded := len(up.requests()) > before; forwarded != (c.want == 200) {
			t.Errorf("%s: forwarded %v", name, forwarded)
		}
	}
	// Both framings: read as chunked, and what goes out has one of them.
	got := exchangeRaw(t, addr, "POST", line+"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
	if req := up.last(t); got.status != 200 || string(req.Body) != "{}" || req.Header.Get("Content-Length") != "" {
		t.Errorf("both framings: %d, upstream saw %q %v", got.status, req.Body, req.Header)
	}
}

func TestExpectContinue(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	req, _ := http.NewRequest("POST", "http://"+addr+"/b/"+token+"/openai/v1/responses", strings.NewReader("body"))
	req.Header.Set("Expect", "100-continue")
	res, err := (&http.Transport{ExpectContinueTimeout: time.Minute}).RoundTrip(req)
	if err != nil || res.StatusCode != 200 || string(up.last(t).Body) != "body" || up.last(t).Header.Get("Expect") == "" {
		t.Fatalf("%v, upstream saw %v", err, up.last(t))
	}
	res.Body.Close()
}

func TestAFaultOfOursIsAnAnswer(t *testing.T) {
	s := newStage(t, nil)
	s.Broker.transport = faulty{}
	addr := s.serve("b1")
	token, _ := s.issue("b1", "http://up.example")
	got := send(t, addr, "POST", "/b/"+token+"/openai/v1/responses", nil, "{}")
	if got.status != 500 || strings.Contains(got.body, "canary") {
		t.Errorf("%d %s", got.status, got.body)
	}
	e := s.await(Failing, func(Event) bool { return true })
	if !strings.Contains(e.Stack, "RoundTrip") || len(leaks(e, token)) > 0 {
		t.Errorf("event %+v", e)
	}
}

type faulty struct{}

func (faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	panic(errors.New(r.Header.Get("Authorization")))
}
