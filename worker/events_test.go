package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// event is what a reader of the interface sees of one.
type event struct {
	Seq                                uint64
	Event, Box, Verdict, Method, Class string
	Host                               string
	Port, Status                       int
	Up, Down                           int64
	Ms                                 float64
	Code                               *int
	Reason, End                        string
	Dropped                            uint64
}

func readEvents(t *testing.T, text string) (all []event) {
	t.Helper()
	for _, l := range strings.Split(strings.TrimSpace(text), "\n") {
		var e event
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		all = append(all, e)
	}
	return all
}

// Every decision is one line with what an operator needs, and nothing that a
// URL can hold. Refusals stand in the journal, too; what was let through only
// where OMB_LOG asks for it.
func TestEveryDecisionIsAnEvent(t *testing.T) {
	server := &fixture{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "read")
	}))}
	defer server.Close()
	for _, log := range []string{"text", "text+debug"} {
		t.Run(log, func(t *testing.T) {
			p := newPlace(t)
			cmd := p.botbox([]string{"OMB_EGRESS_EXCEPT=127.0.0.1:" + server.port(), "OMB_LOG=" + log, "OMB_PORT=" + server.port()}, "serve")
			stderr := &strings.Builder{}
			cmd.Stderr = stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			stop := func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() }
			defer stop()
			rig.Eventually(t, 10*time.Second, "the worker listens", p.listens)
			out := rig.Run(t, p.botbox(nil, "run", "--spec", p.specFile(`{"deny":["denied.example"]}`, `
				curl -s -o /dev/null --noproxy '' -x "$http_proxy" "http://user-canary:pass-canary@127.0.0.1:$1/path-canary?query-canary"
				curl -s -o /dev/null --noproxy '' -x "$http_proxy" -d body-canary "http://127.0.0.1:$1/path-canary?query-canary" -H 'Authorization: Bearer token-canary'
				curl -s -o /dev/null -p --noproxy '' -x "$http_proxy" "http://127.0.0.1:$1/path-canary"
				curl -s -o /dev/null --noproxy '' -x "$http_proxy" "http://Denied.Example/path-canary"
				curl -s -o /dev/null -H 'Authorization: Bearer token-canary' "http://127.0.0.1:$1/api/internal/path-canary?query-canary"
				curl -s -o /dev/null "http://127.0.0.1:$1/api/path-canary"
				exit 3`, server.port())))
			if out.Code != 3 {
				t.Fatalf("%+v", out)
			}
			refused := rig.Run(t, p.botbox(nil, "run", "--rw", "/srv/no-such-folder", "--", "true"))
			if refused.Code != 100 {
				t.Fatalf("%+v", refused)
			}
			text := rig.Run(t, p.botbox(nil, "logs", "--json")).Stdout
			if strings.Contains(text, "canary") {
				t.Errorf("a URL's secrets are among the events:\n%s", text)
			}
			all := readEvents(t, text)
			var got []string
			for i, e := range all {
				if e.Seq != uint64(i)+1 {
					t.Errorf("the event %d is the %d.", e.Seq, i+1)
				}
				words := []string{e.Event}
				if e.Verdict != "" {
					words = append(words, e.Verdict, e.Method, e.Class, e.Host, strconv.Itoa(e.Port), strconv.Itoa(e.Status), strconv.FormatInt(e.Up, 10))
				}
				if e.Verdict != "" && (e.Ms <= 0 || e.Box != all[0].Box || (e.Verdict == "allowed") != (e.Down > 0)) {
					t.Errorf("%+v", e)
				}
				if e.Event == "box-ended" && (e.Code == nil || *e.Code != 3 || e.End != "exited") || e.Event == "box-refused" && e.Reason != "path_refused" {
					t.Errorf("%+v", e)
				}
				got = append(got, strings.Join(words, " "))
			}
			port := server.port()
			want := []string{
				"box-started", "box-ended", "box-refused",
				"gate-allowed allowed http loopback 127.0.0.1 " + port + " 200 0",
				"gate-allowed allowed http loopback 127.0.0.1 " + port + " 200 11", "gate-allowed allowed connect loopback 127.0.0.1 " + port + " 200 " + tunnelled(got),
				"gate-refusal refused http denied denied.example 80 403 0",
				"gate-allowed allowed harness harness  0 200 0", "gate-refusal refused harness path  0 403 0",
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			mine := readEvents(t, rig.Run(t, p.botbox(nil, "logs", "--json", "--box", all[0].Box)).Stdout)
			if len(mine) != len(all)-1 { // the refused one has no box
				t.Errorf("%d events of %d are the box's", len(mine), len(all))
			}
			stop()
			if n := strings.Count(stderr.String(), "event=gate-refusal"); n < 2 {
				t.Errorf("%d refusals are in the log", n)
			}
			if has := strings.Contains(stderr.String(), "event=gate-allowed"); has != (log == "text+debug") {
				t.Errorf("what was let through is in the log: %v", has)
			}
			if strings.Contains(stderr.String(), "canary") {
				t.Errorf("%s", stderr)
			}
		})
	}
}

// tunnelled gives the bytes that the one tunnel took up: a request's head of
// curl's own making.
func tunnelled(got []string) string {
	for _, l := range got {
		if words := strings.Fields(l); len(words) > 2 && words[2] == "connect" {
			return words[len(words)-1]
		}
	}
	return "none"
}

