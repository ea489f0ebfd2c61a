package broker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"
)

// frames passes an upstream's WebSocket frames on and overwrites the key in
// them. No extension was agreed on, so a frame's payload is the message itself
// and an intermediary may cut a message into other frames (RFC 6455, 5.4).
//
// A frame that is a whole message comes out with the same bytes around the
// same length. Of a message in several frames, the end of one that may be the
// beginning of the key goes out with the next; control frames pass between.
type frames struct {
	from     *bufio.Reader
	to       io.Writer
	redactor *redactor
	found    *atomic.Int64

	opcode byte   // of the message's first frame, until one went out
	open   bool   // a message has begun and not ended
	held   []byte // of its payload
}

var errFrame = errors.New("the upstream sent something that is no WebSocket frame")

const (
	finBit      = 0x80
	controlBit  = 0x08
	maskBit     = 0x80
	controlMost = 125
)

// frameHead is a frame's head as it was read.
type frameHead struct {
	raw    []byte
	fin    bool
	opcode byte
	length uint64
}

func readHead(r *bufio.Reader) (frameHead, error) {
	raw := make([]byte, 2, 10)
	if _, err := io.ReadFull(r, raw); err != nil {
		return frameHead{}, err
	}
	h := frameHead{fin: raw[0]&finBit != 0, opcode: raw[0] & 0x0f}
	more := map[byte]int{126: 2, 127: 8}[raw[1]&^maskBit]
	raw = raw[:2+more]
	if _, err := io.ReadFull(r, raw[2:]); err != nil {
		return h, noEOF(err)
	}
	switch h.raw = raw; more {
	case 2:
		h.length = uint64(binary.BigEndian.Uint16(raw[2:]))
	case 8:
		h.length = binary.BigEndian.Uint64(raw[2:])
	default:
		h.length = uint64(raw[1] &^ maskBit)
	}
	control := h.opcode&controlBit != 0
	if raw[0]&0x70 != 0 || raw[1]&maskBit != 0 || h.length>>63 != 0 || control && (!h.fin || h.length > controlMost) {
		return h, errFrame
	}
	return h, nil
}

// pass returns nil when the upstream ended between two frames.
func (f *frames) pass() error {
	for {
		h, err := readHead(f.from)
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = f.frame(h)
		}
		if err != nil {
			return noEOF(err)
		}
	}
}

func (f *frames) frame(h frameHead) error {
	switch {
	case h.opcode&controlBit != 0:
		return f.whole(h)
	case f.open == (h.opcode != 0): // a beginning in the middle, or a rest of nothing
		return errFrame
	}
	if !f.open {
		f.open, f.opcode = true, h.opcode
		if h.fin {
			f.open = false
			return f.whole(h)
		}
	}
	return f.part(h)
}

// whole passes a frame on under the head that it has.
func (f *frames) whole(h frameHead) error {
	payload := io.LimitReader(f.from, int64(h.length))
	if h.length <= copyBuffer { // head and payload in one write
		b := append(make([]byte, 0, len(h.raw)+int(h.length)), h.raw...)
		b = b[:cap(b)]
		if _, err := io.ReadFull(payload, b[len(h.raw):]); err != nil {
			return noEOF(err)
		}
		f.found.Add(int64(f.redactor.replace(b[len(h.raw):])))
		_, err := f.to.Write(b)
		return err
	}
	if _, err := f.to.Write(h.raw); err != nil {
		return err
	}
	n, err := io.Copy(f.to, f.redactor.reader(payload, f.found))
	if err == nil && uint64(n) < h.length {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// part passes one of a message's frames on, less what may be the beginning of
// a key.
func (f *frames) part(h frameHead) error {
	for left := h.length; ; {
		n := min(left, 16<<10)
		left -= n
		b := make([]byte, len(f.held)+int(n))
		copy(b, f.held)
		if _, err := io.ReadFull(f.from, b[len(f.held):]); err != nil {
			return noEOF(err)
		}
		f.found.Add(int64(f.redactor.replace(b)))
		last := h.fin && left == 0
		cut := len(b)
		if !last {
			cut -= f.redactor.open(b)
		}
		f.held = b[cut:]
		if err := f.emit(b[:cut], last); err != nil {
			return err
		}
		if left == 0 {
			f.open = !h.fin
			return nil
		}
	}
}

func (f *frames) emit(payload []byte, fin bool) error {
	if len(payload) == 0 && !fin {
		return nil
	}
	first := f.opcode
	f.opcode = 0 // what follows is a continuation
	if fin {
		first |= finBit
	}
	b := append(make([]byte, 0, 10+len(payload)), first)
	switch n := len(payload); {
	case n <= controlMost:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	_, err := f.to.Write(append(b, payload...))
	return err
}
