package egress

import (
	"bufio"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/worker/internal/gate/http1"
)

// FuzzTarget feeds whole requests to the grammar of both forms. Whatever is
// accepted must name one host, and for plain http send a path that starts
// inside it.
func FuzzTarget(f *testing.F) {
	for _, p := range probes {
		if len(p.raw) < 1000 {
			f.Add(strings.ReplaceAll(p.raw, "PORT", "80"))
		}
	}
	f.Fuzz(func(t *testing.T, raw string) {
		req, err := http1.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return
		}
		if req.Method == "CONNECT" {
			h, r := connectTarget(req)
			if r == nil && (h.Port == 0 || h.Hostname() == "" || strings.ContainsAny(h.Name, "/\\@%#?[]: ")) {
				t.Errorf("%q: %#v", req.Target, h)
			}
			return
		}
		h, path, r := urlTarget(req)
		if r != nil {
			return
		}
		if h.Port == 0 || h.Hostname() == "" || strings.ContainsAny(h.Name, "/\\@%#?[]: ") {
			t.Errorf("%q: %#v", req.Target, h)
		}
		if path != "*" && path[0] != '/' || !strings.HasSuffix(req.Target, strings.TrimPrefix(path, "/")) && path != "*" {
			t.Errorf("%q: path %q", req.Target, path)
		}
	})
}
