package hostport

import (
	"errors"
	"strings"
	"testing"
)

var long253 = strings.Repeat("a.", 126) + "a"

func malformed() map[string]error {
	return map[string]error{
		"":                             ErrEmpty,
		":80":                          ErrEmpty,
		"example.com":                  ErrNoPort,
		"example.com:":                 ErrNoPort,
		"[::1]":                        ErrNoPort,
		"example.com:0":                ErrPort,
		"example.com:65536":            ErrPort,
		"example.com:74636":            ErrPort,
		"example.com:+80":              ErrPort,
		"example.com:-1":               ErrPort,
		"example.com:080":              ErrPort,
		"example.com:http":             ErrPort,
		"example.com:80/path":          ErrPort,
		"example.com:99999999999":      ErrPort,
		"user@example.com:80":          ErrUser,
		"u:p@example.com:80":           ErrUser,
		"::1:9100":                     ErrBrackets,
		"2606:4700::1111":              ErrBrackets,
		"https://example.com:443":      ErrBrackets,
		"[127.0.0.1]:80":               ErrBracket,
		"[example.com]:80":             ErrBracket,
		"[::1:80":                      ErrBracket,
		"[::1]x:80":                    ErrBracket,
		"[]:80":                        ErrBracket,
		"[::1%25eth0]:80":              ErrZone,
		"[fe80::1%eth0]:80":            ErrZone,
		"a%00b:80":                     ErrZone,
		"a%23b:80":                     ErrZone,
		"2130706433:80":                ErrNumber,
		"0x7f.1:80":                    ErrNumber,
		"0x7f000001:80":                ErrNumber,
		"0X7F000001:80":                ErrNumber,
		"0x:80":                        ErrNumber,
		"0177.0.0.1:80":                ErrNumber,
		"127.1:80":                     ErrNumber,
		"127.0.0.01:80":                ErrNumber,
		"1.2.3.4.5:80":                 ErrNumber,
		"example.7:80":                 ErrNumber,
		"example.com..:80":             ErrLabel,
		".example.com:80":              ErrLabel,
		"a..b:80":                      ErrLabel,
		".:80":                         ErrLabel,
		strings.Repeat("a", 64) + ":1": ErrLabel,
		long253 + ".aa:80":             ErrLong,
		"a\x00b:80":                    ErrByte,
		"a b:80":                       ErrByte,
		"a\\b:80":                      ErrByte,
		"b\u00fccher.example:80":       ErrByte,
		"１２７.０.０.１:80":                 ErrByte,
		"*.example.com:80":             ErrByte,
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"example.com:443":               "example.com:443",
		"EXAMPLE.com:443":               "example.com:443",
		"example.com.:1":                "example.com:1",
		"a_b.example.com:65535":         "a_b.example.com:65535",
		"localhost:80":                  "localhost:80",
		"1.2.3.4:80":                    "1.2.3.4:80",
		"127.0.0.1.:80":                 "127.0.0.1:80",
		"[::1]:80":                      "[::1]:80",
		"[2606:4700:0:0:0:0:0:1111]:80": "[2606:4700::1111]:80",
		"[::ffff:127.0.0.1]:80":         "127.0.0.1:80",
		"xn--bcher-kva.example:80":      "xn--bcher-kva.example:80",
		"4chan.org:80":                  "4chan.org:80",
		"0xg.0xzz:80":                   "0xg.0xzz:80",
		long253 + ":80":                 long253 + ":80",
	} {
		h, err := Parse(in)
		if err != nil || h.String() != want {
			t.Errorf("%q: %q, %v; want %q", in, h, err, want)
		}
	}
	for in, want := range malformed() {
		h, err := Parse(in)
		if !errors.Is(err, want) {
			t.Errorf("%q: %q, %v; want %v", in, h, err, want)
		}
		if err != nil && len(err.Error()) > 60 {
			t.Errorf("%q does not fit into a status line", err)
		}
	}
}

