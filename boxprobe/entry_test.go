package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/boxprobe/internal/landlock"
)

// entryEnv makes the test binary the first program of the test's box: it
// stands in for the gates, and then starts the probe.
const entryEnv = "BOXPROBE_TEST_ENTRY"

// confineEnv makes it the probe's own process, which is confined as an engine
// is and becomes the probe; its parent is not confined.
const confineEnv = "BOXPROBE_TEST_CONFINE"

func TestMain(m *testing.M) {
	if os.Getenv(entryEnv) == "" {
		os.Exit(m.Run())
	}
	do := entry
	if os.Getenv(confineEnv) != "" {
		do = confine
	}
	if err := do(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "entry:", err)
		os.Exit(1)
	}
}

func entry(mutation string, argv []string) error {
	text, err := os.ReadFile(argv[len(argv)-1])
	if err != nil {
		return err
	}
	var f Fixture
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	gate(f.EgressPort, func(string) string {
		if mutation == "egress-open" {
			return "200 OK"
		}
		return "403 Forbidden"
	})
	gate(f.HarnessPort, func(target string) string {
		if mutation == "harness-open" || strings.HasPrefix(target, "/api/internal/") {
			return "200 OK"
		}
		return "403 Forbidden"
	})
	if mutation != "broker-off" {
		gate(f.BrokerPort, func(target string) string { return testBroker(target, f.UpstreamOK) })
	}
	if mutation != "core-on" {
		if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
			return err
		}
	}
	if mutation != "fd-leak" { // as boxentry does; what runs the test may leak files of its own
		if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
			return err
		}
	}
	cmd := exec.Command("/proc/self/exe", append([]string{mutation}, argv...)...)
	cmd.Env = append(os.Environ(), confineEnv+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

func confine(mutation string, argv []string) error {
	text, err := os.ReadFile(argv[len(argv)-1])
	if err != nil {
		return err
	}
	var f Fixture
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	runtime.LockOSThread()
	if mutation != "no-landlock" {
		trees := []string{"/tmp", "/var/tmp", "/run", "/dev/shm", f.DataDir, f.WorkDir}
		if err := landlock.Confine(f.Landlock, trees); err != nil {
			return err
		}
	}
	if mutation != "no-limits" {
		for what, n := range map[int]int{unix.RLIMIT_NPROC: f.Pids, unix.RLIMIT_NOFILE: f.Nofile} {
			if err := syscall.Setrlimit(what, &syscall.Rlimit{Cur: uint64(n), Max: uint64(n)}); err != nil {
				return err
			}
		}
	}
	os.Unsetenv(confineEnv)
	return syscall.Exec(argv[0], argv, os.Environ())
}

// gate listens where it can. In a box without a network of its own the port is
// taken by the server outside, and that is what the probe is to find.
func gate(port int, answer func(target string) string) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		go serve(l, answer)
	}
}

func testBroker(target, ok string) string {
	part := strings.SplitN(target, "/", 5) // "", b, token, grant, rest
	switch {
	case len(part) < 5 || part[2] != testToken:
		return "401 Unauthorized"
	case part[3] != "anthropic":
		return "403 Forbidden"
	}
	return "200 OK\r\nX-Upstream: " + ok
}

// serve answers one request on each connection with a status line.
func serve(l net.Listener, answer func(target string) string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			in := bufio.NewReader(conn)
			request, err := in.ReadString('\n')
			words := strings.Fields(request)
			if err != nil || len(words) != 3 {
				return
			}
			for line := request; strings.TrimSpace(line) != ""; {
				if line, err = in.ReadString('\n'); err != nil {
					return
				}
			}
			fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", answer(words[1]))
		}()
	}
}
