package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// api asks the worker's interface, as its user or root may.
func (p *place) api(method, path, body string) (status int, answer string) {
	p.t.Helper()
	socket := filepath.Join(p.run, "api.sock")
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) },
	}}
	req, err := http.NewRequest(method, "http://worker"+path, strings.NewReader(body))
	if err != nil {
		p.t.Error(err)
		return 0, ""
	}
	resp, err := client.Do(req)
	if err != nil {
		p.t.Errorf("%s %s: %v", method, path, err)
		return 0, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Errorf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(b)
}

// Every route with what nobody should send: a clear answer, and no box that
// notices.
func TestTheAPIWithBadInput(t *testing.T) {
	p := newPlace(t)
	p.serve()
	cmd, out := start(t, p.botbox(nil, "run", "--", "sh", "-c", "echo up; exec sleep 300"))
	line(t, out)
	id := p.listed()[0].ID
	signal := "/v1/boxes/" + id + "/signal"
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string // "" = Go's own words
	}{
		{"GET", "/v1/boxes/no-such", "", 404, "no-such-box"},
		{"GET", "/v1/boxes/" + strings.Repeat("x", 4000), "", 404, "no-such-box"},
		{"GET", "/v1/boxes/..%2f..%2fetc", "", 404, "no-such-box"},
		{"GET", "/v1/boxes/%00", "", 404, "no-such-box"},
		{"DELETE", "/v1/boxes/no-such", "", 404, "no-such-box"},
		{"POST", "/v1/boxes/no-such/signal", `{"sig":"TERM"}`, 404, "no-such-box"},
		{"POST", signal, ``, 400, "usage"},
		{"POST", signal, `{`, 400, "usage"},
		{"POST", signal, `[]`, 400, "usage"},
		{"POST", signal, `"TERM"`, 400, "usage"},
		{"POST", signal, `{"sig":9}`, 400, "usage"},
		{"POST", signal, `{"sig":"SEGV"}`, 400, "usage"},
		{"POST", signal, `{"sig":"term"}`, 400, "usage"},
		{"POST", signal, `{"sig":""}`, 400, "usage"},
		{"POST", signal, `{"sig":"TERM","pid":1}`, 400, "usage"},
		{"POST", signal, `{"sig":"` + strings.Repeat("x", 1<<20) + `"}`, 400, "usage"},
		{"GET", "/", "", 404, "no-such-route"},
		{"GET", "/v1", "", 404, "no-such-route"},
		{"GET", "/api/cloud/box/", "", 404, "no-such-route"},
		{"GET", "/v1/boxes/" + id + "/signal", "", 404, "no-such-route"},
		{"POST", "/api/cloud/box", "{}", 404, "no-such-route"},
		{"DELETE", "/v1/boxes", "", 404, "no-such-route"},
		{"PUT", "/v1/boxes/" + id, "{}", 404, "no-such-route"},
		{"GET", "/v1/selfcheck", "", 404, "no-such-route"},
		{"GET", "/v1/report?nonce=short", "", 400, "usage"},
		{"GET", "/v1/report?nonce=", "", 400, "usage"},
		{"GET", "/v1/report?nonce=aaaaaaaaaaaaaaaa&nonce=aaaaaaaaaaaaaaaa", "", 400, "usage"},
		{"GET", "/v1/report?key=x", "", 400, "usage"},
		{"POST", "/v1/report", "{}", 404, "no-such-route"},
	} {
		status, answer := p.api(c.method, c.path, c.body)
		var fault struct{ Code, Message, Hint string }
		json.Unmarshal([]byte(answer), &fault)
		if status != c.status || c.code != "" && (fault.Code != c.code || fault.Message == "" || fault.Hint == "") {
			t.Errorf("%s %.60s %.40q: %d %.200s, want %d %s", c.method, c.path, c.body, status, answer, c.status, c.code)
		}
	}
	// Positive controls: the box is there, can be signalled, and noticed nothing.
	if status, answer := p.api("GET", "/v1/boxes/"+id, ""); status != 200 || !strings.Contains(answer, id) {
		t.Errorf("the box itself: %d %s", status, answer)
	}
	if status, answer := p.api("POST", signal, `{"sig":"CONT"}`); status != 200 {
		t.Errorf("a signal: %d %s", status, answer)
	}
	if status, answer := p.api("POST", signal, `{"sig":"TERM"}`); status != 200 {
		t.Errorf("a signal: %d %s", status, answer)
	}
	if code := rig.Code(cmd.Wait()); code != 143 {
		t.Errorf("the box ended with %d", code)
	}
}