// stream opens GET /v1/events with a query and gives its lines.
func (p *place) stream(query string) (*bufio.Scanner, func()) {
	p.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(p.run, "api.sock"))
	}}}
	resp, err := client.Get("http://worker/v1/events?" + query)
	if err != nil {
		p.t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		p.t.Fatalf("%s, %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return lines, func() { resp.Body.Close() }
}

// A reader that follows gets an event when it happens. One that does not read
// holds nobody up, and is told how many it lost; so is one that comes late.
func TestFollowingEvents(t *testing.T) {
	server := newFixture(t)
	p := newPlace(t)
	p.serve("OMB_EGRESS_EXCEPT=127.0.0.1:" + server.port())
	live, done := p.stream("follow=1&box=box_b")
	defer done()
	slow, done := p.stream("follow=1")
	defer done()
	follow, text := start(t, p.botbox(nil, "logs", "-f"))
	// More than the ring holds, and far more than a socket does.
	const many = 12000
	run := func(id string, n int) {
		t.Helper()
		name := filepath.Join(p.top, id+".json")
		rig.Write(t, name, `{"id":"`+id+`","argv":["bash","-c",`+strconv.Quote(`
			exec 3<>/dev/tcp/127.0.0.1/3128
			(for ((i=0; i<`+strconv.Itoa(n)+`; i++)); do printf 'GET http://127.0.0.1:`+server.port()+`/ HTTP/1.1\r\nHost: 127.0.0.1:`+server.port()+`\r\n\r\n'; done >&3) &
			head -c $((`+strconv.Itoa(n)+` * 100)) <&3 >/dev/null; wait`)+`],"cwd":"`+p.work+`","env":{"PATH":"/usr/bin:/bin"}}`)
		if out := rig.Run(t, p.botbox(nil, "run", "--spec", name)); out.Code != 0 {
			t.Fatalf("%+v", out)
		}
	}
	run("box_a", many)
	run("box_b", 1)
	var seen []string
	for len(seen) < 3 && live.Scan() {
		e := readEvents(t, live.Text())[0]
		seen = append(seen, e.Event)
		if e.Box != "box_b" && e.Event != "dropped" {
			t.Errorf("%+v", e)
		}
	}
	slices.Sort(seen)
	if strings.Join(seen, " ") != "box-ended box-started gate-allowed" {
		t.Errorf("live: %v", seen)
	}
	for l := line(t, text); !strings.Contains(l, "box_b"); l = line(t, text) {
		if len(l) > 300 {
			t.Errorf("%q", l)
		}
	}
	follow.Process.Kill()
	// The late one: what the ring has, without a gap.
	lines, done := p.stream("")
	defer done()
	var first, last uint64
	n := 0
	for lines.Scan() {
		e := readEvents(t, lines.Text())[0]
		if n++; n == 1 {
			first = e.Seq
		} else if e.Seq != last+1 {
			t.Fatalf("%d after %d", e.Seq, last)
		}
		last = e.Seq
	}
	if n != 4096 || last < 2*4096 {
		t.Fatalf("%d events, from %d to %d", n, first, last)
	}
	late, done := p.stream("since=5")
	defer done()
	late.Scan()
	if e := readEvents(t, late.Text())[0]; e.Event != "dropped" || e.Dropped != first-1-5 || e.Seq != first-1 {
		t.Errorf("since 5: %+v, the first is %d", e, first)
	}
	future, done := p.stream("since=" + strconv.FormatUint(last+1000, 10))
	defer done()
	if future.Scan(); readEvents(t, future.Text())[0].Dropped != first-1 {
		t.Errorf("a number of another worker's: %s", future.Text())
	}
	// The slow one: every number once, in order, or counted as lost.
	var at, lost uint64
	for at < last && slow.Scan() {
		e := readEvents(t, slow.Text())[0]
		if e.Event == "dropped" {
			lost += e.Dropped
			at += e.Dropped
			continue
		}
		if e.Seq != at+1 {
			t.Fatalf("%d after %d", e.Seq, at)
		}
		at = e.Seq
	}
	if at != last || lost == 0 {
		t.Errorf("the slow reader is at %d of %d and lost %d", at, last, lost)
	}
}

func TestEventsRefuseABadQuery(t *testing.T) {
	p := newPlace(t)
	p.serve()
	for _, query := range []string{"follow=yes", "follow=1&follow=1", "since=x", "since=-1", "box=", "limit=1", "%zz"} {
		if status, answer := p.api("GET", "/v1/events?"+query, ""); status != 400 || !strings.Contains(answer, `"code":"usage"`) {
			t.Errorf("%s: %d %s", query, status, answer)
		}
	}
	if status, _ := p.api("POST", "/v1/events", ""); status != 404 && status != 405 {
		t.Errorf("POST: %d", status)
	}
	for _, args := range [][]string{{"logs", "x"}, {"logs", "--since"}} {
		if out := rig.Run(t, p.botbox(nil, args...)); out.Code != 100 || out.Stdout != "" {
			t.Errorf("%v: %+v", args, out)
		}
	}
	if out := rig.Run(t, newPlace(t).botbox(nil, "logs", "-f")); out.Code != 100 || !strings.Contains(out.Stderr, "reason: no-worker") {
		t.Errorf("without a worker: %+v", out)
	}
}

// A follower learns that its worker has ended.
func TestAFollowerOfAWorkerThatStops(t *testing.T) {
	p := newPlace(t)
	worker := p.serve()
	cmd, out := start(t, p.botbox(nil, "logs", "-f", "--json"))
	if o := rig.Run(t, p.botbox(nil, "run", "--", "true")); o.Code != 0 {
		t.Fatalf("%+v", o)
	}
	if !strings.Contains(line(t, out), "box-started") {
		t.Error("the first line is another one")
	}
	worker.Process.Signal(syscall.SIGTERM)
	io.Copy(io.Discard, out)
	if code := rig.Code(cmd.Wait()); code != 100 {
		t.Errorf("it ended with %d", code)
	}
}
