package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// fetch prints an answer's status, or that of a refused CONNECT, for each URL.
const fetch = `for url; do curl -s -o /dev/null -m 20 -w '%{http_code}/%{http_connect} ' --noproxy '' -x "$http_proxy" "$url"; done`

// specFile writes a spec of a shell command with what follows "net".
func (p *place) specFile(egress, command string, args ...string) string {
	p.t.Helper()
	argv, _ := json.Marshal(append([]string{"sh", "-c", command, "sh"}, args...))
	name := filepath.Join(p.top, "spec.json")
	rig.Write(p.t, name, `{"argv":`+string(argv)+`,"cwd":"`+p.work+`","env":{"PATH":"/usr/bin:/bin"},"net":{"egress":`+egress+`}}`)
	return name
}

// Each list of a box's own, in a real box, beside the machine's.
func TestABoxsOwnPolicy(t *testing.T) {
	one, other := newFixture(t), newFixture(t)
	p := newPlace(t)
	p.serve("OMB_EGRESS_EXCEPT=127.0.0.1:" + one.port() + ",127.0.0.1:" + other.port())
	for _, c := range []struct{ egress, want string }{
		{`{}`, "200/000 200/000 "},
		{`{"ports":[` + one.port() + `]}`, "200/000 403/000 "},
		{`{"ports":[]}`, "403/000 403/000 "},
		{`{"deny":["127.0.0.1:` + one.port() + `"]}`, "403/000 200/000 "},
		{`{"deny":["127.0.0.1"],"allow":["127.0.0.1"]}`, "403/000 403/000 "},
		{`{"deny":["a.example"],"profile":"public"}`, "200/000 200/000 "},
	} {
		out := rig.Run(t, p.botbox(nil, "run", "--spec", p.specFile(c.egress, fetch, one.URL, other.URL)))
		if out.Stdout != c.want {
			t.Errorf("%s: %+v, want %s", c.egress, out, c.want)
		}
	}
	for field, egress := range map[string]string{
		"net.egress.deny": `{"deny":["*"]}`, "net.egress.ports": `{"ports":[70000]}`, "net.egress.max_bytes": `{"max_bytes":-1}`, "net.egress.profile": `{"profile":"x"}`,
	} {
		out := rig.Run(t, p.botbox(nil, "run", "--spec", p.specFile(egress, "echo ran")))
		if out.Code != 100 || out.Stdout != "" || !strings.Contains(out.Stderr, field) || !strings.Contains(out.Stderr, "reason: bad_spec") {
			t.Errorf("%s: %+v", egress, out)
		}
	}
}

