package http1

import (
	"bufio"
	"errors"
	"io"
	"strings"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

const (
	maxHead   = 64 << 10
	maxFields = 200
)

// Field is one header field. Key is Name in lower case.
type Field struct{ Key, Name, Value string }

// Fields is a head's fields in their order.
type Fields []Field

// Get gives the first value of key and how many fields there are of it.
func (f Fields) Get(key string) (value string, n int) {
	for i := range f {
		if f[i].Key == key {
			if n == 0 {
				value = f[i].Value
			}
			n++
		}
	}
	return value, n
}

// Lists tells whether a comma-separated field of this key has the token.
func (f Fields) Lists(key, token string) bool {
	for i := range f {
		if f[i].Key == key {
			for item := range strings.SplitSeq(f[i].Value, ",") {
				if strings.EqualFold(strings.Trim(item, " \t"), token) {
					return true
				}
			}
		}
	}
	return false
}

// hopByHop are the fields of one connection. Transfer-Encoding and
// Content-Length are not copied either: the relay writes the framing that it
// read. HTTP2-Settings goes with the upgrade that it belongs to.
var hopByHop = map[string]bool{
	"connection": true, "proxy-connection": true, "keep-alive": true, "te": true, "trailer": true,
	"transfer-encoding": true, "content-length": true, "upgrade": true, "http2-settings": true,
	"proxy-authorization": true, "proxy-authenticate": true, "proxy-authentication-info": true,
}

// EndToEnd tells whether a field goes on to the other side: it is not
// hop-by-hop, and no Connection field names it.
func (f Fields) EndToEnd(key string) bool { return !hopByHop[key] && !f.Lists("connection", key) }

func tooLarge() *gate.Refusal {
	return &gate.Refusal{Status: 431, Class: "head-too-large", Reason: "the request head is too large", Hint: "Send fewer or shorter header fields.", ProxyStatus: "http_request_error"}
}

// lineReader reads lines that end with CRLF, within the head's budget.
type lineReader struct {
	br   *bufio.Reader
	left int
}

// next gives a line without its CRLF. io.EOF is an end before the first byte
// of the line.
func (l *lineReader) next() (string, error) {
	var long []byte
	for {
		part, err := l.br.ReadSlice('\n')
		l.left -= len(part)
		if l.left < 0 {
			return "", tooLarge()
		}
		if err == bufio.ErrBufferFull {
			long = append(long, part...)
			continue
		}
		if err != nil {
			if err == io.EOF && len(long)+len(part) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		if long != nil {
			part = append(long, part...)
		}
		return cutLine(part)
	}
}

func cutLine(line []byte) (string, error) {
	end := len(line) - 2
	if end < 0 || line[end] != '\r' {
		return "", gate.Malformed("a line ends without a carriage return")
	}
	return string(line[:end]), nil
}

// fields reads up to the empty line.
func (l *lineReader) fields() (Fields, error) {
	var out Fields
	for {
		line, err := l.next()
		if err != nil {
			return nil, unexpected(err)
		}
		if line == "" {
			return out, nil
		}
		if len(out) == maxFields {
			return nil, tooLarge()
		}
		field, err := parseField(line)
		if err != nil {
			return nil, err
		}
		out = append(out, field)
	}
}

func parseField(line string) (Field, error) {
	if line[0] == ' ' || line[0] == '\t' {
		return Field{}, gate.Malformed("a header field is folded over two lines")
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok || !token(name) {
		return Field{}, gate.Malformed("a header field has a malformed name")
	}
	for i := 0; i < len(value); i++ {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return Field{}, gate.Malformed("a header field has a control byte")
		}
	}
	return Field{strings.ToLower(name), name, strings.Trim(value, " \t")}, nil
}

// token is RFC 9110's grammar of names.
func token(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && !(c >= '0' && c <= '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// unexpected turns an end within a message into the error that says so.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
