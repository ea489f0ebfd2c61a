package wire

import (
	"fmt"
	"strings"
)

// fits tells whether v has the form. The longest text leaves room for the rest
// of the frame even when every byte of it is escaped.
func (f Form) fits(v string) bool {
	switch f {
	case Text:
		return len(v) >= 1 && len(v) <= 1024 && strings.IndexByte(v, 0) < 0
	case Name:
		return isName(v)
	case Number:
		return isNumber(v, 6)
	case Process:
		return isNumber(v, 7) && v != "0" && v != "1"
	case Decimal:
		whole, part, ok := strings.Cut(v, ".")
		return ok && isNumber(whole, 6) && len(part) == 3 && isDigits(part)
	}
	return false
}

// isName wants 1 to 128 bytes of letters, digits and "._-", with no dot in
// front, so that a name joined to a folder stays in it.
func isName(v string) bool {
	if v == "" || len(v) > 128 || v[0] == '.' {
		return false
	}
	for i := range len(v) {
		if !isPlain(v[i]) || v[i] == '/' || v[i] == ':' || v[i] == '+' || v[i] == '@' {
			return false
		}
	}
	return true
}

func isNumber(v string, digits int) bool {
	return v != "" && len(v) <= digits && isDigits(v) && (v == "0" || v[0] != '0')
}

func isDigits(v string) bool {
	return strings.Trim(v, "0123456789") == ""
}

// isPlain tells which bytes stand for themselves; all others are escaped.
func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("._-/:+@", c) >= 0
}

func escape(v string) string {
	var out strings.Builder
	for i := range len(v) {
		if isPlain(v[i]) {
			out.WriteByte(v[i])
		} else {
			fmt.Fprintf(&out, "%%%02X", v[i])
		}
	}
	return out.String()
}

// unescape refuses a byte that should have been escaped and an escape that
// should not be one, so that a value has one spelling.
func unescape(raw string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '%' {
			if i+2 >= len(raw) {
				return "", fmt.Errorf("an escape is cut off")
			}
			hi, lo := hexDigit(raw[i+1]), hexDigit(raw[i+2])
			if hi < 0 || lo < 0 || isPlain(byte(hi<<4|lo)) {
				return "", fmt.Errorf("an escape is not in its one form")
			}
			out.WriteByte(byte(hi<<4 | lo))
			i += 2
			continue
		}
		if !isPlain(c) {
			return "", fmt.Errorf("a byte is not escaped")
		}
		out.WriteByte(c)
	}
	return out.String(), nil
}

func hexDigit(c byte) int { return strings.IndexByte("0123456789ABCDEF", c) }
