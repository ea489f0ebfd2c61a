package control

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/openmausbot/botbox/shared/wire"
)

// stream is what a worker writes: lines that are right, and such that are not.
func (s *storm) stream() []byte {
	var out []byte
	order := wire.Order{Epoch: s.m.epoch}
	say := func(verb wire.Verb, keyvals ...string) []byte {
		b, err := order.Frame(wire.ToSupervisor, verb, keyvals...)
		if err != nil {
			s.t.Fatal(err)
		}
		return b
	}
	some := func() []byte { verb, keyvals := s.message(); return say(verb, keyvals...) }
	switch s.rng.IntN(40) {
	case 0:
	case 1:
		out = say(wire.HelloAck, "ver", wire.Version, "build", s.value(wire.Text))
	default:
		out = say(wire.HelloAck, "ver", wire.Version, "build", wire.Build)
	}
	if s.rng.IntN(10) > 0 {
		out = append(out, say(wire.Ready)...)
	}
	for range s.rng.IntN(12) {
		line := some()
		switch s.rng.IntN(12) {
		case 0, 1:
			line = s.spoil(line)
		case 2: // a replay
			line = append(line, line...)
		}
		out = append(out, line...)
	}
	return append(out, s.spoil(some())...)
}

// workersVerbs are all that come over the FIFO.
var workersVerbs = func() (rows []wire.Row) {
	for _, row := range wire.Verbs() {
		if row.Dir == wire.ToSupervisor && !strings.HasPrefix(string(row.Verb), "vault.") {
			rows = append(rows, row)
		}
	}
	return rows
}()

// message gives a verb of the worker's, with values that have their forms.
func (s *storm) message() (wire.Verb, []string) {
	row := workersVerbs[s.rng.IntN(len(workersVerbs))]
	switch s.rng.IntN(6) { // most are out of place, and then it is over
	case 0, 1:
		row = wire.Row{Verb: wire.Pong}
	case 2:
		row = wire.Row{Verb: wire.UIDLease, Keys: []wire.Key{{Name: "bot", Form: wire.Name}}}
	}
	var keyvals []string
	for _, k := range row.Keys {
		keyvals = append(keyvals, k.Name, s.value(k.Form))
	}
	return row.Verb, keyvals
}

func (s *storm) value(form wire.Form) string {
	switch form {
	case wire.Number:
		return fmt.Sprint(s.rng.IntN(1_000_000))
	case wire.Process:
		return fmt.Sprint(2 + s.rng.IntN(4_000_000))
	case wire.Decimal:
		return fmt.Sprintf("%d.%03d", s.rng.IntN(1000), s.rng.IntN(1000))
	case wire.Name:
		return []string{"1", "u1", "alice", "a.b", strings.Repeat("x", 128), "etc-passwd"}[s.rng.IntN(6)]
	}
	if s.rng.IntN(8) == 0 {
		s.tally["longest"]++
		return strings.Repeat("\xff", 1024)
	}
	b := make([]byte, 1+s.rng.IntN(40))
	for i := range b {
		b[i] = byte(1 + s.rng.IntN(255))
	}
	return string(b)
}

// spoil makes something else of a line. Now and then it is a right one again,
// and then it is judged as such.
func (s *storm) spoil(line []byte) []byte {
	f := strings.Fields(string(line)) // epoch, seq, verb, keys
	at := s.rng.IntN(len(line))
	glue := func() []byte { return []byte(strings.Join(f, " ") + "\n") }
	switch s.rng.IntN(20) {
	case 0:
		line[at] ^= 1 << s.rng.IntN(8)
	case 1:
		line = append(line[:at], line[at+1:]...)
	case 2:
		line = append(line[:at], append([]byte{byte(s.rng.IntN(256))}, line[at:]...)...)
	case 3: // half a frame
		line = line[:at]
	case 4: // of the epoch before or after, or of none
		f[0] = fmt.Sprint(int64(s.m.epoch) + []int64{-1, 1, 1 << 32, -int64(s.m.epoch)}[s.rng.IntN(4)])
		return glue()
	case 5:
		f[1] = []string{"0", "1", "2", "4294967296", "-1", "99"}[s.rng.IntN(6)]
		return glue()
	case 6:
		f[s.rng.IntN(2)] = "0" + f[s.rng.IntN(2)]
		return glue()
	case 7: // what only we say, what nobody says, what belongs elsewhere
		f[2] = []string{"hello", "ping", "drain", "uid.mapped", "box.spawn", "exec", "vault.next", "Ready", "ready.", ""}[s.rng.IntN(10)]
		return glue()
	case 8:
		f = append(f, []string{"argv=sh", "uid=0", "path=/etc/shadow", "=", "x", "pid=1"}[s.rng.IntN(6)])
		return glue()
	case 9:
		f = f[:len(f)-1]
		return glue()
	case 10:
		f = append(f, f[len(f)-1])
		return glue()
	case 11:
		return append(bytes.Repeat([]byte("x"), wire.MaxFrame-1+s.rng.IntN(3)), '\n')
	case 12:
		return bytes.Replace(line, []byte("\n"), []byte("\r\n"), 1)
	case 13:
		return bytes.ReplaceAll(line, []byte("%FF"), []byte("%ff"))
	case 14:
		return bytes.Replace(line, []byte("="), []byte("=%00"), 1)
	case 15:
		return bytes.Replace(line, []byte(" "), []byte("  "), 1)
	case 16:
		return bytes.Replace(line, []byte("="), []byte("=../"), 1)
	case 17:
		return append([]byte{'\n'}, line...)
	case 18:
		return append(line, s.noise()...)
	case 19:
		return s.noise()
	}
	return line
}

func (s *storm) noise() []byte {
	b := make([]byte, s.rng.IntN(300))
	for i := range b {
		b[i] = byte(s.rng.IntN(256))
	}
	return append(b, '\n')
}
