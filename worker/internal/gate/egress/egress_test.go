package egress

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

func TestWhatTheOriginSees(t *testing.T) {
	o := gatetest.NewOrigin(t, answer)
	address, _, _ := start(t, o, nil)
	c := gatetest.Dial(t, address)
	gatetest.Send(t, c, o.At("GET HTTP://Origin.Example:PORT?q=%2e HTTP/1.1\r\nHost: ORIGIN.example:PORT\r\nProxy-Authorization: Basic eDp5\r\n"+
		"Connection: X-Secret, close\r\nX-Secret: s\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\nX-Keep: 1\r\nAccept: */*\r\n\r\n"))
	io.ReadAll(c)
	want := o.At("GET /?q=%2e HTTP/1.1\r\nHost: origin.example:PORT\r\nX-Keep: 1\r\nAccept: */*\r\nConnection: close\r\n\r\n")
	if got := o.LastHead(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestClientConnectionIsReused(t *testing.T) {
	o := gatetest.NewOrigin(t, answer)
	address, _, _ := start(t, o, nil)
	c := gatetest.Dial(t, address)
	br := bufio.NewReader(c)
	for range 3 {
		gatetest.Send(t, c, o.At("GET http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\n"))
		gatetest.Expect(t, br, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
	gatetest.Send(t, c, o.At("GET http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nConnection: close\r\n\r\n"))
	rest, err := io.ReadAll(br)
	if err != nil || !strings.Contains(string(rest), "Connection: close") {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestEventsAreNotHeldBack(t *testing.T) {
	next := make(chan struct{})
	o := gatetest.NewOrigin(t, func(_ *gatetest.Origin, c net.Conn, br *bufio.Reader) {
		gatetest.ReadHead(br)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range 3 {
			io.WriteString(c, "9\r\ndata: x\n\n\r\n")
			<-next
		}
		io.WriteString(c, "0\r\n\r\n")
	})
	address, _, _ := start(t, o, nil)
	for _, version := range []string{"1.1", "1.0"} {
		c := gatetest.Dial(t, address)
		br := bufio.NewReader(c)
		gatetest.Send(t, c, o.At("GET http://origin.example:PORT/ HTTP/"+version+"\r\nHost: origin.example:PORT\r\n\r\n"))
		fields := gatetest.ReadHead(br)
		if strings.Contains(fields, "chunked") != (version == "1.1") {
			t.Errorf("HTTP/%s: %q", version, fields)
		}
		for range 3 {
			if version == "1.1" {
				gatetest.Expect(t, br, "9\r\ndata: x\n\n\r\n")
			} else {
				gatetest.Expect(t, br, "data: x\n\n")
			}
			next <- struct{}{} // only now does the origin go on
		}
	}
}

func TestBodiesPassBothWays(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	o := gatetest.NewOrigin(t, func(_ *gatetest.Origin, c net.Conn, br *bufio.Reader) {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-Framing: %d %v\r\nContent-Length: %d\r\n\r\n", req.ContentLength, req.TransferEncoding, len(body))
		c.Write(body)
	})
	address, _, _ := start(t, o, nil)
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: address})}}
	defer client.CloseIdleConnections()
	for _, chunked := range []bool{false, true} {
		for _, method := range []string{"POST", "DELETE", "OPTIONS"} {
			var body io.Reader = bytes.NewReader(text)
			if chunked {
				body = io.MultiReader(body)
			}
			req, err := http.NewRequest(method, "http://origin.example:"+o.Port()+"/", body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			want := fmt.Sprintf("%d []", len(text))
			if chunked {
				want = "-1 [chunked]"
			}
			if err != nil || !bytes.Equal(got, text) || resp.Header.Get("X-Framing") != want {
				t.Errorf("%s: %d bytes, %v, framing %q", method, len(got), err, resp.Header.Get("X-Framing"))
			}
		}
	}
}

func TestExpectContinueIsTheOrigins(t *testing.T) {
	o := gatetest.NewOrigin(t, func(_ *gatetest.Origin, c net.Conn, br *bufio.Reader) {
		if h := gatetest.ReadHead(br); strings.Contains(h, "/refuse") {
			io.WriteString(c, "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")
			return
		}
		if br.Buffered() > 0 {
			return // the body came unasked
		}
		io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		body := make([]byte, 5)
		io.ReadFull(br, body)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n%s", body)
	})
	address, _, _ := start(t, o, nil)
	c := gatetest.Dial(t, address)
	br := bufio.NewReader(c)
	const fields = " HTTP/1.1\r\nHost: origin.example:PORT\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
	gatetest.Send(t, c, o.At("POST http://origin.example:PORT/"+fields))
	gatetest.Expect(t, br, "HTTP/1.1 100 Continue\r\n\r\n")
	io.WriteString(c, "hello")
	gatetest.Expect(t, br, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	gatetest.Send(t, c, o.At("POST http://origin.example:PORT/refuse"+fields))
	if rest, err := io.ReadAll(br); err != nil || !strings.HasPrefix(string(rest), "HTTP/1.1 417 No\r\n") {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestMalformedLaterChunk(t *testing.T) {
	got := make(chan string, 1)
	o := gatetest.NewOrigin(t, func(_ *gatetest.Origin, c net.Conn, br *bufio.Reader) {
		gatetest.ReadHead(br)
		all, _ := io.ReadAll(br)
		got <- string(all)
	})
	address, _, _ := start(t, o, nil)
	c := gatetest.Dial(t, address)
	gatetest.Send(t, c, o.At("POST http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n2\nho\r\n0\r\n\r\n"))
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
		t.Errorf("%q, %v", answer, err)
	}
	if up := <-got; up != "2\r\nhi\r\n" {
		t.Errorf("the origin got %q", up)
	}
}

func TestAnswersThatAreCutOrMalformed(t *testing.T) {
	var say string
	o := gatetest.NewOrigin(t, func(_ *gatetest.Origin, c net.Conn, br *bufio.Reader) {
		gatetest.ReadHead(br)
		io.WriteString(c, say)
	})
	address, _, _ := start(t, o, nil)
	for answer, want := range map[string]string{
		"":                               "HTTP/1.1 502 botbox: the upstream closed the connection without an answer\r\n",
		"SSH-2.0-x\r\n\r\n":              "HTTP/1.1 502 botbox: the upstream's answer is malformed\r\n",
		"HTTP/1.1 101 Switching\r\n\r\n": "HTTP/1.1 502 botbox: the upstream switched protocols unasked\r\n",
		strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 99): "HTTP/1.1 102 Processing\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc":     "HTTP/1.1 200 OK\r\n",
	} {
		say = answer
		c := gatetest.Dial(t, address)
		gatetest.Send(t, c, o.At("GET http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\n\r\n"))
		got, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(got), want) {
			t.Errorf("%q: %q", answer, got)
		}
	}
}

func TestWebsocket(t *testing.T) {
	o := gatetest.NewOrigin(t, func(_ *gatetest.Origin, c net.Conn, br *bufio.Reader) {
		h := gatetest.ReadHead(br)
		if !strings.Contains(h, "Connection: Upgrade\r\nUpgrade: websocket\r\n") || strings.Contains(h, "X-Hop") {
			fmt.Fprintf(c, "HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n")
			return
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nhello")
		io.Copy(c, br)
	})
	address, _, _ := start(t, o, nil)
	c := gatetest.Dial(t, address)
	br := bufio.NewReader(c)
	gatetest.Send(t, c, o.At("GET http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nConnection: Upgrade, X-Hop\r\nX-Hop: 1\r\nUpgrade: websocket\r\n\r\nearly"))
	if h := gatetest.ReadHead(br); !strings.HasPrefix(h, "HTTP/1.1 101 ") || !strings.Contains(h, "Upgrade: websocket\r\n") || !strings.Contains(h, "Sec-WebSocket-Accept: x") {
		t.Fatalf("%q", h)
	}
	gatetest.Expect(t, br, "helloearly")
	io.WriteString(c, "frame")
	gatetest.Expect(t, br, "frame")
	c.CloseWrite()
	if rest, err := io.ReadAll(br); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

// The exchange's idle limit must not cut the tunnel that it turned into.
func TestBusyWebsocketOutlivesTheIdleLimit(t *testing.T) {
	t.Parallel()
	o := gatetest.NewOrigin(t, func(_ *gatetest.Origin, c net.Conn, br *bufio.Reader) {
		gatetest.ReadHead(br)
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		io.Copy(c, br)
	})
	const limit = time.Second
	address, _, _ := start(t, o, func(opts *Options) { opts.Idle = limit })
	c := gatetest.Dial(t, address)
	br := bufio.NewReader(c)
	gatetest.Send(t, c, o.At("GET http://origin.example:PORT/ HTTP/1.1\r\nHost: origin.example:PORT\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"))
	gatetest.ReadHead(br)
	for range 10 {
		io.WriteString(c, "frame")
		gatetest.Expect(t, br, "frame")
		time.Sleep(limit / 5)
	}
	if _, err := br.ReadByte(); err == nil || gate.Timeout(err) {
		t.Errorf("a quiet one does not end: %v", err)
	}
}

func TestCapAndClose(t *testing.T) {
	o := gatetest.NewOrigin(t, answer)
	var log gatetest.Log[Decision]
	address, g, _ := start(t, o, func(opts *Options) { opts.Max, opts.Log = 2, log.Add })
	var tunnels []*net.TCPConn
	for range 2 {
		c := gatetest.Dial(t, address)
		gatetest.Send(t, c, o.At("CONNECT origin.example:PORT HTTP/1.1\r\n\r\nPING"))
		gatetest.Expect(t, bufio.NewReader(c), "HTTP/1.1 200 Connection established\r\n\r\nPONG")
		tunnels = append(tunnels, c)
	}
	over := gatetest.Dial(t, address)
	gatetest.Send(t, over, o.At("CONNECT origin.example:PORT HTTP/1.1\r\n\r\n"))
	over.CloseWrite()
	answer, err := io.ReadAll(over)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 429 ") || !strings.Contains(string(answer), "Retry-After: 1\r\n") {
		t.Errorf("%q, %v", answer, err)
	}
	g.Close()
	for _, c := range tunnels {
		if _, err := c.Read(make([]byte, 1)); err == nil || gate.Timeout(err) {
			t.Errorf("a tunnel outlives Close: %v", err)
		}
	}
	classes := map[string]int{}
	for _, d := range log.All() {
		classes[d.Class]++
		if d.Class == "loopback" && (d.Host != "origin.example" || d.Up != 4 || d.Down != 4 || d.Method != "connect" || !d.Allowed) {
			t.Errorf("%+v", d)
		}
	}
	if classes["loopback"] != 2 || classes["limit"] != 1 {
		t.Errorf("%v", classes)
	}
	if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		c.Close()
		t.Error("the listener outlives Close")
	}
}

// What people see of a refused CONNECT through the clients that are here.
func TestClientsShowTheReason(t *testing.T) {
	o := gatetest.NewOrigin(t, answer)
	address, _, _ := start(t, o, nil)
	proxy := "http://" + address
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: address})}}
	if _, err := client.Get("https://10.0.0.1/"); err == nil || !strings.HasSuffix(err.Error(), "botbox: private network (RFC 1918)") {
		t.Errorf("Go: %v", err)
	}
	for _, c := range []struct{ want, name, args string }{
		{"403", "curl", "-sS -x " + proxy + " https://10.0.0.1/"},
		{"Why: private network (RFC 1918)", "curl", "-sS -x " + proxy + " http://10.0.0.1/"},
		{"botbox: private network (RFC 1918)", "wget", "-nv -t 1 -O - -e use_proxy=yes -e https_proxy=" + proxy + " https://10.0.0.1/"},
	} {
		if _, err := exec.LookPath(c.name); err != nil {
			t.Logf("no %s here", c.name)
			continue
		}
		cmd := exec.Command(c.name, strings.Fields(c.args)...)
		cmd.Env = []string{"PATH=/usr/bin:/bin"}
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), c.want) {
			t.Errorf("%s %s: %s", c.name, c.args, out)
		}
	}
}

