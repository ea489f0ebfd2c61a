package http1

import (
	"bufio"
	"io"
	"strconv"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

// body reads what the framing delimits. io.EOF is its proper end; an end of
// the connection before that is io.ErrUnexpectedEOF.
type body struct {
	br      *bufio.Reader
	framing Framing
	left    int64 // of the body, or of the current chunk
	inChunk bool
	ended   bool
}

func newBody(br *bufio.Reader, f Framing) *body {
	return &body{br: br, framing: f, left: f.Length, ended: !f.hasBody()}
}

// prime reads the first chunk's size, so that a body which is malformed from
// its start is refused before any upstream is contacted.
func (b *body) prime() error {
	if b.framing.Kind != Chunked {
		return nil
	}
	return b.chunk()
}

func (b *body) Read(p []byte) (int, error) {
	if b.framing.Kind == UntilClose {
		return b.br.Read(p)
	}
	if b.framing.Kind == Chunked && !b.inChunk && !b.ended {
		if err := b.chunk(); err != nil {
			return 0, err
		}
	}
	if b.ended {
		return 0, io.EOF
	}
	n, err := b.br.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if err != nil {
		return n, unexpected(err)
	}
	if b.left == 0 {
		err = b.finish()
	}
	return n, err
}

// finish is called where the last byte of the body or chunk was read.
func (b *body) finish() error {
	if b.framing.Kind != Chunked {
		b.ended = true
		return nil
	}
	b.inChunk = false
	line, err := b.line()
	if err == nil && line != "" {
		err = gate.Malformed("a chunk is longer than its size says")
	}
	return err
}

// chunk reads a chunk's size, and after the last chunk the trailer, which is
// not passed on.
func (b *body) chunk() error {
	line, err := b.line()
	if err != nil {
		return err
	}
	if b.left, err = chunkSize(line); err != nil {
		return err
	}
	if b.left > 0 {
		b.inChunk = true
		return nil
	}
	b.ended = true
	_, err = (&lineReader{b.br, maxHead}).fields()
	return err
}

func (b *body) line() (string, error) {
	const maxLine = 256
	line, err := (&lineReader{b.br, maxLine}).next()
	return line, unexpected(err)
}

// chunkSize takes 1 to 15 hexadecimal digits and nothing else. Extensions are
// refused: nobody needs them, and readers differ about where they end.
func chunkSize(line string) (int64, error) {
	n, err := strconv.ParseUint(line, 16, 60)
	if err != nil || len(line) > 15 {
		return 0, gate.Malformed("a chunk size is malformed")
	}
	return int64(n), nil
}

// Room round the data of a chunk: a size of at most 8 digits, two line ends.
const (
	chunkHead = 10
	chunkTail = 2
)

// copyBody moves a body, one write for each read, so that nothing waits in a
// buffer (server-sent events). It returns the bytes of the body itself.
func copyBody(dst io.Writer, src io.Reader, chunked bool, watch *gate.Idle) (total int64, err error) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf[chunkHead : len(buf)-chunkTail])
		watch.Passed()
		if n > 0 {
			out := buf[chunkHead : chunkHead+n]
			if chunked {
				out = frame(buf, n)
			}
			if _, werr := dst.Write(out); werr != nil {
				return total, writeError{werr}
			}
			watch.Passed()
			total += int64(n)
		}
		if err == io.EOF && chunked {
			if _, werr := io.WriteString(dst, "0\r\n\r\n"); werr != nil {
				return total, writeError{werr}
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// writeError is a failure of the receiving side, which says nothing of the
// body.
type writeError struct{ error }

// frame writes a chunk's size in front of n bytes of data that stand at
// chunkHead, and the line end behind them.
func frame(buf []byte, n int) []byte {
	var size [chunkHead]byte
	head := append(strconv.AppendInt(size[:0], int64(n), 16), '\r', '\n')
	start := chunkHead - len(head)
	copy(buf[start:], head)
	copy(buf[chunkHead+n:], "\r\n")
	return buf[start : chunkHead+n+chunkTail]
}