func TestParseDefault(t *testing.T) {
	for in, want := range map[string]string{
		"example.com": "example.com:80", "[::1]": "[::1]:80", "1.2.3.4": "1.2.3.4:80", "example.com:8080": "example.com:8080",
	} {
		if h, err := ParseDefault(in, 80); err != nil || h.String() != want {
			t.Errorf("%q: %q, %v", in, h, err)
		}
	}
	if _, err := ParseDefault("example.com:", 80); err != ErrNoPort {
		t.Errorf("an empty port: %v", err)
	}
}

func TestNew(t *testing.T) {
	if h, err := New("Example.COM", 443); err != nil || h.String() != "example.com:443" {
		t.Errorf("%v, %v", h, err)
	}
	for _, in := range []string{"", "::1", "[::1]", "a:80", "2130706433", "a%b", "a@b"} {
		if _, err := New(in, 443); err == nil {
			t.Errorf("%q accepted", in)
		}
	}
	if _, err := New("example.com", 0); err != ErrPort {
		t.Errorf("port 0: %v", err)
	}
}

func TestPattern(t *testing.T) {
	for _, c := range []struct{ pattern, matches, not string }{
		{"example.com", "example.com:1", "a.example.com:1"},
		{"Example.com.", "example.com:443", "example.org:443"},
		{"example.com:443", "example.com:443", "example.com:80"},
		{"example.com:1", "example.com:1", "example.com:2"},
		{"*.example.com", "a.example.com:1", "example.com:1"},
		{"*.example.com:443", "a.b.example.com:443", "a.example.com:80"},
		{"*.example.com", "x.example.com:1", "badexample.com:1"},
		{"1.2.3.4:80", "1.2.3.4:80", "1.2.3.5:80"},
		{"[2606:4700::1]:80", "[2606:4700::1]:80", "[2606:4700::2]:80"},
		{"[2606:4700::1]", "[2606:4700::1]:80", "1.2.3.4:80"},
	} {
		p, err := ParsePattern(c.pattern)
		if err != nil {
			t.Fatalf("%q: %v", c.pattern, err)
		}
		yes, err1 := Parse(c.matches)
		no, err2 := Parse(c.not)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if !p.Match(yes) || p.Match(no) {
			t.Errorf("%q: %v %v, %v %v", c.pattern, c.matches, p.Match(yes), c.not, p.Match(no))
		}
		again, err := ParsePattern(p.String())
		if err != nil || again != p {
			t.Errorf("%q prints as %q", c.pattern, p)
		}
	}
	for _, bad := range []string{"", "*", "*.", "**.a.com", "a.*.com", "*a.com", "*.1.2.3.4", "*:443", "http://a.com", "a.com/x", "a.com:0", "*.[::1]"} {
		if p, err := ParsePattern(bad); err == nil {
			t.Errorf("%q accepted as %q", bad, p)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"example.com:443", "[::1]:80", "127.0.0.1.:80", "0x7f.1:80", "a@b:1", "[::ffff:1.2.3.4]:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := Parse(s)
		if err != nil {
			return
		}
		if h.Port == 0 || h.Addr.IsValid() == (h.Name != "") || h.Addr.Zone() != "" || h.Addr.Is4In6() {
			t.Errorf("%q gives %#v", s, h)
		}
		if strings.ContainsAny(h.Name, "@%[]:/\\?# \x00*") || strings.ToLower(h.Name) != h.Name {
			t.Errorf("%q gives the name %q", s, h.Name)
		}
		if again, err := Parse(h.String()); err != nil || again != h {
			t.Errorf("%q prints as %q, which reads as %#v, %v", s, h, again, err)
		}
	})
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{"example.com", "*.example.com:443", "[::1]:80", "*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePattern(s)
		if err != nil {
			return
		}
		if again, err := ParsePattern(p.String()); err != nil || again != p {
			t.Errorf("%q prints as %q, which reads as %#v, %v", s, p, again, err)
		}
	})
}
