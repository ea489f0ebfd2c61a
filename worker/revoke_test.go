package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/testbed/provider"
	"github.com/openmausbot/botbox/testbed/rig"
)

// A token dies with its box: within 100 ms of SIGKILL nobody gets anything for
// it, even in the box's own network namespace, which the test keeps alive.
func TestATokenDiesWithItsBox(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, to enter a box's network namespace")
	}
	ways(t, func(t *testing.T, p *place, run []string) {
		upstream := httptest.NewServer(provider.New(provider.Options{Key: "sk-canary", Reply: "ok"}))
		defer upstream.Close()
		var took []time.Duration
		for _, victim := range []string{"engine", "pid 1", "caller"} {
			m := mark(t)
			cmd, out := start(t, p.botbox([]string{"ANTHROPIC_API_KEY=sk-canary", "ANTHROPIC_BASE_URL=" + upstream.URL},
				with(run, "--", "sh", "-c", "echo $ANTHROPIC_BASE_URL; readlink /proc/self/ns/net; sleep 300; : "+m)...))
			url := line(t, out) + "/v1/messages"
			netns := engineNetwork(t, m)
			defer netns.Close()
			if status := callFrom(netns, url); status != 200 {
				t.Fatalf("positive control: the token answers %d while the box runs", status)
			}
			kill(t, cmd, m, victim)
			killed := time.Now()
			rig.Eventually(t, 2*time.Second, victim+" killed: the token is refused", func() bool { return callFrom(netns, url) != 200 })
			took = append(took, time.Since(killed))
			cmd.Wait()
		}
		// The machine is shared and noisy: the quickest shows what we do, and
		// none may take for ever.
		if slices.Min(took) > 100*time.Millisecond {
			t.Errorf("tokens were refused after %v", took)
		}
	})
}

// engineNetwork holds on to the network namespace of the box with the mark.
func engineNetwork(t *testing.T, mark string) *os.File {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", inBox(t, mark, 2)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// callFrom posts to a URL on the loopback of a network namespace. It gives the
// HTTP status, 0 when nothing answers. The thread is thrown away afterwards.
func callFrom(netns *os.File, url string) int {
	result := make(chan int)
	go func() {
		runtime.LockOSThread()
		status := 0
		defer func() { result <- status }()
		if unix.Setns(int(netns.Fd()), unix.CLONE_NEWNET) != nil {
			status = -1
			return
		}
		host, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		_, portText, _ := net.SplitHostPort(host)
		port, _ := strconv.Atoi(portText)
		if unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}) != nil {
			return
		}
		body := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`
		fmt.Fprintf(fdWriter(fd), "POST /%s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n%s", path, host, len(body), body)
		resp, err := http.ReadResponse(bufio.NewReader(fdReader(fd)), nil)
		if err == nil {
			status = resp.StatusCode
		}
	}()
	return <-result
}

type fdWriter int

func (f fdWriter) Write(b []byte) (int, error) { return syscall.Write(int(f), b) }

type fdReader int

func (f fdReader) Read(b []byte) (int, error) {
	n, err := syscall.Read(int(f), b)
	if n == 0 && err == nil {
		err = net.ErrClosed
	}
	return max(n, 0), err
}

// A token in another box is worth nothing, and its owner is cut off.
func TestAStolenTokenIsRevoked(t *testing.T) {
	p := newPlace(t)
	p.serve()
	model := provider.New(provider.Options{Key: "sk-canary", Reply: "ok"})
	upstream := httptest.NewServer(model)
	defer upstream.Close()
	key := []string{"ANTHROPIC_API_KEY=sk-canary", "ANTHROPIC_BASE_URL=" + upstream.URL}
	call := `curl -s -o /dev/null -w '%{http_code}\n' -d '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]}' `
	_, owner := start(t, p.botbox(key, "run", "--", "sh", "-c",
		`echo $ANTHROPIC_BASE_URL; `+call+`$ANTHROPIC_BASE_URL/v1/messages; while [ ! -e go ]; do sleep 0.02; done; `+call+`$ANTHROPIC_BASE_URL/v1/messages`))
	url := line(t, owner)
	if got := line(t, owner); got != "200" {
		t.Fatalf("positive control: the owner's call: %s", got)
	}
	thief := rig.Run(t, p.botbox(nil, "run", "--", "sh", "-c", call+url+"/v1/messages"))
	if strings.TrimSpace(thief.Stdout) != "403" {
		t.Errorf("the thief got %+v", thief)
	}
	rig.Write(t, filepath.Join(p.work, "go"), "")
	if got := line(t, owner); got != "401" {
		t.Errorf("the owner's next call: %s", got)
	}
	if n := len(model.Requests()); n != 1 {
		t.Errorf("the upstream was asked %d times", n)
	}
}
