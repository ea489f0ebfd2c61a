package signin

import (
	"strconv"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/gate"
)

// maxRequest bounds the request's head as it goes into the box.
const maxRequest = 8 << 10

// Callback is a redirect that may be delivered.
type Callback struct {
	Port     uint16
	families []gate.Family // in the order in which they are tried
	host     string        // as the Host field names it
	target   string        // visible ASCII
}

func bad(format string, args ...any) error {
	return reason.New(reason.BadRedirect, "the redirect cannot be delivered: "+format, args...)
}

// hosts are the names of a box's own loopback, and nothing else is one: not
// 127.1, not 127.0.0.2, not LOCALHOST.
var hosts = map[string][]gate.Family{
	"127.0.0.1": {gate.V4},
	"localhost": {gate.V4, gate.V6},
	"[::1]":     {gate.V6},
}

// ParseURL reads a redirect as a person pastes it. It holds a code: no error
// quotes any of it.
func ParseURL(url string) (Callback, error) {
	rest, ok := strings.CutPrefix(url, "http://")
	if !ok {
		return Callback{}, bad("it does not begin with http://")
	}
	authority, target := rest, "/"
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, target = rest[:i], rest[i:]
	}
	if strings.HasPrefix(target, "?") {
		target = "/" + target // as every browser does
	}
	target, _, _ = strings.Cut(target, "#") // a browser's own, which no server sees
	colon := strings.LastIndexByte(authority, ':')
	if colon < 0 {
		return Callback{}, bad("it names no port")
	}
	families, ok := hosts[authority[:colon]]
	if !ok {
		return Callback{}, bad("its host is none of 127.0.0.1, localhost and [::1]")
	}
	port, err := parsePort(authority[colon+1:])
	if err != nil {
		return Callback{}, err
	}
	return newCallback(port, families, authority, target)
}

// New makes a callback of a port and of one request to it.
func New(port int, method, target string) (Callback, error) {
	if method != "GET" {
		return Callback{}, bad("only GET is delivered")
	}
	if port < 0 || port > 0xffff {
		return Callback{}, badPort()
	}
	return newCallback(uint16(port), hosts["localhost"], "localhost:"+strconv.Itoa(port), target)
}

func newCallback(port uint16, families []gate.Family, host, target string) (Callback, error) {
	if port < 1024 {
		return Callback{}, badPort()
	}
	if !strings.HasPrefix(target, "/") {
		return Callback{}, bad("its path does not begin with a slash")
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c > '~' || c == '#' {
			return Callback{}, bad("it holds a byte that no request line has")
		}
	}
	c := Callback{Port: port, families: families, host: host, target: target}
	if len(c.request()) > maxRequest {
		return Callback{}, bad("it is longer than %d bytes", maxRequest)
	}
	return c, nil
}

func badPort() error { return bad("its port is not one of 1024 to 65535") }

// parsePort reads decimal digits and nothing else.
func parsePort(text string) (uint16, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || strconv.FormatUint(port, 10) != text {
		return 0, badPort()
	}
	return uint16(port), nil
}

// request is what goes into the box.
func (c Callback) request() []byte {
	return []byte("GET " + c.target + " HTTP/1.1\r\nHost: " + c.host + "\r\nUser-Agent: botbox\r\nAccept: */*\r\nConnection: close\r\n\r\n")
}
