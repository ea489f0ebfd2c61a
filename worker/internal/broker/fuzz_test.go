package broker

import (
	"bytes"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
)

// Whatever passes the path's checks stays below the base, however often and in
// whatever way the upstream decodes and cleans it.
func FuzzTarget(f *testing.F) {
	for _, raw := range []string{
		"/b/omb_t0_x/anthropic/v1/messages?beta=true", "/b/t/openai/../x", "/b/t/gemini/v1beta/models/m%3ax:y", "/b/t/g/%2e%2e/", "/b//g/", "/b/t",
		"/b/t/anthropic/v1/messages/..;a/%5c", "//b/t/g", "/b/t/anthropic/v1/v1/messages",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		target, ok := splitTarget(raw)
		if !ok {
			return
		}
		rebuilt := "/b/" + target.token + "/" + target.grant + target.path
		if target.hasQuery {
			rebuilt += "?" + target.query
		}
		if rebuilt != raw && rebuilt != strings.Replace(raw, "/"+target.grant, "/"+target.grant+"/", 1) && target.path != "/" {
			t.Fatalf("%q was split into %+v", raw, target)
		}
		if !checkPath(target.path) {
			return
		}
		for i := range providers {
			p := &providers[i]
			joined := p.join("/base", target.path)
			for range 3 {
				for _, reading := range []string{joined, strings.ReplaceAll(joined, `\`, "/")} {
					if clean := path.Clean(reading); clean != "/base" && !strings.HasPrefix(clean, "/base/") {
						t.Fatalf("%q leaves the base as %q", raw, clean)
					}
				}
				next, err := url.PathUnescape(joined)
				if err != nil {
					break
				}
				joined = next
			}
			u := url.URL{Scheme: "http", Host: "up.example", RawPath: p.join("/base", target.path)}
			u.Path, _ = url.PathUnescape(u.RawPath)
			if u.EscapedPath() != u.RawPath {
				t.Fatalf("%q is sent as %q", u.RawPath, u.EscapedPath())
			}
		}
	})
}

func FuzzStripQuery(f *testing.F) {
	for _, raw := range []string{"", "a=b", "key=x", "a=1&key=2&b=3", "k%65y=1&&=&", "KEY", "api_key=1&monkey=2&access_token", "%zz=1&key"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got := stripQuery(raw)
		if stripQuery(got) != got {
			t.Fatalf("%q: once %q, twice %q", raw, got, stripQuery(got))
		}
		if values, err := url.ParseQuery(got); err == nil {
			for name := range values {
				for _, c := range credentialParams {
					if strings.EqualFold(name, c.name) {
						t.Fatalf("%q kept %s", raw, name)
					}
				}
			}
		}
		var kept []string
		for param := range strings.SplitSeq(raw, "&") {
			if !credentialParam(param) {
				kept = append(kept, param)
			}
		}
		if got != strings.Join(kept, "&") {
			t.Fatalf("%q became %q", raw, got)
		}
	})
}

// A body in any pieces: no form of the key comes out, the length is the same,
// and without the key every byte is.
func FuzzRedact(f *testing.F) {
	f.Add([]byte("plain"), []byte(" text"), false)
	f.Add([]byte(openaiKey[:5]), []byte(openaiKey[5:]), true)
	r := newRedactor(openaiKey)
	f.Fuzz(func(t *testing.T, before, after []byte, with bool) {
		body := append(bytes.Clone(before), after...)
		if with {
			body = append(append(bytes.Clone(before), openaiKey...), after...)
		}
		has := false
		for _, form := range r.forms {
			has = has || bytes.Contains(body, form)
		}
		var found atomic.Int64
		var got bytes.Buffer
		if _, err := got.ReadFrom(r.reader(iotest.OneByteReader(bytes.NewReader(body)), &found)); err != nil {
			t.Fatal(err)
		}
		if got.Len() != len(body) || has != (found.Load() > 0) {
			t.Fatalf("%q became %q, %d found", body, got.Bytes(), found.Load())
		}
		if !has && !bytes.Equal(got.Bytes(), body) {
			t.Fatalf("%q became %q", body, got.Bytes())
		}
		if bytes.Contains(got.Bytes(), []byte(openaiKey)) {
			t.Fatalf("%q came out", got.Bytes())
		}
	})
}
