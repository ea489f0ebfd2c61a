package egress

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// An upstream that dies in the middle of what it says is an error for the
// client, whatever the framing: never an end that looks like the whole.
func TestUpstreamDiesMidBody(t *testing.T) {
	const get = "GET http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nConnection: close\r\n\r\n"
	const old = "GET http://origin.example:PORT/ HTTP/1.0\r\n\r\n"
	const connect = "CONNECT origin.example:PORT HTTP/1.1\r\n\r\nGET /"
	const established = "HTTP/1.1 200 Connection established\r\n\r\n"
	for name, c := range map[string]struct {
		ask, say string
		reset    bool
		gets     string
		dies     bool
	}{
		"length, closed":            {get, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", false, "part", true},
		"length, reset":             {get, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", true, "part", true},
		"length, whole":             {get, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npart", false, "part", false},
		"chunked, in a chunk":       {get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\npart", false, "part\r\n", true},
		"chunked, between chunks":   {get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", false, "part\r\n", true},
		"chunked, reset":            {get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", true, "part\r\n", true},
		"chunked to 1.0, closed":    {old, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", false, "part", true},
		"chunked to 1.0, whole":     {old, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n0\r\n\r\n", false, "part", false},
		"until close, reset":        {get, "HTTP/1.1 200 OK\r\n\r\npart", true, "part", true},
		"until close, whole":        {get, "HTTP/1.1 200 OK\r\n\r\npart", false, "part", false},
		"tunnel, reset":             {connect, "part", true, established + "part", true},
		"tunnel, closed":            {connect, "part", false, established + "part", false},
		"tunnel, reset before word": {connect, "", true, established, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan struct{})
			o := gatetest.NewOrigin(t, func(_ *gatetest.Origin, up net.Conn, br *bufio.Reader) {
				if c.ask == connect {
					io.ReadFull(br, make([]byte, len("GET /")))
				} else {
					gatetest.ReadHead(br)
				}
				io.WriteString(up, c.say)
				if c.reset {
					<-got // a reset destroys what the client has not read
					up.(*net.TCPConn).SetLinger(0)
				}
			})
			address, _, _ := start(t, o, nil)
			conn := gatetest.Dial(t, address)
			gatetest.Send(t, conn, o.At(c.ask))
			var all strings.Builder
			buf := make([]byte, 4096)
			for !strings.HasSuffix(all.String(), c.gets) {
				n, err := conn.Read(buf)
				all.Write(buf[:n])
				if err != nil {
					break
				}
			}
			close(got)
			if _, err := io.Copy(&all, conn); (err != nil) != c.dies || !strings.Contains(all.String(), c.gets) || strings.HasSuffix(all.String(), "\r\n0\r\n\r\n") {
				t.Errorf("got %q, %v; an error: %v", all.String(), err, c.dies)
			}
		})
	}
}

// A client that is cut off in the middle of an upload is an error for the
// origin: it must not keep half a file as the whole.
func TestClientDiesMidUpload(t *testing.T) {
	for name, reset := range map[string]bool{"reset": true, "closed": false} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			o := gatetest.NewOrigin(t, func(_ *gatetest.Origin, up net.Conn, br *bufio.Reader) {
				io.WriteString(up, "ready")
				_, err := io.Copy(io.Discard, br)
				ended <- err
			})
			address, _, _ := start(t, o, nil)
			c := gatetest.Dial(t, address)
			gatetest.Send(t, c, o.At("CONNECT origin.example:PORT HTTP/1.1\r\n\r\npart"))
			gatetest.Expect(t, c, "HTTP/1.1 200 Connection established\r\n\r\nready")
			if reset {
				c.SetLinger(0)
			}
			c.Close()
			if err := <-ended; (err != nil) != reset {
				t.Errorf("the origin's end is %v", err)
			}
		})
	}
}
