package http1

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

// held is an upstream whose writer does not run again after it has written
// the last byte of a body, until the stream is closed: a goroutine that the
// scheduler forgot.
type held struct {
	gate.Stream
	last   string
	closed chan struct{}
	once   sync.Once
}

func (h *held) Write(p []byte) (int, error) {
	n, err := h.Stream.Write(p)
	if strings.HasSuffix(string(p), h.last) {
		<-h.closed
	}
	return n, err
}

func (h *held) Close() error {
	h.once.Do(func() { close(h.closed) })
	return h.Stream.Close()
}

func TestAnswerBeforeTheUploadRunsAgain(t *testing.T) {
	for body, framing := range map[string]string{
		"hello":                            "Content-Length: 5",
		"5\r\nhello\r\n0\r\n\r\n":          "Transfer-Encoding: chunked",
		"1\r\nh\r\n4\r\nello\r\n0\r\n\r\n": "Transfer-Encoding: chunked",
	} {
		client, conn := connPair(t)
		origin, upstream := connPair(t)
		io.WriteString(client, "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n"+framing+"\r\n\r\n"+body)
		req, r, ok := conn.Next()
		if !ok || r != nil {
			t.Fatal(r)
		}
		last := "hello"
		if framing != "Content-Length: 5" {
			last = "0\r\n\r\n"
		}
		go answerAfter(origin, last)
		x := Exchange{Client: conn, Request: req, Head: []byte("POST / HTTP/1.1\r\n\r\n"), Idle: time.Minute,
			Dial: func() (gate.Stream, *gate.Refusal) {
				return &held{Stream: upstream.Stream, last: last, closed: make(chan struct{})}, nil
			}}
		result := x.Run(context.Background())
		conn.Stream.Close()
		head, _ := bufio.NewReader(client).ReadString(0)
		if !result.Keep || result.Status != 200 || result.Up != 5 || strings.Contains(head, "close") {
			t.Errorf("%s: %+v, the client read %q", framing, result, head)
		}
		conn.Free()
	}
}

// answerAfter answers as soon as the stream has brought last.
func answerAfter(origin net.Conn, last string) {
	var got strings.Builder
	buf := make([]byte, 512)
	for !strings.HasSuffix(got.String(), last) {
		n, err := origin.Read(buf)
		if err != nil {
			return
		}
		got.Write(buf[:n])
	}
	io.WriteString(origin, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
}
