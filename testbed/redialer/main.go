// Command redialer runs in a box for tests that kill the worker under it. Each
// time that the number in a file changes it opens a stream through each of the
// box's three listeners, tries again until all of them flow, and reports the
// number and the moment. The streams stay open until the next time.
//
//	redialer ROUND REPORT HARNESS-PORT EGRESS-TARGET
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"
)

func main() {
	round, report, harness, target := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	base, err := url.Parse(os.Getenv("ANTHROPIC_BASE_URL"))
	if err != nil {
		panic(err)
	}
	out, err := os.OpenFile(report, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	ways := []struct{ at, ask string }{
		{"127.0.0.1:" + harness, "GET /api/internal/stream HTTP/1.1\r\nHost: 127.0.0.1:" + harness + "\r\n\r\n"},
		{base.Host, "POST " + base.Path + "/v1/messages HTTP/1.1\r\nHost: " + base.Host + "\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"},
		{"127.0.0.1:3128", "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\nGET /egress HTTP/1.1\r\nHost: " + target + "\r\n\r\n"},
	}
	last := ""
	var open []net.Conn
	for ; ; time.Sleep(10 * time.Millisecond) {
		b, _ := os.ReadFile(round)
		now := strings.TrimSpace(string(b))
		if now == "" || now == last {
			continue
		}
		last = now
		for _, c := range open {
			c.Close()
		}
		open = nil
		for _, w := range ways {
			open = append(open, stream(w.at, w.ask))
		}
		fmt.Fprintln(out, now, time.Now().UnixNano())
	}
}

// stream returns when the first tick has come.
func stream(at, ask string) net.Conn {
	for ; ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", at)
		if err != nil {
			fmt.Println("dial", at, err) // which no listener that is kept does
			continue
		}
		io.WriteString(c, ask)
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				break
			}
			if strings.TrimSpace(line) == "tick" {
				go io.Copy(io.Discard, r)
				return c
			}
		}
		c.Close()
	}
}
