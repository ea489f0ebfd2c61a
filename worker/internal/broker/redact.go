package broker

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
)

// redacted fills the place of a key in a response, cut or repeated to the same
// length, so that the framing holds.
const redacted = "omb_redacted_"

// minRedact: anything shorter would be found in ordinary text.
const minRedact = 8

// redactor finds a key in what an upstream sends back: an error page, an echo
// endpoint or a debug header would otherwise hand it to the box.
type redactor struct {
	forms [][]byte
	least int       // bytes of the shortest form
	has   [256]bool // bytes that stand in a form; a line break never does
}

// newRedactor prepares the keys as they are, URL-encoded, JSON-escaped, in hex
// and in base64 at each of the three places where one can stand in a longer
// text.
func newRedactor(keys ...string) *redactor {
	r := &redactor{}
	for _, key := range keys {
		if len(key) < minRedact {
			continue
		}
		for _, f := range forms(key) {
			if !slices.ContainsFunc(r.forms, func(have []byte) bool { return string(have) == f }) {
				r.forms = append(r.forms, []byte(f))
				if r.least == 0 || len(f) < r.least {
					r.least = len(f)
				}
				for i := range len(f) {
					r.has[f[i]] = true
				}
			}
		}
	}
	return r
}

func forms(key string) []string {
	quoted, _ := json.Marshal(key) // of a string: it cannot fail
	escaped := string(quoted[1 : len(quoted)-1])
	all := []string{
		key, escaped, strings.ReplaceAll(escaped, "/", `\/`), // PHP and old JavaScript escape the slash
		url.QueryEscape(key), url.PathEscape(key), lowerPercent(url.QueryEscape(key)), lowerPercent(url.PathEscape(key)),
		hex.EncodeToString([]byte(key)),
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for pad := range 3 {
			text := e.EncodeToString(append(make([]byte, pad), key...))
			// The characters at the ends hold bits of the neighbours, too.
			all = append(all, text[(pad*8+5)/6:(pad+len(key))*8/6])
		}
	}
	return all
}

// lowerPercent writes the hex digits of %2F as other encoders do: %2f.
func lowerPercent(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}

// replace overwrites every form in b and counts them.
func (r *redactor) replace(b []byte) (found int) {
	for _, f := range r.forms {
		for at := 0; ; found++ {
			i := bytes.Index(b[at:], f)
			if i < 0 {
				break
			}
			for j := range f {
				b[at+i+j] = redacted[j%len(redacted)]
			}
			at += i + len(f)
		}
	}
	return found
}

// text is replace for header values.
func (r *redactor) text(s string) (string, int) {
	if len(s) < r.least {
		return s, 0
	}
	b := []byte(s)
	if found := r.replace(b); found > 0 {
		return string(b), found
	}
	return s, 0
}

// open gives the length of the longest end of b that could be the beginning of
// a form: those bytes wait for the next read.
func (r *redactor) open(b []byte) int {
	most := 0
	for most < len(b) && r.has[b[len(b)-1-most]] {
		most++
	}
	longest := 0
	for _, f := range r.forms {
		for n := min(len(f)-1, most); n > longest; n-- {
			if bytes.HasPrefix(f, b[len(b)-n:]) {
				longest = n
			}
		}
	}
	return longest
}

// reader filters a body while it streams, in the caller's own buffer. Bytes
// that are no part of a form come out as they went in, and a read that ends a
// line is never held back, for no key has a line break.
type reader struct {
	*redactor
	src   io.Reader
	found *atomic.Int64
	least int    // a buffer has room for the held bytes and more
	held  []byte // read, and perhaps the beginning of a form
	ready []byte // to be given out: where the caller's buffer was too small
	err   error
}

func (r *redactor) reader(src io.Reader, found *atomic.Int64) io.Reader {
	least := 512
	for _, f := range r.forms {
		least = max(least, 2*len(f))
	}
	return &reader{redactor: r, src: src, found: found, least: least}
}

func (r *reader) Read(p []byte) (int, error) {
	for {
		if len(r.ready) > 0 {
			n := copy(p, r.ready)
			r.ready = r.ready[n:]
			return n, nil
		}
		if r.err != nil || len(p) == 0 {
			return 0, r.err
		}
		if len(p) < r.least {
			small := make([]byte, r.least)
			r.ready = small[:r.filter(small)]
		} else if n := r.filter(p); n > 0 {
			return n, nil
		}
	}
}

// filter reads once into b, behind what was held, and tells how much of b may
// be given out.
func (r *reader) filter(b []byte) int {
	held := copy(b, r.held)
	n, err := r.src.Read(b[held:])
	b, r.err = b[:held+n], err
	r.found.Add(int64(r.replace(b)))
	cut := len(b)
	if r.err == nil {
		cut -= r.open(b)
	}
	r.held = append(r.held[:0], b[cut:]...)
	return cut
}
