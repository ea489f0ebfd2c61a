package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// answer is what came back over one connection.
type answer struct {
	status int
	text   string // all of it, head included, up to answerSize
}

const answerSize = 1 << 20

// ask sends one request to a port of the box's loopback, with no more than it
// needs: a client library would tidy up what a hostile bot writes.
// The request is "METHOD TARGET"; headers are "Name: value".
func ask(port int, request, host string, headers []string) (answer, error) {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), time.Second)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	lines := append([]string{request + " HTTP/1.1", "Host: " + host, "Connection: close"}, headers...)
	if _, err := fmt.Fprintf(conn, "%s\r\n\r\n", strings.Join(lines, "\r\n")); err != nil {
		return answer{}, err
	}
	text, err := io.ReadAll(io.LimitReader(conn, answerSize))
	status, ok := parseStatus(string(text))
	if !ok {
		return answer{}, errors.Join(errors.New("no HTTP answer"), err)
	}
	return answer{status, string(text)}, nil
}

// get asks a port for a path under the port's own name.
func get(port int, path string, headers ...string) (answer, error) {
	return ask(port, "GET "+path, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), headers)
}

// parseStatus reads "HTTP/1.x NNN".
func parseStatus(text string) (int, bool) {
	version, rest, _ := strings.Cut(text, " ")
	if (version != "HTTP/1.1" && version != "HTTP/1.0") || len(rest) < 3 {
		return 0, false
	}
	status, err := strconv.Atoi(rest[:3])
	return status, err == nil && status >= 100
}
