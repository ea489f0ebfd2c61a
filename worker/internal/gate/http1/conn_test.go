package http1

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

func connPair(t *testing.T) (client *net.TCPConn, conn *Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c.(*net.TCPConn), NewConn(s.(gate.Stream))
}

func TestSlowHeadIsToldSo(t *testing.T) {
	client, conn := connPair(t)
	defer conn.Free()
	conn.limit = 50 * time.Millisecond
	io.WriteString(client, "GET http://a.example/ HTT")
	if _, r, ok := conn.Next(); !ok || r == nil || r.Status != 408 {
		t.Errorf("%+v, %v", r, ok)
	}
}

func TestRequestsFollowOneAnother(t *testing.T) {
	client, conn := connPair(t)
	defer conn.Free()
	io.WriteString(client, get+"\r\n"+get+"X: second\r\n\r\n")
	client.CloseWrite()
	for range 2 {
		if req, r, ok := conn.Next(); !ok || r != nil || req.Method != "GET" {
			t.Fatalf("%+v, %+v, %v", req, r, ok)
		}
	}
	if _, _, ok := conn.Next(); ok {
		t.Error("a request after the end")
	}
}
