package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestConnectTarget(t *testing.T) {
	for words, want := range map[string]string{
		"git.example 22": "git.example:22", "8.8.8.8 1": "8.8.8.8:1", "2600::1 65535": "[2600::1]:65535", "A_b-c.d 443": "A_b-c.d:443",
		// What the gate answers is its affair; what would be another request is ours.
		"": "", "h": "", "h 22 x": "", "h 0": "", "h 65536": "", "h +1": "", "h -1": "", "h x": "", "h\r\n 22": "", "[::1] 22": "",
		"u@h 22": "", "h/x 22": "", "ä 22": "", "h\x00 22": "", strings.Repeat("h", 256) + " 22": "",
	} {
		args := strings.Split(words, " ")
		if got, err := connectTarget(args); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", words, got, err, want)
		}
	}
	if got, err := connectTarget([]string{"h 22 HTTP/1.1\r\n\r\n", "22"}); err == nil {
		t.Errorf("a host that is a request gives %q", got)
	}
	if got, err := connectTarget([]string{"", "22"}); err == nil {
		t.Errorf("no host gives %q", got)
	}
}

var answers = []struct {
	text  string
	early string
	err   error
}{
	{"HTTP/1.1 200 Connection established\r\n\r\n", "", nil},
	{"HTTP/1.1 200 ok\r\nA: b\r\n\r\nSSH-2.0-x\r\n", "SSH-2.0-x\r\n", nil},
	{"HTTP/1.1 200 \r\n\r\n\r\n\r\n", "\r\n\r\n", nil},
	{"HTTP/1.1 403 botbox: private address\r\nContent-Length: 4\r\n\r\nbody", "body", refusal{403, "botbox: private address"}},
	{"HTTP/1.1 204 x\r\n\r\n", "", refusal{204, "x"}}, // our gate never says so
	{"", "", errNoEnd},
	{"HTTP/1.1 200 ok\r\n", "", errNoEnd},
	{"SSH-2.0-x\r\n\r\n", "", errAnswer},
	{"HTTP/1.1 200\r\n\r\n", "", errAnswer},
	{"HTTP/1.0 200 ok\r\n\r\n", "", errAnswer},
	{"HTTP/1.1  200 ok\r\n\r\n", "", errAnswer},
	{"HTTP/1.1 +20 ok\r\n\r\n", "", errAnswer},
	{"HTTP/1.1 2000 ok\r\n\r\n", "", errAnswer},
	{"HTTP/1.1 100 Continue\r\n\r\n", "", errAnswer},
	{"HTTP/1.1 200 ok\nA: b\r\n\r\n", "", errAnswer},
	{"HTTP/1.1 403 a\rb\r\n\r\n", "", errAnswer},
	{"HTTP/1.1 403 \x1b[2J\r\n\r\n", "", errAnswer},
	{"HTTP/1.1 403 \xff\r\n\r\n", "", errAnswer},
	{"HTTP/1.1 200 ok\r\nno field\r\n\r\n", "", errAnswer},
	{"HTTP/1.1 200 ok\r\n: x\r\n\r\n", "", errAnswer},
	{"HTTP/1.1 200 ok\r\nA : x\r\n\r\n", "", errAnswer},
	{"HTTP/1.1 200 ok\r\nA: b\r\n c\r\n\r\n", "", errAnswer},
	{"HTTP/1.1 200 ok\r\nA: " + strings.Repeat("x", maxAnswer) + "\r\n\r\n", "", errAnswer},
	{strings.Repeat("x", maxAnswer), "", errAnswer},
}

func TestReadAnswer(t *testing.T) {
	for _, c := range answers {
		for way, r := range map[string]io.Reader{
			"at once": strings.NewReader(c.text), "byte by byte": iotest.OneByteReader(strings.NewReader(c.text)), "with the end": iotest.DataErrReader(strings.NewReader(c.text)),
		} {
			early, err := readAnswer(r)
			rest, _ := io.ReadAll(r)
			if got := string(early) + string(rest); !errors.Is(err, c.err) || (c.err == nil && got != c.early) {
				t.Errorf("%.60q %s: %q, %v, want %q, %v", c.text, way, got, err, c.early, c.err)
			}
		}
	}
}

// Whatever answers, no byte of it reaches the person's terminal but printable
// ones, no tunnel is opened but by a whole 200, and no byte behind it is lost.
func FuzzAnswer(f *testing.F) {
	for _, c := range answers {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		early, err := readAnswer(bytes.NewReader(b))
		if no := (refusal{}); errors.As(err, &no) {
			if no.status == 200 || !printable(no.phrase) || len(no.phrase) > maxAnswer {
				t.Fatalf("%q gives %+v", b, no)
			}
			return
		}
		if err != nil {
			return
		}
		head, rest, _ := bytes.Cut(b, []byte("\r\n\r\n"))
		if !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) || !bytes.HasPrefix(rest, early) || len(head)+4+len(early) > maxAnswer {
			t.Fatalf("%q opens a tunnel with %q", b, early)
		}
	})
}

// gate answers one CONNECT and hands the connection on.
func gate(t *testing.T, do func(request string, c *net.TCPConn)) (port int) {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		request := ""
		for r := bufio.NewReader(io.LimitReader(c, 1<<10)); !strings.HasSuffix(request, "\r\n\r\n"); {
			line, err := r.ReadString('\n')
			if request += line; err != nil {
				break
			}
		}
		do(request, c.(*net.TCPConn))
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().(*net.TCPAddr).Port
}

