package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// raw sends each line of its stdin, in which | stands for a line break, to the
// egress gate as it is, and prints the first line of the answer.
const raw = `
while IFS= read -r request; do
	exec 3<>/dev/tcp/127.0.0.1/3128
	printf '%s' "$request" | tr '|' '\n' | sed 's/$/\r/' >&3
	IFS= read -r -t 20 status <&3 || status="no answer"
	echo "${status%?}"
	exec 3>&- 3<&-
done`

// ask sends raw requests from one box and gives the status of each.
func (p *place) ask(env []string, run []string, requests []string) []string {
	p.t.Helper()
	cmd := p.botbox(env, with(run, "--", "bash", "-c", raw)...)
	cmd.Stdin = strings.NewReader(strings.Join(requests, "\n") + "\n")
	out := rig.Run(p.t, cmd)
	answers := strings.Split(strings.TrimSpace(out.Stdout), "\n")
	if len(answers) != len(requests) {
		p.t.Fatalf("%d answers to %d requests: %+v", len(answers), len(requests), out)
	}
	for i, a := range answers {
		words := strings.Fields(a + " none none")
		answers[i] = words[1]
	}
	return answers
}

// Spellings of this machine, of the cloud's metadata service and of private
// networks, by CONNECT and by absolute URI. Not one connection may come of
// them.
func TestBug_fak2696_oryxos126_lionagi1125_AddressSpellings(t *testing.T) {
	server := newFixture(t)
	p := newPlace(t)
	port := server.port()
	hosts := strings.Fields(`
		127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.0.0.1 0177.0.0.1 0177.0.0.01 017700000001 127.0.0.1. 0.0.0.0 0 127.255.255.254
		[::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b::7f00:1] [2002:7f00:1::] [0:0:0:0:0:0:0:1] [::1%25lo] [fe80::1] [fec0::1]
		localhost LOCALHOST localhost. x.localhost
		169.254.169.254 2852039166 0xa9fea9fe 0251.0376.0251.0376 169.254.43518 [::ffff:169.254.169.254] [::ffff:a9fe:a9fe] [64:ff9b::a9fe:a9fe] [fd00:ec2::254] 100.100.100.200 168.63.129.16 192.0.0.192 metadata.google.internal
		10.0.0.1 172.16.0.1 192.168.0.1 100.64.0.1 198.18.0.1 224.0.0.1 255.255.255.255 [fdaa::1] [ff02::1] 127.0.0.1@example.com %31%32%37.0.0.1 127。0。0。1`)
	var requests []string
	for _, h := range hosts {
		requests = append(requests, fmt.Sprintf("CONNECT %s:%s HTTP/1.1|Host: x||", h, port), fmt.Sprintf("GET http://%[1]s:%[2]s/ HTTP/1.1|Host: %[1]s:%[2]s||", h, port))
	}
	for i, status := range p.ask(nil, []string{"run", "--standalone"}, requests) {
		if status != "400" && status != "403" {
			t.Errorf("%s: %s", requests[i], status)
		}
	}
	if n := server.hits.Load(); n != 0 {
		t.Errorf("the server was reached %d times", n)
	}
	control := p.ask([]string{"OMB_EGRESS_EXCEPT=127.0.0.1:" + port}, []string{"run", "--standalone"}, requests[:2])
	if control[0] != "200" || control[1] != "200" || server.hits.Load() == 0 {
		t.Errorf("positive control, excepted: %v", control)
	}
}

func TestBug_VSCodroid13_Authorities(t *testing.T) {
	p := newPlace(t)
	requests := []string{
		"CONNECT [::1]:443 HTTP/1.1|Host: x||", "CONNECT [fdaa::1]:443 HTTP/1.1|Host: x||", // whole, and refused by address
		"CONNECT ::1:443 HTTP/1.1|Host: x||", "CONNECT [::1 HTTP/1.1|Host: x||", "CONNECT [::1]443 HTTP/1.1|Host: x||", "CONNECT x HTTP/1.1|Host: x||",
		"CONNECT x: HTTP/1.1|Host: x||", "CONNECT :443 HTTP/1.1|Host: x||", "CONNECT x:0 HTTP/1.1|Host: x||", "CONNECT x:65536 HTTP/1.1|Host: x||",
		"CONNECT x:-1 HTTP/1.1|Host: x||", "CONNECT x:4 43 HTTP/1.1|Host: x||", "CONNECT x:http HTTP/1.1|Host: x||", "CONNECT u@x:443 HTTP/1.1|Host: x||",
		"CONNECT http://x:443 HTTP/1.1|Host: x||", "GET / HTTP/1.1|Host: x||", "hello||",
	}
	for i, status := range p.ask(nil, []string{"run", "--standalone"}, requests) {
		want := "400"
		if i < 2 {
			want = "403"
		}
		if status != want {
			t.Errorf("%q: %s, want %s", requests[i], status, want)
		}
	}
}