// The machine's lists, and an exception that is on none of them.
func TestTheMachinesPolicy(t *testing.T) {
	one, other := newFixture(t), newFixture(t)
	p := newPlace(t)
	except := "OMB_EGRESS_EXCEPT=127.0.0.1:" + one.port() + ",127.0.0.1:" + other.port()
	for setting, want := range map[string]string{
		"OMB_LOG=text": "200/000 200/000 ",
		"OMB_EGRESS_ALLOW=127.0.0.1:" + one.port():      "200/000 403/000 ",
		"OMB_EGRESS_ALLOW=*.example":                    "403/000 403/000 ",
		"OMB_EGRESS_PORTS=" + other.port():              "403/000 200/000 ",
		"OMB_EGRESS_PORTS= 443 , 80,25":                 "403/000 403/000 ",
		"OMB_EGRESS_PORTS=":                             "200/000 200/000 ", // as unset
		"OMB_EGRESS_ALLOW=":                             "200/000 200/000 ",
		"OMB_EGRESS_ALLOW=127.0.0.1, [2600::1]:443,x.y": "200/000 200/000 ",
	} {
		out := rig.Run(t, p.botbox([]string{except, setting}, "run", "--standalone", "--", "sh", "-c", fetch, "sh", one.URL, other.URL))
		if out.Stdout != want {
			t.Errorf("%s: %+v, want %s", setting, out, want)
		}
		// A box's list is no way round the machine's.
		out = rig.Run(t, p.botbox([]string{except, setting}, "run", "--standalone", "--allow-host", "127.0.0.1", "--", "sh", "-c", fetch, "sh", one.URL, other.URL))
		if out.Stdout != want {
			t.Errorf("%s, and a box that allows more: %+v, want %s", setting, out, want)
		}
	}
	for _, wrong := range []string{
		"OMB_EGRESS_ALLOW=,", "OMB_EGRESS_ALLOW=a,,b", "OMB_EGRESS_ALLOW=*", "OMB_EGRESS_ALLOW=http://canary", "OMB_EGRESS_ALLOW=canary:0",
		"OMB_EGRESS_PORTS=0", "OMB_EGRESS_PORTS=+80", "OMB_EGRESS_PORTS=080", "OMB_EGRESS_PORTS=65536", "OMB_EGRESS_PORTS=all,25", "OMB_EGRESS_PORTS=80-90",
		"OMB_EGRESS_EXCEPT=canary.example:80", "OMB_EGRESS_EXCEPT=127.0.0.1", "OMB_EGRESS_EXCEPT=127.0.0.1:0", "OMB_EGRESS_EXCEPT=[fe80::1%canary]:80", "OMB_EGRESS_EXCEPT=::1:80",
	} {
		name, _, _ := strings.Cut(wrong, "=")
		for _, verb := range [][]string{{"run", "--", "true"}, {"serve"}, {"why", "host", "a.example"}} {
			out := rig.Run(t, p.botbox([]string{wrong}, verb...))
			if out.Code != 100 || !strings.Contains(out.Stderr, name) || strings.Contains(out.Stderr, "canary") || !strings.Contains(out.Stderr, "reason: bad-setting") {
				t.Errorf("%s, %s: %+v", wrong, verb[0], out)
			}
		}
	}
}

// An exception is named in the report, one warning each, however it is spelt;
// so is the machine's policy.
func TestTheReportNamesExceptions(t *testing.T) {
	server := newFixture(t)
	p := newPlace(t)
	p.serve("OMB_EGRESS_EXCEPT=[::ffff:127.0.0.1]:"+server.port()+", 10.0.0.1:443", "OMB_EGRESS_ALLOW=127.0.0.1,*.Example.", "OMB_EGRESS_PORTS=443,"+server.port())
	if out := rig.Run(t, p.botbox(nil, "run", "--", "sh", "-c", fetch, "sh", server.URL)); out.Stdout != "200/000 " {
		t.Errorf("positive control: %+v", out)
	}
	status, answer := p.api("GET", "/api/cloud/box", "")
	var r struct {
		Warnings []string
		Egress   json.RawMessage
	}
	if err := json.Unmarshal([]byte(answer), &r); err != nil || status != 200 {
		t.Fatalf("%d, %v", status, err)
	}
	text := strings.Join(r.Warnings, "\n")
	for _, want := range []string{"OMB_EGRESS_EXCEPT lets every box reach 127.0.0.1:" + server.port() + " (loopback", "reach 10.0.0.1:443 (private"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("no warning %q in %q", want, r.Warnings)
		}
		if out := rig.Run(t, p.botbox(nil, "report")); strings.Count(out.Stdout, want) != 1 {
			t.Errorf("botbox report: %s", out.Stdout)
		}
	}
	want := `{"allow":["127.0.0.1","*.example"],"ports":[443,` + server.port() + `],"refuse":[25],"except":["127.0.0.1:` + server.port() + `","10.0.0.1:443"]}`
	if string(r.Egress) != want {
		t.Errorf("%s, want %s", r.Egress, want)
	}
}

