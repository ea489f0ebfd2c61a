package broker

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
)

// bodyHeaders tell about the body's bytes as the upstream sent them. They go
// when the broker passes other ones.
var bodyHeaders = []string{
	"Content-Encoding", "Content-Length", "Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Etag", "Accept-Ranges",
}

// inspectable gives the body of a response that the broker has to read. It was
// asked for without compression; an upstream that compresses all the same is
// decoded, and the header says so. false: it cannot be read, so it must not be
// passed.
//
// Brotli and zstd are refused and not decoded: an upstream that sends them
// after "identity" is broken, and two decoders of hostile input are more to
// trust than such an upstream is worth.
func inspectable(res *http.Response) (io.Reader, bool) {
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(res.Header["Content-Encoding"], ",")))
	if encoding == "" || encoding == "identity" || res.Body == http.NoBody {
		return res.Body, true
	}
	var open func(*bufio.Reader) (io.Reader, error)
	switch encoding {
	case "gzip", "x-gzip":
		open = func(r *bufio.Reader) (io.Reader, error) { return gzip.NewReader(r) }
	case "deflate":
		open = inflate
	default:
		return nil, false
	}
	if res.StatusCode == http.StatusPartialContent { // a part of a compressed whole
		return nil, false
	}
	for _, name := range bodyHeaders {
		res.Header.Del(name)
	}
	res.ContentLength = -1
	return &decoder{src: bufio.NewReader(res.Body), open: open}, true
}

// decoder opens the compressed stream at the first read, for its header may be
// minutes away and the response's must not wait.
type decoder struct {
	src  *bufio.Reader
	open func(*bufio.Reader) (io.Reader, error)
	from io.Reader
}

func (d *decoder) Read(p []byte) (int, error) {
	if d.from == nil {
		if _, err := d.src.Peek(1); err == io.EOF {
			return 0, io.EOF // no body at all
		}
		from, err := d.open(d.src)
		if err != nil {
			return 0, noEOF(err)
		}
		d.from = from
	}
	n, err := d.from.Read(p)
	return n, err
}

// noEOF keeps a stream that is cut in its header from looking finished.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// inflate reads "deflate", which is a zlib stream by its definition and a bare
// one from many servers.
func inflate(r *bufio.Reader) (io.Reader, error) {
	head, err := r.Peek(2)
	if err != nil {
		return nil, err
	}
	if head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
		return zlib.NewReader(r)
	}
	return flate.NewReader(r), nil
}