// run connects, with stdin and stdout that the test holds, and gives the exit
// status and what was said.
func runConnect(t *testing.T, port int, args ...string) (stdin *os.File, stdout *os.File, end func() (int, string)) {
	t.Helper()
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return r, w
	}
	in, stdin := pipe()
	stdout, out := pipe()
	errR, errW := pipe()
	old := os.Stderr
	os.Stderr = errW
	code := make(chan int, 1)
	go func() { code <- connect(args, port, in, out) }()
	return stdin, stdout, func() (int, string) {
		n := <-code
		os.Stderr = old
		errW.Close()
		said, _ := io.ReadAll(errR)
		return n, string(said)
	}
}

// The far side speaks first, each side half-closes, and no byte is lost.
func TestConnectCarriesBothWays(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var got []byte
	var request string
	port := gate(t, func(r string, c *net.TCPConn) {
		request = r
		io.WriteString(c, "HTTP/1.1 200 ok\r\n\r\nSSH-2.0-early\r\n")
		got, _ = io.ReadAll(c) // the client's half ends first,
		c.Write(big)           // and the other one goes on
	})
	stdin, stdout, end := runConnect(t, port, "git.example", "22")
	go func() { stdin.Write(big); stdin.Close() }()
	down, err := io.ReadAll(stdout)
	if err != nil || string(down) != "SSH-2.0-early\r\n"+string(big) {
		t.Errorf("%d bytes came, %v", len(down), err)
	}
	if code, said := end(); code != 0 || said != "" {
		t.Errorf("%d %s", code, said)
	}
	if want := "CONNECT git.example:22 HTTP/1.1\r\nHost: git.example:22\r\n\r\n"; request != want || !bytes.Equal(got, big) {
		t.Errorf("the gate read %q and %d bytes", request, len(got))
	}
}

func TestConnectWhenTheFarSideEndsFirst(t *testing.T) {
	far := make(chan string, 1)
	port := gate(t, func(_ string, c *net.TCPConn) {
		io.WriteString(c, "HTTP/1.1 200 ok\r\n\r\nbye")
		c.CloseWrite()
		b, _ := io.ReadAll(c)
		far <- string(b)
	})
	stdin, stdout, end := runConnect(t, port, "h", "22")
	if b, _ := io.ReadAll(stdout); string(b) != "bye" {
		t.Errorf("%q", b)
	}
	io.WriteString(stdin, "still listening")
	stdin.Close()
	if code, said := end(); code != 0 || said != "" || <-far != "still listening" {
		t.Errorf("%d %s", code, said)
	}
}

// A gate that never answers is an error; a tunnel may be silent for ever.
func TestConnectWaits(t *testing.T) {
	defer func(was time.Duration) { answerTime = was }(answerTime)
	answerTime = 50 * time.Millisecond
	over := make(chan struct{})
	port := gate(t, func(string, *net.TCPConn) { <-over })
	_, _, end := runConnect(t, port, "h", "22")
	if code, said := end(); code != 111 || !strings.Contains(said, "did not answer in time") {
		t.Errorf("%d %s", code, said)
	}
	close(over)
	port = gate(t, func(_ string, c *net.TCPConn) {
		io.WriteString(c, "HTTP/1.1 200 ok\r\n\r\n")
		time.Sleep(4 * answerTime)
		io.WriteString(c, "late")
	})
	stdin, stdout, end := runConnect(t, port, "h", "22")
	stdin.Close()
	if b, _ := io.ReadAll(stdout); string(b) != "late" {
		t.Errorf("%q", b)
	}
	if code, said := end(); code != 0 {
		t.Errorf("%d %s", code, said)
	}
}

func TestConnectSaysWhyNot(t *testing.T) {
	for answer, want := range map[string]struct {
		code int
		said string
	}{
		"HTTP/1.1 403 botbox: cloud metadata service\r\n\r\n": {100, "botbox: connect h:22: cloud metadata service (403)\nhint: outside the box, botbox why host h:22 says more\nreason: egress-refused\n"},
		"HTTP/1.1 429 botbox: too many\r\n\r\n":               {111, "botbox: connect h:22: too many (429)\nreason: system\n"},
		"HTTP/1.1 502 botbox: no such name\r\n\r\n":           {111, "botbox: connect h:22: no such name (502)\nreason: system\n"},
		"SSH-2.0-x\r\n": {111, "botbox: connect h:22: the egress gate closed the connection before its answer ended\n" +
			"hint: a box with --net none or shared has no egress gate\nreason: system\n"},
	} {
		port := gate(t, func(_ string, c *net.TCPConn) { io.WriteString(c, answer) })
		_, stdout, end := runConnect(t, port, "h", "22")
		code, said := end()
		if code != want.code || said != want.said {
			t.Errorf("%q: %d %q, want %d %q", answer, code, said, want.code, want.said)
		}
		stdout.Close()
	}
	_, _, end := runConnect(t, 1, "h", "22")
	if code, said := end(); code != 111 || !strings.Contains(said, "cannot be reached") {
		t.Errorf("no gate: %d %s", code, said)
	}
	_, _, end = runConnect(t, 1, "h")
	if code, said := end(); code != 100 || !strings.Contains(said, "reason: usage") {
		t.Errorf("one word: %d %s", code, said)
	}
}