// A box's bytes: what there is passes, then running connections end, and new
// ones are refused in words.
func TestABoxsByteBudget(t *testing.T) {
	var reached int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached++
		if r.URL.Path == "/quiet" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		for block := make([]byte, 64<<10); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	// curl -p opens a tunnel for plain http; 1 MB and a quiet one beside it.
	const command = `(curl -s --noproxy '' -x "$http_proxy" -m 50 "$1/quiet"; echo "quiet $?" >ended) & quiet=$!
		sleep 0.3
		curl -s -p --noproxy '' -x "$http_proxy" -m 50 "$1/" | wc -c
		wait $quiet; cat ended
		curl -s -w ' %{http_code} %header{X-Botbox-Refused}\n' --noproxy '' -x "$http_proxy" "$1/"
		curl -s -o /dev/null -w '%{http_connect}\n' -p --noproxy '' -x "$http_proxy" "$1/"`
	budget := func(t *testing.T, p *place, run []string, env ...string) {
		const limit = 1 << 20
		before := reached
		out := rig.Run(t, p.botbox(env, with(run, "--spec", p.specFile(`{"max_bytes":`+strconv.Itoa(limit)+`}`, command, server.URL))...))
		words := strings.Fields(out.Stdout)
		if len(words) < 5 {
			t.Fatalf("%+v", out)
		}
		if n, _ := strconv.Atoi(words[0]); n > limit || n < limit-(16<<10) { // heads and requests count, too
			t.Errorf("%s bytes of %d got through", words[0], limit)
		}
		if words[1] != "quiet" || words[2] == "28" || words[2] == "0" {
			t.Errorf("the quiet connection did not end with the bytes: %v", words[1:3])
		}
		if !strings.Contains(out.Stdout, "Why: this box has used up its bytes of egress\n") || !strings.Contains(out.Stdout, " 403 budget\n403\n") {
			t.Errorf("%s", out.Stdout)
		}
		if reached != before+2 {
			t.Errorf("the server was reached %d times, want 2", reached-before)
		}
	}
	t.Run("standalone", func(t *testing.T) {
		budget(t, newPlace(t), []string{"run", "--standalone"}, "OMB_EGRESS_EXCEPT="+address)
	})
	t.Run("leased", func(t *testing.T) {
		p := newPlace(t)
		p.serve("OMB_EGRESS_EXCEPT=" + address)
		budget(t, p, []string{"run"})
		budget(t, p, []string{"run"}) // the next box has bytes of its own
		logs := rig.Run(t, p.botbox(nil, "logs", "--json")).Stdout
		if strings.Count(logs, `"event":"budget-spent"`) != 2 || strings.Count(logs, `"class":"budget"`) < 4 {
			t.Errorf("%s", logs)
		}
	})
}

// A learning box and real traffic, in a network of its own: what lists would
// refuse gets through, what addresses and names refuse does not, and the flags
// that it prints let the same through and nothing else.
func TestLearning(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Missing(t, "root, for a network with a neighbour")
	}
	if !gatetest.Inside(t) {
		return
	}
	far := gatetest.Neighbour(t)
	for _, address := range []string{gatetest.Far4 + ":80", gatetest.Far4 + ":8080", "[" + gatetest.Far6 + "]:443"} {
		l := far(address)
		go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "far") }))
	}
	four, fourth, six := "http://"+gatetest.Far4+"/secret?token=canary", "http://"+gatetest.Far4+":8080/", "http://["+gatetest.Far6+"]:443/"
	never := []string{"http://" + gatetest.Near4 + "/", "http://10.0.0.1/", "http://169.254.169.254/", "http://127.0.0.1:1/", "http://db.internal/", "http://" + gatetest.Far4 + ":25/"}
	refused := strings.Repeat("403/000 ", len(never))
	p := newPlace(t)
	box := func(env []string, flags []string, urls ...string) rig.Output {
		t.Helper()
		return rig.Run(t, p.botbox(env, with(with([]string{"run"}, flags...), append([]string{"--", "sh", "-c", fetch, "sh"}, urls...)...)...))
	}
	strict := []string{"OMB_EGRESS_ALLOW=*.example", "OMB_EGRESS_PORTS=80,443"}
	if out := box(strict, []string{"--standalone", "--allow-host", gatetest.Far4}, four, fourth, six); out.Stdout != "403/000 403/000 403/000 " {
		t.Fatalf("without learning: %+v", out)
	}
	out := box(strict, []string{"--learn", "--allow-host", gatetest.Far4, "--allow-host", "*.unused.example"}, append([]string{six, four, fourth, four}, never...)...)
	if out.Code != 0 && out.Code != 22 || out.Stdout != strings.Repeat("200/000 ", 4)+refused {
		t.Errorf("learning: %+v", out)
	}
	if !strings.Contains(out.Stderr, "botbox: warning: learn mode") || strings.Contains(out.Stderr, "canary") {
		t.Errorf("%s", out.Stderr)
	}
	want := "botbox: learnt: 3 hosts with their ports were reached; these flags suffice:\n" +
		"  --allow-host " + gatetest.Far4 + "\n  --allow-host [" + gatetest.Far6 + "]:443\n" +
		"botbox: learnt: a machine whose list suffices:\n" +
		"  OMB_EGRESS_ALLOW=" + gatetest.Far4 + ":80," + gatetest.Far4 + ":8080,[" + gatetest.Far6 + "]:443\n  OMB_EGRESS_PORTS=80,443,8080\n"
	if _, told, _ := strings.Cut(out.Stderr, "botbox: learnt"); "botbox: learnt"+told != want {
		t.Errorf("told:\n%s\nwant:\n%s", out.Stderr, want)
	}
	// What was told suffices, and is not wider than what was seen.
	var settings, flags []string
	for _, l := range strings.Split(want, "\n") {
		if l = strings.TrimSpace(l); strings.HasPrefix(l, "OMB_") {
			settings = append(settings, l)
		} else if strings.HasPrefix(l, "--") {
			flags = append(flags, strings.Fields(l)...)
		}
	}
	if out := box(settings, append(flags, "--standalone"), append([]string{six, four, fourth}, never...)...); out.Stdout != strings.Repeat("200/000 ", 3)+refused {
		t.Errorf("with %v %v: %+v", settings, flags, out)
	}
	if out := box(settings[:1], []string{"--standalone"}, six, four, "http://["+gatetest.Far6+"]:80/"); out.Stdout != "200/000 200/000 403/000 " {
		t.Errorf("with the machine's list alone: %+v", out)
	}
	if out := box(nil, []string{"--learn"}, never...); out.Stdout != refused || !strings.Contains(out.Stderr, "reached no host; this suffices: --net none") {
		t.Errorf("nothing to learn: %+v", out)
	}
}