// A plain http:// request goes through the gate, and nothing of the hop does.
func TestBug_OpenShell155_sbx289_PlainHTTP(t *testing.T) {
	seen := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		io.WriteString(w, r.Method+" "+r.RequestURI)
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	p := newPlace(t)
	out := rig.Run(t, p.botbox([]string{"OMB_EGRESS_EXCEPT=" + address}, "run", "--standalone", "--", "sh", "-c",
		`curl -sS --noproxy '' -x "$http_proxy" -H 'Proxy-Authorization: canary' -H 'Proxy-Connection: keep-alive' -H 'Connection: X-Hop' -H 'X-Hop: canary' -H 'X-End: kept' "$1/a?b=c"`, "sh", server.URL))
	if out.Stdout != "GET /a?b=c" {
		t.Fatalf("%+v", out)
	}
	h := <-seen
	if h.Get("X-End") != "kept" || h.Get("X-Hop") != "" || h.Get("Proxy-Authorization") != "" || h.Get("Proxy-Connection") != "" {
		t.Errorf("the server saw %v", h)
	}
}

// Absent, empty and unreadable lists are three things, a host is allowed at
// the ports that are named, and nothing that is not named comes with it.
func TestBug_agentbrowser1902_sandboxruntime274_AllowLists(t *testing.T) {
	one, other := newFixture(t), newFixture(t)
	p := newPlace(t)
	p.serve("OMB_EGRESS_EXCEPT=127.0.0.1:" + one.port() + ",127.0.0.1:" + other.port())
	get := func(f *fixture) string {
		return "GET http://127.0.0.1:" + f.port() + "/ HTTP/1.1|Host: 127.0.0.1:" + f.port() + "||"
	}
	for _, c := range []struct {
		allow string // in the spec
		want  [2]string
	}{
		{``, [2]string{"200", "200"}},
		{`,"net":{"egress":{"allow":[]}}`, [2]string{"403", "403"}},
		{`,"net":{"egress":{"allow":["127.0.0.1:` + one.port() + `"]}}`, [2]string{"200", "403"}},
		{`,"net":{"egress":{"allow":["example.com"]}}`, [2]string{"403", "403"}},
	} {
		spec := filepath.Join(p.top, "spec.json")
		rig.Write(t, spec, `{"argv":["bash","-c",`+strconv.Quote(raw)+`],"cwd":"`+p.work+`"`+c.allow+`}`)
		cmd := p.botbox(nil, "run", "--spec", spec)
		cmd.Stdin = strings.NewReader(get(one) + "\n" + get(other) + "\n")
		out := rig.Run(t, cmd)
		words := strings.Fields(out.Stdout)
		var got [2]string
		for i, w := range words {
			if w == "HTTP/1.1" && len(words) > i+1 {
				got[0], got[1] = got[1], words[i+1]
			}
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v; %+v", c.allow, got, c.want, out)
		}
	}
	for _, wrong := range []string{"", ",", "*", "a b", "http://x", "x:y", "x:0"} {
		out := rig.Run(t, p.botbox(nil, "run", "--allow-host", wrong, "--", "echo", "ran"))
		if out.Code != 100 || out.Stdout != "" || !strings.Contains(out.Stderr, "net.egress.allow") {
			t.Errorf("--allow-host %q: %+v", wrong, out)
		}
	}
}

// A server on the host's loopback is reached by its own exception only: no
// name, no neighbour port, no direct connection.
func TestBug_claudecode65482_fence128_HostLoopback(t *testing.T) {
	excepted, neighbour := newFixture(t), newFixture(t)
	p := newPlace(t)
	out := rig.Run(t, p.botbox([]string{"OMB_EGRESS_EXCEPT=127.0.0.1:" + excepted.port()}, "run", "--standalone", "--", "sh", "-c", `
		try() { curl -s -o /dev/null -w '%{http_code} ' --noproxy "$1" -x "$http_proxy" "$2"; }
		try '' "$1"; try '' "$2"; try '*' "$1"; try '*' "$2"`, "sh", excepted.URL, neighbour.URL))
	if out.Stdout != "200 403 000 000 " || neighbour.hits.Load() != 0 || excepted.hits.Load() != 1 {
		t.Errorf("%+v; asked %d and %d times", out, excepted.hits.Load(), neighbour.hits.Load())
	}
}

// A host that is allowed must not get into NO_PROXY: clients would dial it
// themselves, and fail.
func TestBug_nono760_NoProxy(t *testing.T) {
	p := newPlace(t)
	out := rig.Run(t, p.botbox([]string{"NO_PROXY=example.com,*", "no_proxy=*"}, "run", "--standalone", "--allow-host", "example.com", "--", "sh", "-c", `echo $NO_PROXY $no_proxy`))
	if out.Stdout != "localhost,127.0.0.1,::1 localhost,127.0.0.1,::1\n" {
		t.Errorf("%+v", out)
	}
}

