package internet

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// Internet is one test's.
type Internet struct {
	Root []byte // the certificate to trust, PEM

	repos  string // where the git repositories are
	tls    tls.Certificate
	hosts  map[string]http.Handler
	server http.Server
	hits   atomic.Int64
}

// New makes one whose git repositories are in a folder.
func New(repos string) (*Internet, error) {
	in := &Internet{repos: repos, hosts: map[string]http.Handler{
		"www": http.HandlerFunc(hello), "npm": npm(), "pypi": pypi(), "goproxy": goproxy(), "crates": crates(), "deb": debian(),
	}}
	git, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, err
	}
	in.hosts["git"] = &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(git)), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + repos, "GIT_HTTP_EXPORT_ALL=1",
			// The repositories are another user's than the one who serves them.
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	in.server.Handler = in
	in.Root, in.tls, err = certificates()
	return in, err
}

// Handle gives a host another handler, before anything is served.
func (in *Internet) Handle(host string, h http.Handler) { in.hosts[host] = h }

// Pin is what Chrome calls the server's certificate by.
func (in *Internet) Pin() (string, error) {
	leaf, err := x509.ParseCertificate(in.tls.Certificate[0])
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:]), nil
}

// Hits tells how many connections have reached any of its servers.
func (in *Internet) Hits() int64 { return in.hits.Load() }

// ServeHTTP looks the host up.
func (in *Internet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(r.Host, "."+Domain)
	if host := in.hosts[name]; host != nil {
		host.ServeHTTP(w, r)
		return
	}
	http.NotFound(w, r)
}

// HTTP serves plain http on ln, and HTTPS with our certificate, until ln is
// closed.
func (in *Internet) HTTP(ln net.Listener) { in.server.Serve(counted{ln, &in.hits}) }

// HTTPS is HTTP, over TLS.
func (in *Internet) HTTPS(ln net.Listener) {
	config := &tls.Config{Certificates: []tls.Certificate{in.tls}, NextProtos: []string{"http/1.1"}}
	in.server.Serve(tls.NewListener(counted{ln, &in.hits}, config))
}

// SSH gives each connection to an ssh server, one process for each.
func (in *Internet) SSH(ln net.Listener, server func() *exec.Cmd) {
	for counting := (counted{ln, &in.hits}); ; {
		c, err := counting.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			file, err := c.(*net.TCPConn).File()
			if err != nil {
				return
			}
			defer file.Close()
			cmd := server()
			cmd.Stdin, cmd.Stdout = file, file
			cmd.Run() // how it ends is the client's to judge
		}()
	}
}

type counted struct {
	net.Listener
	hits *atomic.Int64
}

func (c counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.hits.Add(1)
	}
	return conn, err
}

func hello(w http.ResponseWriter, r *http.Request) {
	over := "http"
	if r.TLS != nil {
		over = "https"
	}
	fmt.Fprintf(w, "hello over %s\n", over)
}
