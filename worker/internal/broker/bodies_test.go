package broker

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// echoing is an upstream that remembers the last body by its sum and answers
// with what the test put there.
type echoing struct {
	mu   sync.Mutex
	sum  [32]byte
	back []byte
}

func (e *echoing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := sha256.New()
	io.Copy(h, r.Body)
	e.mu.Lock()
	defer e.mu.Unlock()
	copy(e.sum[:], h.Sum(nil))
	if encoding := r.Header.Get("X-Answer-Encoding"); encoding != "" {
		w.Header().Set("Content-Encoding", encoding)
	}
	if r.ContentLength >= 0 {
		w.Header().Set("Content-Length", fmt.Sprint(len(e.back)))
	}
	w.Write(e.back)
}

// 1,000 bodies, most of them small, each way that a body goes: to a vendor over
// TLS, which net/http speaks, and to a server of this machine without TLS, which
// gets the short ones from us (see upstreams). They are labelled as each of the
// codings that engines ask for and as none, with a length and without. What the
// broker does not look at it cannot change, so the bytes are random, and a key
// in one of them stays.
func TestBodiesPassByteForByte(t *testing.T) {
	t.Run("TLS", func(t *testing.T) {
		up, s, e := newVendor(t), newStage(t, nil), &echoing{}
		up.Config.Handler = e
		s.vendors(up)
		passBodies(t, e, "http://"+s.serve("b1")+"/b/"+s.issueVendor("b1", Limits{})+"/openai/v1/responses")
	})
	t.Run("plain", func(t *testing.T) {
		up, s, e := newVendor(t), newStage(t, nil), &echoing{}
		up.Config.Handler = e
		up.Start()
		token, _ := s.loopback("b1", "near", up.URL)
		passBodies(t, e, "http://"+s.serve("b1")+"/b/"+token+"/near/x")
	})
}

func passBodies(t *testing.T, e *echoing, url string) {
	random := rand.New(rand.NewPCG(1, 2))
	client := &http.Transport{DisableCompression: true}
	sizes := []int{0, 1, 4095, 4096, 32 << 10, 74 << 10, heldBody - 1, heldBody, heldBody + 1, 33 << 20, 33 << 20}
	largest, chunked, coded := 0, 0, map[string]int{}
	for i := range 1000 {
		size := int(math.Exp(random.Float64() * 12)) // 1 to 160,000, half of them below 403
		if i < len(sizes) {
			size = sizes[i]
		}
		body := randomBytes(random, size)
		encoding := []string{"", "gzip", "br", "zstd"}[i%4]
		e.mu.Lock()
		e.back = append([]byte("answer "+anthropicKey), body...)
		e.mu.Unlock()
		var reader io.Reader = bytes.NewReader(body)
		if i%3 == 1 {
			reader = io.MultiReader(reader) // hides the length: chunked
			chunked++
		}
		req, _ := http.NewRequest("POST", url, reader)
		req.Header.Set("Content-Encoding", encoding)
		req.Header.Set("X-Answer-Encoding", encoding)
		res, err := client.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got := sha256.New()
		_, err = io.Copy(got, res.Body)
		res.Body.Close()
		e.mu.Lock()
		if want := sha256.Sum256(e.back); err != nil || !bytes.Equal(got.Sum(nil), want[:]) || res.Header.Get("Content-Encoding") != encoding {
			t.Errorf("%d bytes, %q: the answer changed (%v)", size, encoding, err)
		}
		if e.sum != sha256.Sum256(body) {
			t.Errorf("%d bytes, %q: the request changed", size, encoding)
		}
		e.mu.Unlock()
		largest = max(largest, size)
		coded[encoding]++
	}
	if largest != 33<<20 || chunked < 300 || len(coded) != 4 {
		t.Errorf("the bodies were not what they should be: largest %d, %d chunked, %v", largest, chunked, coded)
	}
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		v := r.Uint64()
		for j := range 8 {
			b[i+j] = byte(v >> (8 * j))
		}
	}
	return b[:n]
}