// A program that ignores the proxy, and one that asks for a name, fail at once
// and do not hang.
func TestBug_commandcode625_greywall83_DirectWays(t *testing.T) {
	p := newPlace(t)
	connector := filepath.Join(p.top, "connector")
	if err := rig.Compile(connector, "./testbed/connector", "rig"); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"192.0.2.1:80", "[2001:db8::1]:80", "1.1.1.1:443"} {
		out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--ro", connector, "--", connector, address))
		if out.Code == 0 || !strings.Contains(out.Stderr, "unreachable") && !strings.Contains(out.Stderr, "cannot assign") {
			t.Errorf("%s: %+v", address, out)
		}
	}
	// 124 is timeout's own: a resolver that waits does so for five seconds and more.
	out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--", "sh", "-c", "timeout 3 getent hosts www.example.com; echo $?; getent hosts localhost >/dev/null; echo $?"))
	if out.Stdout != "2\n0\n" {
		t.Errorf("getent: %+v", out)
	}
}

// Clients that are killed in the middle of a transfer leave the gate neither a
// connection nor something to spin on.
func TestBug_claudecode85666_KilledTransfers(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, to count the files of a worker that is not dumpable")
	}
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for b := make([]byte, 64<<10); r.Context().Err() == nil; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(endless.URL, "http://"))
	p := newPlace(t)
	worker := p.settled("OMB_EGRESS_EXCEPT=" + host + ":" + port)
	_, out := start(t, p.botbox(nil, "run", "--", "bash", "-c", `
		echo up; while [ ! -e go ]; do sleep 0.02; done
		for i in $(seq `+strconv.Itoa(scaled(150, 60))+`); do
			curl -s -o fetched$((i % 10)) --noproxy '' -p -x "$http_proxy" "$1" & pids="$pids $!"
			if [ $((i % 10)) = 0 ]; then sleep 0.1; kill -9 $pids; pids=; fi
		done
		wait; if [ -n "$(cat fetched* | head -c 1 | tr '\0' x)" ]; then echo done; else echo nothing; fi; sleep 300`, "bash", endless.URL))
	line(t, out)
	before := p.footprint(worker)
	rig.Write(t, filepath.Join(p.work, "go"), "")
	if got := line(t, out); got != "done" {
		t.Fatalf("positive control: nothing was fetched: %q", got)
	}
	rig.Eventually(t, 10*time.Second, "the worker's files are back to what they were", func() bool { return p.footprint(worker).files <= before.files })
	begin := ticks(t, worker.Process.Pid)
	time.Sleep(500 * time.Millisecond)
	if used := ticks(t, worker.Process.Pid) - begin; used > 10 { // of 50 that one thread could use
		t.Errorf("the worker used %d ticks in half a second of nothing", used)
	}
}

// ticks is the processor time of a process, in hundredths of a second.
func ticks(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	words := strings.Fields(rest)
	user, _ := strconv.Atoi(words[11])
	system, _ := strconv.Atoi(words[12])
	return user + system
}

// An IPv6 address stands in NO_PROXY without brackets: httpx takes what is in
// brackets for a name and crashes at its import, curl does not match it.
func TestBug_basicmemory1541_NoProxyIsBare(t *testing.T) {
	const command = `cat >server.py <<'END'
import http.server, socket
class Server(http.server.HTTPServer): address_family = socket.AF_INET6
class Direct(http.server.BaseHTTPRequestHandler):
	def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b"direct\n")
	def log_message(self, *a): pass
Server(("::1", 8123), Direct).serve_forever()
END
		python3 server.py & server=$!
		while ! curl -s -o /dev/null --noproxy '*' 'http://[::1]:8123/'; do sleep 0.05; done
		ask() {
			curl -s 'http://[::1]:8123/' | head -1
			python3 -c 'import requests; print(requests.get("http://[::1]:8123/").text.splitlines()[0])'
			python3 -c 'import ipaddress, os
for e in os.environ["no_proxy"].split(","): e == "localhost" or ipaddress.ip_address(e)
print("all are addresses")' 2>&1 | tail -1
		}
		ask; export NO_PROXY='[::1]' no_proxy='[::1]'; echo in brackets; ask; kill $server`
	ways(t, func(t *testing.T, p *place, run []string) {
		out := rig.Run(t, p.botbox([]string{"PATH=/usr/bin:/bin"}, with(run, "--", "sh", "-c", command)...))
		bare, brackets, _ := strings.Cut(out.Stdout, "in brackets\n")
		if bare != "direct\ndirect\nall are addresses\n" {
			t.Errorf("%q: %s", bare, out.Stderr)
		}
		if strings.Contains(brackets, "all are addresses") || strings.Count(brackets, "direct\n") == 2 {
			t.Errorf("positive control: in brackets it works as well: %q", brackets)
		}
	})
}