// Everybody who wants a box to end gets an answer, and it is gone when they
// have it.
func TestFiftyAtOnceEndOneBox(t *testing.T) {
	p := newPlace(t)
	p.serve()
	m := mark(t)
	cmd, out := start(t, p.botbox(nil, "run", "--", "sh", "-c", "trap '' TERM; echo up; sleep 300; : "+m))
	line(t, out)
	id := p.listed()[0].ID
	var all sync.WaitGroup
	statuses := make(chan int, 50)
	for range 50 {
		all.Go(func() {
			status, _ := p.api("DELETE", "/v1/boxes/"+id, "")
			statuses <- status
		})
	}
	all.Wait()
	close(statuses)
	seen := map[int]int{}
	for status := range statuses {
		seen[status]++
	}
	if seen[200] == 0 || seen[200]+seen[404] != 50 {
		t.Errorf("answers: %v", seen)
	}
	if code := rig.Code(cmd.Wait()); code != 137 || len(marked(t, m)) != 0 {
		t.Errorf("the box ended with %d; %d processes of it live", code, len(marked(t, m)))
	}
}

// Another user does not get to the sockets; should a folder ever be too open,
// the kernel's word on who is calling closes them all the same.
func TestTheSocketsAreTheUsersOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, to become another user")
	}
	p := newPlace(t)
	p.serve()
	socket := filepath.Join(p.run, "api.sock")
	as := func(user string, argv ...string) rig.Output {
		cmd := p.botbox(nil)
		cmd.SysProcAttr.Credential = nil
		cmd.Path, cmd.Dir = "/usr/bin/setpriv", "/"
		cmd.Args = append([]string{"setpriv", "--reuid", user, "--clear-groups", "--"}, argv...)
		return rig.Run(t, cmd)
	}
	curl := []string{"curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket", socket, "http://worker/v1/boxes"}
	run := []string{filepath.Join(p.bin, "botbox"), "run", "--cwd", p.work, "--", "echo", "ran"}
	if out := as("maus", curl...); out.Stdout != "200" {
		t.Fatalf("positive control, the worker's own user: %+v", out)
	}
	if out := as("nobody", curl...); out.Code != 7 { // could not connect
		t.Errorf("another user reaches the socket: %+v", out)
	}
	ps := []string{filepath.Join(p.bin, "botbox"), "ps"}
	if out := as("maus", ps...); out.Code != 0 {
		t.Fatalf("positive control, the worker's own user: %+v", out)
	}
	// It is there: who is not let in must not hear that none is.
	if out := as("nobody", ps...); out.Code != 100 || !strings.Contains(out.Stderr, "is closed to user") || strings.Contains(out.Stderr, "no worker answers") {
		t.Errorf("another user: %+v", out)
	}
	for _, path := range []string{p.top, p.run, p.work} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"api.sock", "lease.sock"} {
		if err := os.Chmod(filepath.Join(p.run, name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, method := range []string{"GET", "DELETE"} {
		for _, path := range []string{"/v1/boxes", "/v1/boxes/x", "/api/cloud/box"} {
			out := as("nobody", append(curl[:len(curl)-1:len(curl)-1], "-X", method, fmt.Sprint("http://worker", path))...)
			if out.Stdout != "403" {
				t.Errorf("%s %s by another user: %+v", method, path, out)
			}
		}
	}
	if out := as("nobody", run...); out.Code != 100 || strings.Contains(out.Stdout, "ran") || !strings.Contains(out.Stderr, "reason: not-yours") {
		t.Errorf("a lease for another user: %+v", out)
	}
	if out := as("maus", run...); out.Stdout != "ran\n" {
		t.Errorf("positive control, a lease for the worker's own user: %+v", out)
	}
}