func TestPublicNeighbour(t *testing.T) {
	if !gatetest.Inside(t) {
		return
	}
	listen := gatetest.Neighbour(t)
	ln := listen("[::]:80")
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) }))
	gatetest.Serve(gatetest.Listen(t, gatetest.Near4+":80"), gatetest.Count)
	o := &gatetest.Origin{Listener: ln}
	address, _, names := start(t, o, func(opts *Options) { opts.Dialer.Except = []netip.AddrPort{} })
	names.Names["public.example"] = gatetest.Far6 + "," + gatetest.Far4
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: address})}}
	for url, want := range map[string]string{
		"http://public.example/":           "200 public.example",
		"http://" + gatetest.Far4 + "/":    "200 " + gatetest.Far4,
		"http://[" + gatetest.Far6 + "]/":  "200 [" + gatetest.Far6 + "]",
		"http://" + gatetest.Near4 + "/":   "403 botbox refused GET http://" + gatetest.Near4 + ":80\n",
		"http://[" + gatetest.Near6 + "]/": "403 botbox refused GET http://[" + gatetest.Near6 + "]:80\n",
		"http://origin.example/":           "403 botbox refused GET http://origin.example:80\n",
	} {
		resp, err := client.Get(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := fmt.Sprintf("%d %s", resp.StatusCode, body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

// An idle tunnel costs its two sockets: no pipes of a splice, no buffer.
func TestIdleTunnelsCostTwoDescriptors(t *testing.T) {
	o := gatetest.NewOrigin(t, answer)
	address, g, _ := start(t, o, nil)
	fds := func() int { return gatetest.Descriptors(t) }
	const tunnels = 100
	before, routines := fds(), runtime.NumGoroutine()
	for range tunnels {
		c := gatetest.Dial(t, address)
		gatetest.Send(t, c, o.At("CONNECT origin.example:PORT HTTP/1.1\r\n\r\nPING"))
		gatetest.Expect(t, bufio.NewReader(c), "HTTP/1.1 200 Connection established\r\n\r\nPONG")
		defer c.Close()
	}
	// The client's and the origin's end are in this process too.
	if n := fds() - before; n > 4*tunnels+5 {
		t.Errorf("%d tunnels hold %d descriptors, want 4 each", tunnels, n)
	}
	if n := runtime.NumGoroutine() - routines; n > 3*tunnels+5 {
		t.Errorf("%d tunnels hold %d goroutines, want 2 each and 1 of the origin", tunnels, n)
	}
	g.Close()
	end := time.Now().Add(10 * time.Second)
	for fds() > before+tunnels+5 || runtime.NumGoroutine() > routines+5 {
		if time.Now().After(end) {
			t.Fatalf("left over: %d descriptors, %d goroutines", fds()-before-tunnels, runtime.NumGoroutine()-routines)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