var encoders = map[string]func(io.Writer) io.WriteCloser{
	"":         func(w io.Writer) io.WriteCloser { return nopCloser{w} },
	"identity": func(w io.Writer) io.WriteCloser { return nopCloser{w} },
	"gzip":     func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"X-GZIP":   func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"deflate":  func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"Deflate":  func(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 5); return z },
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// An upstream that may echo is asked not to compress; one that does all the
// same is read all the same, and what cannot be read is not passed on.
func TestACompressedEchoIsSearched(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	random := rand.New(rand.NewPCG(3, 4))
	for encoding, encode := range encoders {
		for _, secret := range []bool{true, false} {
			plain := append(randomBytes(random, 100_000), "after"...)
			if secret {
				copy(plain[50_000:], openaiKey)
			}
			up.mu.Lock()
			up.then = func(w http.ResponseWriter, r *http.Request) {
				if encoding != "" {
					w.Header().Set("Content-Encoding", encoding)
				}
				w.Header().Set("Etag", `"of the compressed bytes"`)
				z := encode(w)
				z.Write(plain)
				z.Close()
			}
			up.mu.Unlock()
			got := send(t, addr, "POST", "/b/"+token+"/openai/v1/responses", http.Header{"Accept-Encoding": {"gzip, br, zstd"}}, "{}")
			if asked := up.last(t).Header.Get("Accept-Encoding"); asked != "identity" {
				t.Errorf("the upstream was asked for %q", asked)
			}
			want := bytes.Clone(plain)
			if secret {
				for i := range openaiKey {
					want[50_000+i] = redacted[i%len(redacted)]
				}
			}
			if sha256.Sum256([]byte(got.body)) != sha256.Sum256(want) || got.status != 200 {
				t.Errorf("%q, with a key %v: %d, %d bytes, not what they should be", encoding, secret, got.status, len(got.body))
			}
			if label := got.header.Get("Content-Encoding"); label != "" && label != "identity" {
				t.Errorf("%q: the answer is still labelled %q", encoding, label)
			}
		}
	}
	for _, c := range []struct {
		encoding string
		status   int
	}{{"br", 200}, {"zstd", 200}, {"gzip, br", 200}, {"compress", 200}, {"gzip", 206}} {
		up.mu.Lock()
		up.then = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", c.encoding)
			w.WriteHeader(c.status)
			io.WriteString(w, openaiKey)
		}
		up.mu.Unlock()
		got := send(t, addr, "POST", "/b/"+token+"/openai/v1/responses", nil, "{}")
		if got.status != 502 || !strings.Contains(got.body, "upstream_encoding") || len(leaks(got.body)) > 0 {
			t.Errorf("%s %d: %d %s", c.encoding, c.status, got.status, got.body)
		}
	}
	// No body, so nothing to read.
	up.mu.Lock()
	up.then = func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Encoding", "br") }
	up.mu.Unlock()
	if got := send(t, addr, "HEAD", "/b/"+token+"/openai/v1/models", nil, ""); got.status != 200 {
		t.Errorf("HEAD: %d", got.status)
	}
}

// Brotli and zstd are refused from an upstream that ignores what it was asked
// for, and from no other: a server that does as it is asked sends plain bytes
// where the broker has to read them, and its own everywhere else.
func TestAServerThatNegotiatesIsNotRefused(t *testing.T) {
	negotiate := func(w http.ResponseWriter, r *http.Request) {
		for _, encoding := range []string{"br", "zstd", "gzip"} {
			if strings.Contains(r.Header.Get("Accept-Encoding"), encoding) {
				w.Header().Set("Content-Encoding", encoding)
				break
			}
		}
		io.WriteString(w, "bytes of the answer")
	}
	offer := http.Header{"Accept-Encoding": {"gzip, deflate, br, zstd"}}
	s, up := newStage(t, nil), newVendor(t)
	up.then = negotiate
	s.vendors(up)
	foreign := newUpstream(t)
	foreign.then = negotiate
	other := newStage(t, nil)
	otherToken, _ := other.issue("b3", foreign.URL)
	for _, c := range []struct {
		who        string
		s          *stage
		box, token string
		encoding   string
	}{
		{"the vendor's own", s, "b1", s.issueVendor("b1", Limits{}), "br"},
		{"the vendor's own, whose tokens count", s, "b2", s.issueVendor("b2", Limits{Tokens: 1000}), ""},
		{"another, which may echo", other, "b3", otherToken, ""},
	} {
		got := send(t, c.s.serve(c.box), "POST", "/b/"+c.token+"/openai/v1/responses", offer, "{}")
		if got.status != 200 || got.body != "bytes of the answer" || got.header.Get("Content-Encoding") != c.encoding {
			t.Errorf("%s: %d, %q, %s", c.who, got.status, got.header.Get("Content-Encoding"), got.body)
		}
	}
}

