package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/openmausbot/botbox/testbed/internet"
	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

const (
	vendorName = "vendor." + internet.Domain
	vendorKey  = keyHalfA + keyHalfB
)

// recorder is a host that writes down what it is sent, and may say it back.
type recorder struct {
	mu   sync.Mutex
	seen []string
}

func (v *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	v.mu.Lock()
	v.seen = append(v.seen, fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.Host, " ", r.Header, " ", string(body)))
	v.mu.Unlock()
	if r.URL.Path == "/echo" {
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		fmt.Fprintf(w, "you sent %s, and in base64 %s\n", r.Header.Get("Authorization"), base64.StdEncoding.EncodeToString([]byte("x"+vendorKey+"x")))
		return
	}
	if strings.HasPrefix(r.URL.Path, "/x.git") && r.Header.Get("Authorization") == "" { // git waits for it
		w.Header().Set("Www-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}
	fmt.Fprintln(w, "hello from "+r.Host)
}

// take gives what was seen since the last time.
func (v *recorder) take() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen := v.seen
	v.seen = nil
	return seen
}

// A key whose programs know no other address than the vendor's, in a real box
// and the test's own internet: it reaches the vendor, and is nowhere in the box.
func TestADeclaredHostInABox(t *testing.T) {
	needsRoot(t)
	node := ""
	if os.Getenv("BOTBOX_TEST_OUTER_NETNS") == "" {
		_, node = install(t, "node") // before there is no network
		t.Setenv("BOTBOX_TEST_NODE", node)
	}
	if !gatetest.Inside(t) {
		return
	}
	node = os.Getenv("BOTBOX_TEST_NODE")
	nodeDir, _, _ := strings.Cut(node, "/node_modules/")
	w := newWeb(t)
	vendor, other := &recorder{}, &recorder{}
	w.net.Handle("vendor", vendor)
	w.net.Handle("other", other)
	root := filepath.Join(w.public, "root.pem")
	// Trusted by the worker, as by a machine that has it among its roots.
	w.serve("SSL_CERT_FILE="+root, "OMB_LOG=text")
	sweeper := filepath.Join(w.public, "sweeper")
	if err := rig.Compile(sweeper, "./testbed/sweeper", "rig"); err != nil {
		t.Fatal(err)
	}
	run := func(more, command string, args ...string) rig.Output {
		t.Helper()
		argv, _ := json.Marshal(append([]string{"sh", "-c", command, "sh"}, args...))
		file := filepath.Join(w.top, "spec.json")
		rig.Write(t, file, fmt.Sprintf(`{"argv":%s,"cwd":%q,"paths":{"ro":[%q,%q]},"env":{"XAI_API_KEY":%q,"PATH":"/usr/bin:/bin"},"broker":{"hosts":[{"env":"XAI_API_KEY","hosts":[%q]}]}%s}`,
			argv, w.work, w.public, nodeDir, vendorKey, vendorName, more))
		return rig.Run(t, w.botbox(nil, "run", "--json", "--spec", file))
	}
	url := "https://" + vendorName

	// Clients with TLS of their own, each by its own trust setting.
	for name, c := range map[string]string{
		"curl":  `curl -sS -H "Authorization: Bearer $XAI_API_KEY" -d hello $1/v1/chat`,
		"basic": `curl -sS -u "user:$XAI_API_KEY" -d hello $1/v1/chat`,
		"node":  node + ` -e 'fetch(process.argv[1] + "/v1/chat", {method: "POST", body: "hello", headers: {authorization: "Bearer " + process.env.XAI_API_KEY}}).then(r => r.text()).then(s => process.stdout.write(s))' $1`,
		"python": `python3 -c '
import os, sys, urllib.request
r = urllib.request.Request(sys.argv[1] + "/v1/chat", b"hello", {"x-api-key": os.environ["XAI_API_KEY"]})
sys.stdout.write(urllib.request.urlopen(r).read().decode())' $1`,
		"go":  w.public + `/fetcher $1/v1/models?key=$XAI_API_KEY`,
		"git": `git ls-remote "https://u:$XAI_API_KEY@${1#https://}/x.git" 2>&1 | head -0; echo hello from ${1#https://}`,
	} {
		out := run("", c, url)
		if out.Code != 0 || !strings.Contains(out.Stdout, "hello") {
			t.Errorf("%s: %+v", name, out)
		}
		seen := vendor.take()
		if len(seen) == 0 {
			t.Errorf("%s: nothing came", name)
		}
		keyed := 0
		for _, s := range seen {
			n := strings.Count(s, vendorKey) + strings.Count(s, base64.StdEncoding.EncodeToString([]byte("user:"+vendorKey))) +
				strings.Count(s, base64.StdEncoding.EncodeToString([]byte("u:"+vendorKey)))
			keyed += n
			if n > 1 || strings.Contains(s, "omb_") || !strings.Contains(s, vendorName) {
				t.Errorf("%s: %d keys in %s", name, n, s)
			}
		}
		if keyed == 0 {
			t.Errorf("%s: no key in %v", name, seen)
		}
	}

	// The answer names the host, and the variable is raw nowhere.
	out := run("", fmt.Sprintf("env; %s %s %s /etc /run /tmp /dev/shm .; curl -sS -H \"Authorization: Bearer $XAI_API_KEY\" -i $1/echo; ls -l /run/botbox; echo x >>$SSL_CERT_FILE", sweeper, keyHalfA, keyHalfB), url)
	if !strings.Contains(out.Stderr, `"intercepted":["`+vendorName+`"]`) || !strings.Contains(out.Stderr, `"unbrokered":[]`) || strings.Contains(out.Stderr, vendorKey) {
		t.Errorf("the answer: %s", out.Stderr)
	}
	if !strings.Contains(out.Stdout, "XAI_API_KEY=omb_t0_") || !strings.Contains(out.Stdout, "swept") || strings.Contains(out.Stdout, "found in") || strings.Contains(out.Stdout, vendorKey) {
		t.Errorf("in the box: %+v", out)
	}
	if strings.Count(out.Stdout, "omb_redacted_") < 3 || !strings.Contains(out.Stdout, "you sent Bearer ") || !strings.Contains(out.Stderr, "Read-only file system") && !strings.Contains(out.Stderr, "Permission denied") {
		t.Errorf("the echo, or the roots: %+v", out)
	}
	if seen := vendor.take(); len(seen) != 1 || strings.Count(seen[0], vendorKey) != 1 {
		t.Errorf("control: the echoing host saw %v", seen)
	}

	// Another host: its own certificate is what the box sees, and no key.
	issuer := `curl -sSv -H "Authorization: Bearer $XAI_API_KEY" $1/ 2>&1 | sed -n 's/^\* *issuer: //p'`
	if out := run("", issuer, "https://other."+internet.Domain); strings.TrimSpace(out.Stdout) != "CN=test root" {
		t.Errorf("another host: %+v", out)
	}
	if seen := other.take(); len(seen) != 1 || strings.Contains(seen[0], vendorKey) || !strings.Contains(seen[0], "Bearer omb_t0_") {
		t.Errorf("another host saw %v", seen)
	}
	if out := run("", issuer, url); strings.TrimSpace(out.Stdout) != "CN=botbox, this box only" {
		t.Errorf("control, the declared one: %+v", out)
	}
	vendor.take()

	// Ways out of it. 0 is a connection that was refused before any request.
	hits := func() int { return len(vendor.take()) + len(other.take()) }
	for name, c := range map[string]struct{ command, want string }{
		"another Host":      {`$C -H "Host: other.example.com" $1/`, "421"},
		"absolute form":     {`$C --request-target "https://other.example.com/" $1/`, "400"},
		"another SNI":       {`$C -k --connect-to other.example.com:443:vendor.example.com:443 https://other.example.com/`, "000"},
		"in clear":          {`$C http://vendor.example.com/`, "403"},
		"a stranger's key":  {`curl -s -o /dev/null -w '%{http_code}' -H "X-Api-Key: sk-stranger" $1/`, "403"},
		"in a longer text":  {`$C -H "X-Hook: https://other.example.com/$XAI_API_KEY" $1/`, "400"},
		"in the path":       {`$C $1/$XAI_API_KEY`, "400"},
		"allow list":        {`curl -s -o /dev/null -w '%{http_connect}' $1/`, "403"},
		"closed port":       {`curl -s -o /dev/null -w '%{http_connect}' $1/`, "403"},
		"spent bytes":       {`curl -s -o /dev/null -w '%{http_connect}%{http_code}' $1/`, "200000"},
		"a private address": {`$C $1/`, "502"},
	} {
		more := map[string]string{
			"allow list": `,"net":{"egress":{"allow":["other.example.com"]}}`, "closed port": `,"net":{"egress":{"ports":[80]}}`, "spent bytes": `,"net":{"egress":{"max_bytes":100}}`,
			"a private address": `,"net":{"egress":{"deny":["` + gatetest.Far4 + `","[` + gatetest.Far6 + `]"]}}`,
		}[name]
		out := run(more, `C="curl -s -o /dev/null -w %{http_code} -H Authorization:$XAI_API_KEY"; `+c.command, url)
		if n := hits(); out.Stdout != c.want || n != 0 {
			t.Errorf("%s: %+v, want %s; %d requests arrived", name, out, c.want, n)
		}
	}
	if out := run(`,"net":{"egress":{"allow":["`+vendorName+`"],"ports":[443],"max_bytes":100000}}`, `curl -sS $1/`, url); out.Stdout != "hello from "+vendorName+"\n" {
		t.Errorf("control, within all lists: %+v", out)
	}
	vendor.take()

	// A token of another box: refused, and reported stolen.
	line := run("", `echo $XAI_API_KEY`)
	if got := run("", `curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $2" $1/`, url, strings.TrimSpace(line.Stdout)); got.Stdout != "403" || hits() != 0 {
		t.Errorf("another box's token: %+v", got)
	}
	rep := rig.Run(t, w.botbox(nil, "report", "--json"))
	if !strings.Contains(rep.Stdout, `"stolen":1`) || !strings.Contains(rep.Stdout, `"intercepted":["`+vendorName+`"]`) {
		t.Errorf("the report: %+v", rep)
	}
	if logs := rig.Run(t, w.botbox(nil, "logs", "--json")); !strings.Contains(logs.Stdout, `"intercepted"`) {
		t.Errorf("no decision says so: %+v", logs)
	}

	// By flags, with a worker and without, and with roots of the caller's own:
	// overruled, and said.
	for _, way := range [][]string{{"run"}, {"run", "--standalone"}} {
		out = rig.Run(t, w.botbox([]string{"XAI_API_KEY=" + vendorKey, "SSL_CERT_FILE=" + root}, with(way, "--ro", w.public, "--broker-host", "XAI_API_KEY="+vendorName, "--", "sh", "-c",
			`curl -sS -H "Authorization: Bearer $XAI_API_KEY" `+url+`/v1`)...))
		if out.Stdout != "hello from "+vendorName+"\n" || !strings.Contains(out.Stderr, "SSL_CERT_FILE is overruled") || !strings.Contains(out.Stderr, "the TLS to "+vendorName+" ends at the broker") {
			t.Errorf("%v, by flags: %+v", way, out)
		}
		if seen := vendor.take(); len(seen) != 1 || strings.Count(seen[0], vendorKey) != 1 {
			t.Errorf("%v, by flags: the vendor saw %v", way, seen)
		}
	}
	for _, wrong := range []string{"XAI_API_KEY=*.example.com", "ABSENT_KEY=a.example.com", "PATH=a.example.com", "XAI_API_KEY", "XAI_API_KEY="} {
		if out := rig.Run(t, w.botbox([]string{"XAI_API_KEY=" + vendorKey}, "run", "--broker-host", wrong, "--", "echo", "ran")); out.Code != 100 || out.Stdout != "" {
			t.Errorf("%s: %+v", wrong, out)
		}
	}
}
