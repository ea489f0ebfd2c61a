package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Version is the version of the control channel.
const Version = "1"

// MaxFrame is the longest frame with its newline. It is PIPE_BUF: the kernel
// writes that much to a FIFO whole or not at all, while of longer writes some
// were measured torn (4 of 800 at 4,097 bytes).
const MaxFrame = 4096

// Frame is one message. Args has exactly the keys of the verb's row.
type Frame struct {
	Epoch uint32 // which start of the worker, from 1
	Seq   uint32 // per direction and epoch, from 1 without a gap
	Verb  Verb
	Args  map[string]string
}

// Encode spells f as one line. It refuses what Decode would refuse.
func Encode(dir Direction, f Frame) ([]byte, error) {
	row, ok := lookup(dir, f.Verb)
	if !ok {
		return nil, fmt.Errorf("verb %q does not exist in this direction", f.Verb)
	}
	if f.Epoch == 0 || f.Seq == 0 {
		return nil, errors.New("epoch and seq count from 1")
	}
	if len(f.Args) != len(row.Keys) {
		return nil, fmt.Errorf("%s takes %d keys, not %d", f.Verb, len(row.Keys), len(f.Args))
	}
	out := fmt.Appendf(nil, "%d %d %s", f.Epoch, f.Seq, f.Verb)
	for _, k := range row.Keys {
		v, ok := f.Args[k.Name]
		if !ok {
			return nil, fmt.Errorf("%s lacks its key %s", f.Verb, k.Name)
		}
		if !k.Form.fits(v) {
			return nil, fmt.Errorf("%s: the value of %s does not have its form", f.Verb, k.Name)
		}
		out = append(out, ' ')
		out = append(out, k.Name...)
		out = append(out, '=')
		out = append(out, escape(v)...)
	}
	out = append(out, '\n')
	if len(out) > MaxFrame {
		return nil, fmt.Errorf("a frame of %d bytes is over the limit of %d", len(out), MaxFrame)
	}
	return out, nil
}

// Decode reads one line with its newline.
func Decode(dir Direction, line []byte) (Frame, error) {
	if len(line) > MaxFrame {
		return Frame{}, fmt.Errorf("frame over %d bytes", MaxFrame)
	}
	text, ok := strings.CutSuffix(string(line), "\n")
	if !ok {
		return Frame{}, errors.New("frame without its newline")
	}
	fields := strings.Split(text, " ")
	if len(fields) < 3 {
		return Frame{}, errors.New("frame without epoch, seq and verb")
	}
	epoch, ok1 := counter(fields[0])
	seq, ok2 := counter(fields[1])
	if !ok1 || !ok2 {
		return Frame{}, errors.New("epoch or seq is not a number from 1")
	}
	row, ok := lookup(dir, Verb(fields[2]))
	if !ok {
		return Frame{}, fmt.Errorf("unknown verb %.40q", fields[2])
	}
	args, err := decodeArgs(row, fields[3:])
	if err != nil {
		return Frame{}, fmt.Errorf("%s: %w", row.Verb, err)
	}
	return Frame{Epoch: epoch, Seq: seq, Verb: row.Verb, Args: args}, nil
}

// decodeArgs wants the row's keys, all of them, in the row's order.
func decodeArgs(row Row, fields []string) (map[string]string, error) {
	if len(fields) != len(row.Keys) {
		return nil, fmt.Errorf("takes %d keys, not %d", len(row.Keys), len(fields))
	}
	args := make(map[string]string, len(fields))
	for i, k := range row.Keys {
		raw, ok := strings.CutPrefix(fields[i], k.Name+"=")
		if !ok {
			return nil, fmt.Errorf("key %s is not in its place", k.Name)
		}
		v, err := unescape(raw)
		if err != nil {
			return nil, err
		}
		if !k.Form.fits(v) {
			return nil, fmt.Errorf("the value of %s does not have its form", k.Name)
		}
		args[k.Name] = v
	}
	return args, nil
}

// Int gives the value of a Number key; the codec has already checked it.
func (f Frame) Int(key string) int {
	n, _ := strconv.Atoi(f.Args[key])
	return n
}

// Duration gives the value of a Decimal key; the codec has already checked it.
func (f Frame) Duration(key string) time.Duration {
	d, _ := time.ParseDuration(f.Args[key] + "s")
	return d
}

// Seconds spells d for a Decimal key, to the millisecond.
func Seconds(d time.Duration) string {
	return fmt.Sprintf("%d.%03d", d/time.Second, d%time.Second/time.Millisecond)
}

// counter reads epoch or seq: decimal, from 1, no leading zero.
func counter(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// Order numbers the frames of one direction in one epoch.
type Order struct {
	Epoch uint32
	last  uint32
}

// Frame spells the next frame of this direction: a verb and its keys and values
// in turns.
func (o *Order) Frame(dir Direction, verb Verb, keyvals ...string) ([]byte, error) {
	args := map[string]string{}
	for i := 0; i+1 < len(keyvals); i += 2 {
		args[keyvals[i]] = keyvals[i+1]
	}
	o.last++
	return Encode(dir, Frame{Epoch: o.Epoch, Seq: o.last, Verb: verb, Args: args})
}

// Check refuses a frame of another epoch and a gap or a repetition in seq: a
// frame that somebody stole, replayed or slipped in.
func (o *Order) Check(f Frame) error {
	if f.Epoch != o.Epoch {
		return fmt.Errorf("frame of epoch %d in epoch %d", f.Epoch, o.Epoch)
	}
	if f.Seq != o.last+1 {
		return fmt.Errorf("frame %d after frame %d", f.Seq, o.last)
	}
	o.last = f.Seq
	return nil
}

// NewReader gives a reader for Read. It is one byte longer than a frame, for
// bufio calls a buffer full that a frame of exactly MaxFrame bytes fills.
func NewReader(r io.Reader) *bufio.Reader {
	return bufio.NewReaderSize(r, MaxFrame+1)
}

// Read takes one line off r and decodes it. The error is io.EOF only when the
// other side closed the channel between two frames.
func Read(r *bufio.Reader, dir Direction) (Frame, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return Frame{}, fmt.Errorf("frame over %d bytes", MaxFrame)
	}
	if err != nil {
		if len(line) > 0 {
			return Frame{}, errors.New("the channel ended inside a frame")
		}
		return Frame{}, err
	}
	return Decode(dir, bytes.Clone(line))
}