// A compressed stream that is cut must not look finished, and one that has no
// byte yet must not hold the header back.
func TestACutCompressedStreamLooksBroken(t *testing.T) {
	up, s := newUpstream(t), newStage(t, nil)
	addr := s.serve("b1")
	token, _ := s.issue("b1", up.URL)
	var whole bytes.Buffer
	z := gzip.NewWriter(&whole)
	z.Write(bytes.Repeat([]byte("text"), 1000))
	z.Close()
	for _, n := range []int{3, whole.Len() / 2, whole.Len() - 3} {
		began := make(chan bool)
		up.then = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.(http.Flusher).Flush()
			<-began // the box has the header
			w.Write(whole.Bytes()[:n])
		}
		res, err := http.Post("http://"+addr+"/b/"+token+"/anthropic/v1/messages", "", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		close(began)
		if got, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("%d bytes of %d: the body ended well with %d bytes", n, whole.Len(), len(got))
		}
		res.Body.Close()
	}
}

func TestFormsOfTheKeyAreFound(t *testing.T) {
	key := `sk-Test/with+slash"and\quote&amp=0123`
	r := newRedactor("sk-former-key-0123", key)
	for _, text := range []string{
		key, "sk-former-key-0123", `sk-Test\/with+slash\"and\\quote\u0026amp=0123`, `sk-Test/with+slash\"and\\quote\u0026amp=0123`,
		"sk-Test%2Fwith%2Bslash%22and%5Cquote%26amp%3D0123", "sk-Test%2fwith%2bslash%22and%5cquote%26amp%3d0123",
		"736b2d546573742f776974682b736c61736822616e645c71756f746526616d703d30313233",
	} {
		b := []byte("before " + text + " after")
		if n := r.replace(b); n != 1 || !bytes.HasPrefix(b, []byte("before omb_redacted_")) || !bytes.HasSuffix(b, []byte(" after")) {
			t.Errorf("%q became %q", text, b)
		}
	}
}

func FuzzInspectable(f *testing.F) {
	for name, encode := range encoders {
		var b bytes.Buffer
		z := encode(&b)
		z.Write([]byte("text of an answer, text of an answer"))
		z.Close()
		f.Add(name, b.Bytes())
		f.Add(name, b.Bytes()[:b.Len()/2])
	}
	f.Fuzz(func(t *testing.T, encoding string, data []byte) {
		res := &http.Response{StatusCode: 200, Header: http.Header{"Content-Encoding": {encoding}}, Body: io.NopCloser(bytes.NewReader(data))}
		body, ok := inspectable(res)
		if !ok {
			return
		}
		got, err := io.ReadAll(io.LimitReader(body, 1<<20))
		left := strings.ToLower(res.Header.Get("Content-Encoding"))
		if plain := strings.TrimSpace(left); plain != "" && plain != "identity" {
			t.Fatalf("%q: passed as %q", encoding, left)
		}
		if left != "" || encoding == "" {
			if !bytes.Equal(got, data[:min(len(data), 1<<20)]) || err != nil {
				t.Fatalf("%q: an uncompressed body changed", encoding)
			}
		}
	})
}
