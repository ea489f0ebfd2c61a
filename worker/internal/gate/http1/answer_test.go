package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestReadAnswer(t *testing.T) {
	for text, want := range map[string]string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokrest":                                  "ok",
		"HTTP/1.0 200 OK\r\n\r\nuntil the end":                                                "until the end",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx":          "x",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n": "abc",
		"HTTP/1.1 204 No\r\n\r\n":                                                             "",
	} {
		a, err := ReadAnswer(strings.NewReader(text), "GET", 100)
		if err != nil || string(a.Body) != want || a.Cut {
			t.Errorf("%q: %+v, %v", text, a, err)
		}
	}
	for n, cut := range map[int]bool{9: false, 10: false, 11: true} {
		a, err := ReadAnswer(strings.NewReader("HTTP/1.1 200 OK\r\n\r\n"+strings.Repeat("x", n)), "GET", 10)
		if err != nil || a.Cut != cut || len(a.Body) != min(n, 10) {
			t.Errorf("%d bytes: %+v, %v", n, a, err)
		}
	}
}

// What is taken as an answer reads the same to Go's own client, and is bounded.
func FuzzReadAnswer(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	f.Add("HTTP/1.0 302 x\r\nLocation: /\r\n\r\n")
	f.Add("HTTP/1.1 100 x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		const max = 64
		a, err := ReadAnswer(strings.NewReader(text), "GET", max)
		if err != nil {
			return
		}
		if a.Status < 200 || a.Status > 999 || len(a.Body) > max || len(a.Fields) > maxFields {
			t.Fatalf("%q: %+v", text, a)
		}
		br := bufio.NewReader(strings.NewReader(text))
		for {
			resp, err := http.ReadResponse(br, &http.Request{Method: "GET"})
			if err != nil {
				return // Go refuses more of what it does not like elsewhere
			}
			if resp.StatusCode < 200 {
				continue
			}
			body, err := io.ReadAll(io.LimitReader(resp.Body, max))
			if resp.StatusCode != a.Status || err == nil && !bytes.Equal(body, a.Body) {
				t.Errorf("%q: %d %q, and Go reads %d %q", text, a.Status, a.Body, resp.StatusCode, body)
			}
			return
		}
	})
}
