package intercept

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

const host = "api.vendor.example"

// start serves host's certificate on a loopback port, as the egress gate would
// behind a CONNECT, and answers with what it was asked.
func start(t *testing.T) (id *Identity, port string, handed <-chan [2]int64) {
	t.Helper()
	id, err := NewIdentity([]string{host, "other.example"}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(id)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %d", r.Method, r.Host, r.URL.Path, len(body))
	})}
	go server.Serve(l)
	outer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	counts := make(chan [2]int64, 8)
	go func() {
		for {
			c, err := outer.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				// The first bytes come as they do behind a CONNECT that was
				// sent together with them.
				early := make([]byte, 7)
				n, _ := c.Read(early)
				up, down := l.Hand(c.(gate.Stream), early[:n], host)
				counts <- [2]int64{up, down}
			}()
		}
	}()
	t.Cleanup(func() { outer.Close(); server.Close() })
	_, port, _ = net.SplitHostPort(outer.Addr().String())
	return id, port, counts
}

func client(root []byte, port string) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: pool},
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("tcp", "127.0.0.1:"+port) },
	}}
}

func TestDeclaredHost(t *testing.T) {
	id, port, handed := start(t)
	res, err := client(id.Root, port).Post("https://"+host+"/v1/chat?x=1", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if string(body) != "POST "+host+" /v1/chat 5" {
		t.Errorf("%s", body)
	}
	if n := <-handed; n[0] < 5 || n[1] < int64(len(body)) {
		t.Errorf("counted %v", n)
	}
}

func TestUndeclaredNamesAndStrangers(t *testing.T) {
	id, port, _ := start(t)
	for what, get := range map[string]func() error{
		"a host that the certificate does not name": func() error {
			_, err := client(id.Root, port).Get("https://stranger.example/")
			return err
		},
		"a box that trusts another box's authority": func() error {
			other, err := NewIdentity([]string{host}, time.Now(), time.Now().Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			_, err = client(other.Root, port).Get("https://" + host + "/")
			return err
		},
	} {
		if err := get(); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
	// The control: the same way with the right name and root.
	if _, err := client(id.Root, port).Get("https://" + host + "/"); err != nil {
		t.Error(err)
	}
}

// The certificate fits every declared host, so the name inside must be the one
// that the CONNECT named. A client that names none is one with an old library.
func TestTheNameInsideIsTheConnects(t *testing.T) {
	id, port, handed := start(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(id.Root)
	for name, want := range map[string]bool{host: true, strings.ToUpper(host): true, "": true, "other.example": false, "stranger.example": false} {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		inner := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		err = inner.Handshake()
		if err == nil { // TLS 1.3 tells a client of a refusal after its own part
			io.WriteString(inner, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
			_, err = io.ReadAll(inner)
		}
		if (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
		c.Close()
		if n := <-handed; (n[0] > 0) != want {
			t.Errorf("%q: %v bytes were handed over", name, n)
		}
	}
}

func TestDeclares(t *testing.T) {
	id, err := NewIdentity([]string{host}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(id)
	for name, want := range map[string]bool{host: true, "other.example": false, "x." + host: false, "": false} {
		if l.Declares(name) != want || (*Listener)(nil).Declares(name) {
			t.Errorf("%q", name)
		}
	}
}

// The root is marked as good for the declared hosts only, so that a client
// which trusts it does not trust it for the rest of the world.
func TestRootIsConstrained(t *testing.T) {
	id, _, _ := start(t)
	root, err := x509.ParseCertificate(id.leaf.Certificate[1])
	if err != nil {
		t.Fatal(err)
	}
	if !root.PermittedDNSDomainsCritical || strings.Join(root.PermittedDNSDomains, " ") != host+" other.example" || !root.MaxPathLenZero {
		t.Errorf("%+v", root)
	}
}

// Clients with TLS of their own: OpenSSL in curl and Python, and node.
func TestRealClients(t *testing.T) {
	id, port, _ := start(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, id.Root, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"curl", "-sS", "--http2", "--cacert", ca, "--resolve", host + ":" + port + ":127.0.0.1", "https://" + host + ":" + port + "/x"},
		{"python3", "-c", `
import http.client, socket, ssl, sys
c = ssl.create_default_context(cafile=sys.argv[1])
s = c.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[2]))), server_hostname=sys.argv[3])
s.sendall(b"GET /x HTTP/1.1\r\nHost: " + sys.argv[3].encode() + b"\r\nConnection: close\r\n\r\n")
r = b""
while True:
    b = s.recv(4096)
    if not b: break
    r += b
print(r.split(b"\r\n\r\n", 1)[1].decode())`, ca, port, host},
		{"node", "-e", `
const [ca, port, host] = process.argv.slice(1)
require("https").get({ca: require("fs").readFileSync(ca), host: "127.0.0.1", port, servername: host, path: "/x", headers: {host}, agent: false},
  r => { let s = ""; r.on("data", d => s += d); r.on("end", () => console.log(s)) })`, ca, port, host},
	} {
		if _, err := exec.LookPath(argv[0]); err != nil {
			if os.Getenv("BOTBOX_MUST_RUN") == "1" {
				t.Fatal(err)
			}
			t.Logf("%s is not here", argv[0])
			continue
		}
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "GET "+host) || !strings.Contains(string(out), "/x 0") {
			t.Errorf("%s: %v %s", argv[0], err, out)
		}
	}
}

// A client that never says hello costs a goroutine for the handshake's time,
// and one that speaks no TLS nothing.
func TestNoTLS(t *testing.T) {
	_, port, handed := start(t)
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if n := <-handed; n != [2]int64{} {
		t.Errorf("%v", n)
	}
}

func TestCloseLetsHandReturn(t *testing.T) {
	id, err := NewIdentity([]string{host}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(id)
	l.Close()
	if _, err := l.Accept(); err != net.ErrClosed {
		t.Error(err)
	}
	near, far := pair(t)
	done := make(chan struct{})
	go func() { defer close(done); l.Hand(far, nil, host) }()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(id.Root)
	tls.Client(near, &tls.Config{RootCAs: pool, ServerName: host}).Handshake()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("Hand is still there")
	}
}

func pair(t *testing.T) (near net.Conn, far gate.Stream) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); c.Close() })
	return near, c.(gate.Stream)
}

// What a later worker is left is the same certificate, and no way to another.
func TestAnIdentityIsHandedOn(t *testing.T) {
	id, err := NewIdentity([]string{host, "other.example"}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	b, err := id.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "PRIVATE KEY-----\n"); n != 2 { // the begin and the end of one
		t.Errorf("%d keys' lines", n)
	}
	back, err := ParseIdentity(b)
	if err != nil || strings.Join(back.Hosts(), " ") != host+" other.example" {
		t.Fatalf("%v, %v", back, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(id.Root)
	if _, err := back.leaf.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
		t.Error(err)
	}
	other, err := NewIdentity([]string{host}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	foreign, _ := other.Marshal()
	cut := bytes.Index(b, []byte("-----BEGIN PRIVATE KEY"))
	of := bytes.Index(foreign, []byte("-----BEGIN PRIVATE KEY"))
	for name, bad := range map[string][]byte{
		"nothing": nil, "no key": b[:cut], "no certificate": b[cut:], "another's key": append(bytes.Clone(b[:cut]), foreign[of:]...),
		"the authority": append(bytes.Clone(id.Root), b[cut:]...), "cut": b[:len(b)-40],
	} {
		if _, err := ParseIdentity(bad); err == nil || strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