// A spec may ask a worker for it: then the report, the journal, the answer and
// the events say so.
func TestALearningBoxOfAWorker(t *testing.T) {
	server := newFixture(t)
	p := newPlace(t)
	p.serve("OMB_EGRESS_EXCEPT=127.0.0.1:"+server.port(), "OMB_EGRESS_ALLOW=*.example")
	done := make(chan rig.Output, 1)
	cmd := p.botbox(nil, "run", "--json", "--spec", p.specFile(`{"learn":true}`, fetch+"; while [ ! -e go ]; do sleep 0.02; done", server.URL))
	go func() { done <- rig.Run(t, cmd) }()
	rig.Eventually(t, 20*time.Second, "the report names the learning box", func() bool {
		out := rig.Run(t, p.botbox(nil, "report"))
		return strings.Contains(out.Stdout, "warning  box ") && strings.Contains(out.Stdout, "learn mode")
	})
	rig.Write(t, filepath.Join(p.work, "go"), "")
	if out := <-done; out.Stdout != "200/000 " || !strings.Contains(out.Stderr, `"warnings":["learn mode`) {
		t.Errorf("%+v", out)
	}
	rig.Eventually(t, 10*time.Second, "what was learnt is among the events", func() bool {
		logs := rig.Run(t, p.botbox(nil, "logs", "--json")).Stdout
		return strings.Contains(logs, `"event":"box-learns"`) && strings.Contains(logs, `"allow":["127.0.0.1:`+server.port()+`"]`)
	})
	if out := rig.Run(t, p.botbox(nil, "logs")); !strings.Contains(out.Stdout, "1 hosts; would suffice: --allow-host 127.0.0.1:"+server.port()) {
		t.Errorf("%s", out.Stdout)
	}
	if server.hits.Load() != 1 {
		t.Errorf("the server was asked %d times", server.hits.Load())
	}
	for mode, egress := range map[string]string{"none": `{"learn":true}`} {
		name := filepath.Join(p.top, "none.json")
		rig.Write(t, name, `{"argv":["true"],"cwd":"`+p.work+`","net":{"mode":"`+mode+`","egress":`+egress+`}}`)
		if out := rig.Run(t, p.botbox(nil, "run", "--spec", name)); out.Code != 100 || !strings.Contains(out.Stderr, "net.egress.learn") {
			t.Errorf("%s: %+v", mode, out)
		}
	}
}
