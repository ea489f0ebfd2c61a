package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/internet"
	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// Addresses that a browser must not reach, each with a server on it: this
// machine's own, and the neighbour's on the same wire as its public one.
const (
	loopbackHost = "127.0.0.1:8081"
	ownHost      = gatetest.Near4 + ":8081"
	privateHost  = "10.99.0.4:8081"
	linkHost     = "169.254.99.4:8081"
	uniqueHost   = "[fd00:99::4]:8081"
)

// watched counts what comes past a gate: connections to addresses that are
// closed to a box, and datagrams, which no gate carries.
type watched struct {
	tcp       atomic.Int64
	stun, udp atomic.Int64
}

func watch(t *testing.T, peer *gatetest.Peer) *watched {
	t.Helper()
	var w watched
	peer.Also("10.99.0.1/24", "10.99.0.4/24")
	peer.Also("169.254.99.1/24", "169.254.99.4/24")
	peer.Also("fd00:99::1/64", "fd00:99::4/64")
	serve := func(ln net.Listener) {
		go http.Serve(ln, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			w.tcp.Add(1)
			fmt.Fprint(rw, "inside")
		}))
	}
	serve(peer.Listen(":8081"))
	for _, address := range []string{loopbackHost, "[::1]:8081", ownHost} {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		serve(ln)
	}
	for address, n := range map[string]*atomic.Int64{":3478": &w.stun, ":443": &w.udp} {
		conn := peer.ListenPacket(address)
		go func() {
			for buf := make([]byte, 2048); ; n.Add(1) {
				if _, _, err := conn.ReadFrom(buf); err != nil {
					return
				}
			}
		}()
	}
	return &w
}

// One Chromium behind the gate, and the same one without it. Both do the same:
// what the second one reaches shows that the first one tried.
func TestABrowserGetsOutThroughItsGateOnly(t *testing.T) {
	// Of two equal flags Chrome takes the last, and ours come last.
	command := chromium(t, "--remote-debugging-pipe", "--enable-quic", "--origin-to-force-quic-on=quic."+internet.Domain+":443",
		"--proxy-server=direct://", "--proxy-bypass-list=*", "--webrtc-ip-handling-policy=default")
	needsRoot(t)
	if !gatetest.Inside(t) {
		return
	}
	w := newWeb(t)
	w.net.Handle("www", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		rw.Header().Set("Alt-Svc", `h3=":443"; ma=600`)
		fmt.Fprint(rw, page)
	}))
	w.net.Handle("quic", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "over TCP") }))
	pin, err := w.net.Pin()
	if err != nil {
		t.Fatal(err)
	}
	command = append(command, "--ignore-certificate-errors-spki-list="+pin)
	w.serve()
	seen := watch(t, w.peer)
	// WebRTC shows a page the address of the default route. The neighbour
	// forwards nothing.
	gatetest.Run(t, "ip", "route", "add", "default", "via", gatetest.Far4)
	closed := []string{loopbackHost, "localhost:8081", "[::1]:8081", ownHost, privateHost, linkHost, uniqueHost}
	for _, mode := range []string{"gated", "shared"} {
		t.Run(mode, func(t *testing.T) {
			gated := mode == "gated"
			chrome := drive(t, w.botbox(nil, append([]string{"browser", "--net", mode, "--debug-pipe", "--"}, command...)...))
			chrome.open("about:blank")
			for _, url := range []string{"http://www.example.com/", "https://www.example.com/"} {
				if failure := chrome.navigate(url); failure != "" {
					t.Fatalf("%s: %s", url, failure)
				}
				var got string
				if chrome.eval("document.getElementById('a').textContent", &got); got != "script ran" {
					t.Errorf("%s: %q", url, got)
				}
			}
			if found := chrome.candidates(); strings.Contains(found, " udp ") == gated {
				t.Errorf("WebRTC has the candidates %s", found)
			}
			// By force: only a browser that does not even know QUIC loads it.
			if failure := chrome.navigate("https://quic.example.com/"); (failure == "") != gated {
				t.Errorf("QUIC: %q", failure)
			}
			for _, host := range closed {
				before := seen.tcp.Load()
				failure, hit := chrome.navigate("http://"+host+"/"), seen.tcp.Load() != before
				if gated && (failure != "net::ERR_SOCKS_CONNECTION_FAILED" || hit) {
					t.Errorf("%s: %q, reached: %v", host, failure, hit)
				}
				if !gated && (failure != "" || !hit) {
					t.Errorf("positive control, %s: %q, reached: %v", host, failure, hit)
				}
			}
			if stun, udp := seen.stun.Load(), seen.udp.Load(); gated && stun+udp != 0 || !gated && (stun == 0 || udp == 0) {
				t.Errorf("%d datagrams of STUN and %d of QUIC came past the gate", stun, udp)
			}
			chrome.session = ""
			chrome.do("Browser.close", nil, nil)
		})
	}
	// The network namespace would hide a flag that this Chromium no longer
	// reads. So once more with the flags alone, where no proxy listens.
	t.Run("flags", func(t *testing.T) {
		tcp, stun, udp := seen.tcp.Load(), seen.stun.Load(), seen.udp.Load()
		args := append([]string{"browser", "--net", "shared", "--debug-pipe", "--"}, command...)
		chrome := drive(t, w.botbox(nil, append(args, box.ChromeFlags()...)...))
		chrome.open("about:blank")
		if found := chrome.candidates(); strings.Contains(found, " udp ") {
			t.Errorf("WebRTC has the candidates %s", found)
		}
		for _, url := range append(closed, "quic.example.com", "www.example.com") {
			if failure := chrome.navigate("http://" + url + "/"); failure != "net::ERR_PROXY_CONNECTION_FAILED" {
				t.Errorf("%s: %q", url, failure)
			}
		}
		if seen.tcp.Load() != tcp || seen.stun.Load() != stun || seen.udp.Load() != udp {
			t.Errorf("%d connections, %d datagrams of STUN and %d of QUIC went around the proxy", seen.tcp.Load()-tcp, seen.stun.Load()-stun, seen.udp.Load()-udp)
		}
		chrome.session = ""
		chrome.do("Browser.close", nil, nil)
	})
}

// candidates are the addresses that WebRTC would be reached at, found with the
// neighbour as its STUN server.
func (p *pipe) candidates() string {
	p.t.Helper()
	var found []string
	p.eval(fmt.Sprintf("(() => { %s return candidates('stun:%s:3478') })()", tries, gatetest.Far4), &found)
	return fmt.Sprintf("%q", found)
}

// navigate waits until the page is there, or gives Chrome's name for why not.
func (p *pipe) navigate(url string) (failure string) {
	p.t.Helper()
	var result struct{ ErrorText string }
	p.do("Page.navigate", map[string]any{"url": url}, &result)
	if result.ErrorText != "" {
		return result.ErrorText
	}
	host := strings.Split(url, "/")[2] // Chrome makes https of http where it can
	rig.Eventually(p.t, 20*time.Second, url+" has loaded", func() bool {
		var ready bool
		p.eval(fmt.Sprintf("document.readyState == 'complete' && location.host == %q", host), &ready)
		return ready
	})
	return ""
}
