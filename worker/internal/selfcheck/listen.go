package selfcheck

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// door is a listener that greets whoever comes, and counts them.
type door struct {
	listener net.Listener
	came     atomic.Int64 // greeted
	own      int64        // of them, our own controls
}

const greeting = "botbox check\n"

func openDoor(network, address string) (*door, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	d := &door{listener: l}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			d.came.Add(1)
			io.WriteString(conn, greeting)
			conn.Close()
		}
	}()
	return d, nil
}

// knock is the control: the door opens from outside. The queue of a listener
// is in order, so whoever came before has been counted when it returns.
func (d *door) knock() error {
	address := d.listener.Addr()
	conn, err := net.DialTimeout(address.Network(), address.String(), patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	d.own++
	conn.SetDeadline(time.Now().Add(patience))
	text, err := io.ReadAll(conn)
	if string(text) != greeting {
		return errors.Join(errors.New("it does not answer"), err)
	}
	return nil
}

// strangers counts those who came and were not us.
func (d *door) strangers() int64 { return d.came.Load() - d.own }

// patience bounds one question to a listener of our own.
const patience = 2 * time.Second

func deadline() time.Time { return time.Now().Add(patience) }

// server stands for the chat server behind the harness gate: it answers
// every route, and remembers which it was asked for.
type server struct {
	http.Server
	address netip.AddrPort
	mu      sync.Mutex
	asked   []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.Path)
	s.mu.Unlock()
	io.WriteString(w, greeting)
}

// wasAsked gives the routes that were asked for since forget.
func (s *server) wasAsked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = nil
}

// provider stands for the vendor's API: it answers only to the real key, in
// the vendor's own header. Each check of the probe's that calls it says which
// it is, so that its calls can be told from others'.
type provider struct {
	http.Server
	address netip.AddrPort
	key, ok string
	path    string // of every call
	away    string // where a call that asks for a redirect is sent
	mu      sync.Mutex
	calls   map[string]int // by check
	odd     map[string]int // of them, with another path, or with anything but the key as a credential
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	good := slices.Equal(r.Header.Values(keyHeader), []string{p.key})
	query := r.URL.Query()
	p.note(query.Get("check"), good && onlyKey(r) && r.URL.Path == p.path && r.Host == p.address.String())
	switch {
	case !good:
		w.WriteHeader(http.StatusUnauthorized)
	case query.Has("redirect"):
		http.Redirect(w, r, p.away, http.StatusFound)
	case query.Has("reflect"):
		w.Header().Set("X-Echo", p.key)
		fmt.Fprintf(w, "%s\n%s\n%x\n%s\n", p.ok, p.key, p.key, base64.StdEncoding.EncodeToString([]byte(p.key)))
	default:
		io.WriteString(w, p.ok)
	}
}

func (p *provider) note(check string, right bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == nil {
		p.calls, p.odd = map[string]int{}, map[string]int{}
	}
	p.calls[check]++
	if !right {
		p.odd[check]++
	}
}

// onlyKey tells whether nothing of the box came along: neither the token nor a
// credential that the probe sent beside it.
func onlyKey(r *http.Request) bool {
	if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
		return false
	}
	all := r.RequestURI
	for _, values := range r.Header {
		all += "\n" + strings.Join(values, "\n")
	}
	return !strings.Contains(all, "omb_t0_") && !strings.Contains(all, "boxprobe")
}

// called gives the numbers of a check's calls.
func (p *provider) called(check string) (calls, odd int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[check], p.odd[check]
}

// serve starts an HTTP server on a free port of the loopback.
func serve(s *http.Server, h http.Handler) (netip.AddrPort, error) {
	return serveAt("127.0.0.1:0", s, h)
}

func serveAt(address string, s *http.Server, h http.Handler) (netip.AddrPort, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	s.Handler, s.ReadHeaderTimeout = h, patience
	s.ErrorLog = log.New(io.Discard, "", 0) // net/http's own lines would stand between ours
	go s.Serve(l)
	return l.Addr().(*net.TCPAddr).AddrPort(), nil
}

// status asks one of our own servers. It goes through no proxy.
func status(address netip.AddrPort, path, key string) (int, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	req, err := http.NewRequest("GET", "http://"+address.String()+path, nil)
	if err != nil {
		return 0, err
	}
	if key != "" {
		req.Header.Set(keyHeader, key)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}

// openDoors opens what no box may reach: the server's socket, a port of the
// loopback, and one of an interface.
func (o *outside) openDoors() (err error) {
	open := func(network, address string) *door {
		d, failed := openDoor(network, address)
		if failed != nil {
			err = errors.Join(err, failed)
			return nil
		}
		o.later(d.listener.Close)
		return d
	}
	if o.socket = open("unix", o.ServerSocket); o.socket == nil {
		return err
	}
	if o.loopback = open("tcp", "127.0.0.1:0"); o.loopback == nil {
		return err
	}
	o.LoopbackPort = o.loopback.listener.Addr().(*net.TCPAddr).Port
	for _, address := range append(interfaceAddresses(), "127.0.0.2") {
		// Where there is no interface, another address of the loopback is as
		// much the host's as one.
		err = nil
		if o.nearby = open("tcp", net.JoinHostPort(address, "0")); o.nearby != nil {
			o.HostAddress = o.nearby.listener.Addr().String()
			break
		}
	}
	return err
}

// interfaceAddresses are this machine's own, beyond the loopback's.
func interfaceAddresses() []string {
	addresses, _ := net.InterfaceAddrs()
	var all []string
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			all = append(all, n.IP.String())
		}
	}
	return all
}

func (o *outside) startServers() (err error) {
	o.provider.key, o.provider.ok, o.provider.path = o.key, o.UpstreamOK, o.Call
	o.provider.away = "http://" + o.away.address.String() + "/"
	if o.server.address, err = serve(&o.server.Server, &o.server); err != nil {
		return err
	}
	o.later(o.server.Close)
	if o.provider.address, err = serve(&o.provider.Server, &o.provider); err != nil {
		return err
	}
	o.later(o.provider.Close)
	// In a box with a network of its own the harness gate has the server's own
	// port, so that the same URL serves inside and outside. In one without, the
	// server itself would answer there.
	o.HarnessPort = int(o.server.address.Port())
	o.InternalRoute, o.OtherRoute = "/api/internal/agents", "/api/bots"
	return nil
}
