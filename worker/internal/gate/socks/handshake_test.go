package socks

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/addrpolicy"
	"github.com/openmausbot/botbox/worker/internal/gate"
)

func TestGreeting(t *testing.T) {
	for name, c := range map[string]struct {
		in     string
		usable bool
		err    error
		left   int
	}{
		"none":                     {"\x05\x01\x00", true, nil, 0},
		"none among others":        {"\x05\x03\x02\x01\x00REST", true, nil, 4},
		"password only":            {"\x05\x01\x02", false, nil, 0},
		"no method":                {"\x05\x00\x05", false, nil, 1},
		"all methods but ours":     {"\x05\xff" + strings.Repeat("\x01", 255), false, nil, 0},
		"SOCKS4":                   {"\x04\x01\x00\x50\x01\x02\x03\x04x\x00", false, errOther, 9},
		"http":                     {"GET / HTTP/1.1\r\n\r\n", false, errOther, 17},
		"TLS":                      {"\x16\x03\x01", false, errOther, 2},
		"nothing":                  {"", false, io.EOF, 0},
		"half":                     {"\x05", false, io.EOF, 0},
		"fewer methods than named": {"\x05\x02\x00", false, io.ErrUnexpectedEOF, 0},
	} {
		r := strings.NewReader(c.in)
		usable, err := readGreeting(r)
		if usable != c.usable || !errors.Is(err, c.err) || r.Len() != c.left {
			t.Errorf("%s: %v, %v, %d bytes left; want %+v", name, usable, err, r.Len(), c)
		}
	}
}

func TestRequest(t *testing.T) {
	name := func(s string) string { return "\x05\x01\x00\x03" + string(rune(len(s))) + s + "\x01\xbb" }
	for in, want := range map[string]struct {
		host  string
		reply Reply
	}{
		name("Example.COM."):                       {"example.com:443", Succeeded},
		name("8.8.4.4"):                            {"8.8.4.4:443", Succeeded},
		name("::1"):                                {"[::1]:443", Succeeded}, // so does Chrome
		name("2600:ff00::4"):                       {"[2600:ff00::4]:443", Succeeded},
		name("::ffff:7f00:1"):                      {"127.0.0.1:443", Succeeded},
		"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50": {"127.0.0.1:80", Succeeded},
		"\x05\x01\x00\x04\x26\x00\xff\x00" + strings.Repeat("\x00", 11) + "\x04\x00\x50":     {"[2600:ff00::4]:80", Succeeded},
		"\x05\x01\x00\x04" + strings.Repeat("\x00", 10) + "\xff\xff\x0a\x00\x00\x01\x00\x50": {"10.0.0.1:80", Succeeded},
		name(""):               {reply: Failed},
		name("a..b"):           {reply: Failed},
		name("2130706433"):     {reply: Failed},
		name("0x7f.1"):         {reply: Failed},
		name("0177.0.0.1"):     {reply: Failed},
		name("[::1]"):          {reply: Failed},
		name("fe80::1%lo"):     {reply: Failed},
		name("a b"):            {reply: Failed},
		name("a\x00.example"):  {reply: Failed},
		name("a:80"):           {reply: Failed},
		name("user@a.example"): {reply: Failed},
		name("a.example/x"):    {reply: Failed},
		name(strings.Repeat("a", 64) + ".example"): {reply: Failed},
		name(strings.Repeat("a.", 60) + "example"): {strings.Repeat("a.", 60) + "example:443", Succeeded},
		"\x05\x01\x00\x03\x01a\x00\x00":            {reply: Failed}, // port 0
		"\x05\x01\x00\x01\x08\x08\x04\x04\x00\x00": {reply: Failed},
		"\x05\x01\x01\x01\x08\x08\x04\x04\x00\x50": {reply: Failed},    // the reserved byte
		"\x05\x02\x00\x01\x08\x08\x04\x04\x00\x50": {reply: NoCommand}, // BIND
		"\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00": {reply: NoCommand}, // UDP ASSOCIATE
		"\x05\x00\x00\x01\x08\x08\x04\x04\x00\x50": {reply: NoCommand},
		"\x05\xf0\x00\x03\x09a.example\x00\x50":    {reply: NoCommand}, // Tor's RESOLVE
		"\x05\x01\x00\x02\x08\x08\x04\x04\x00\x50": {reply: NoAddress},
		"\x05\x01\x00\x00\x08\x08\x04\x04\x00\x50": {reply: NoAddress},
	} {
		h, reply, err := readRequest(strings.NewReader(in))
		got := ""
		if h.Port != 0 {
			got = h.String()
		}
		if err != nil || reply != want.reply || got != want.host {
			t.Errorf("%q: %s, %d, %v; want %+v", in, got, reply, err, want)
		}
	}
	for _, in := range []string{"", "\x05\x01\x00", "\x05\x01\x00\x03", "\x05\x01\x00\x03\x05abcd", "\x05\x01\x00\x01\x08\x08", "\x05\x01\x00\x01\x08\x08\x04\x04\x00", "\x04\x01\x00\x01\x08\x08\x04\x04\x00\x50"} {
		if _, reply, err := readRequest(strings.NewReader(in)); err == nil || reply != unanswered {
			t.Errorf("%q: %d, %v", in, reply, err)
		}
	}
}

func TestReplies(t *testing.T) {
	for r, want := range map[*gate.Refusal]Reply{
		gate.Denied("metadata", "x", "x"):          NotAllowed,
		gate.Denied("port", "x", "x"):              NotAllowed,
		{Status: 502, Class: "dns"}:                NoHost,
		{Status: 504, Class: "dns-timeout"}:        NoHost,
		{Status: 502, Class: "connection-refused"}: Refused,
		{Status: 504, Class: "connection-timeout"}: TimedOut,
		{Status: 502, Class: "unreachable"}:        NoRoute,
		gate.TooMany():                             Failed,
		gate.Malformed("x"):                        Failed,
	} {
		if got := replyOf(r); got != want {
			t.Errorf("%s: %d, want %d", r.Class, got, want)
		}
	}
}

// FuzzHandshake: whatever is accepted names one host in canonical form, and
// not one byte behind the request is taken.
func FuzzHandshake(f *testing.F) {
	for _, row := range addrpolicy.Rows() {
		a := row.Prefix.Addr()
		kind := byte(atypIPv4)
		if a.Is6() {
			kind = atypIPv6
		}
		f.Add([]byte("\x05\x01\x00"), append(append([]byte{5, 1, 0, kind}, a.AsSlice()...), 0, 80))
	}
	f.Add([]byte("\x05\x02\x00\x02"), []byte("\x05\x01\x00\x03\x09a.example\x00\x50early"))
	f.Add([]byte("\x05\x01\x00"), []byte("\x05\x01\x00\x03\x03::1\x00\x50"))
	f.Add([]byte("\x04\x01"), []byte("\x05\x03\x00\x01\x08\x08\x04\x04\x00\x50"))
	f.Fuzz(func(t *testing.T, greeting, request []byte) {
		r := bytes.NewReader(greeting)
		if usable, err := readGreeting(r); usable && (err != nil || len(greeting)-r.Len() != 2+int(greeting[1])) {
			t.Errorf("%q: %v, %d bytes left", greeting, err, r.Len())
		}
		r = bytes.NewReader(request)
		h, reply, err := readRequest(r)
		if err != nil || reply != Succeeded {
			if h.Port != 0 || h.Hostname() != "" && err != nil {
				t.Errorf("%q: refused, and names %#v", request, h)
			}
			return
		}
		used := len(request) - r.Len()
		want := map[byte]int{atypIPv4: 10, atypIPv6: 22}[request[3]]
		if request[3] == atypName {
			want = 7 + int(request[4])
		}
		if used != want || request[1] != cmdConnect {
			t.Errorf("%q: took %d bytes, want %d", request, used, want)
		}
		if h.Port == 0 || h.Addr.IsValid() == (h.Name != "") || h.Addr.Is4In6() || h.Addr.Zone() != "" || strings.ContainsAny(h.Name, "/\\@%#?[]: ") {
			t.Errorf("%q: %#v", request, h)
		}
	})
}
