package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"
)

const (
	// caddy stands for public proxies that put a credential in: the module of
	// superfly/tokenizer is not served. It checks no token of a box's.
	caddy     = "github.com/caddyserver/caddy/v2/cmd/caddy@v2.11.9"
	benchKey  = "sk-bench-0123456789abcdef"
	callBatch = 25
)

// task is one row of the table: a command for the caller, and how often.
type task struct {
	name, command string
	rounds        int
	promise       string
	show          func(i, direct *injector) string
}

var tasks = []task{
	{"74 KB POST, one at a time", "post " + strconv.Itoa(callBatch), 40, "≤ +120 µs at the median", added},
	{"one event of a stream", "events 100", 12, "≤ +50 µs at the median", added},
	{"20,000 events at once", "stream 20000", 9, "no buffering", added},
	{"74 KB POST, 32 at a time", "rate 1000", 7, "≥ 3,000 a second on 2 cores", perSecond},
}

// added also tells what the quickest added: on a machine with other work it is
// what we do, and the median what the others do to us.
func added(i, direct *injector) string {
	d, than := i.median(), direct.median()
	return fmt.Sprintf("%.1f µs, %+.1f, ×%.2f (min %+.1f)", us(d), us(d-than), float64(d)/float64(than), us(i.took[0]-direct.took[0]))
}

func perSecond(i, direct *injector) string {
	d, than := i.median(), direct.median()
	return fmt.Sprintf("%.0f/s, ×%.2f", float64(time.Second)/float64(d), float64(than)/float64(d))
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// injector is one way to a provider, with its client.
type injector struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	took []time.Duration
}

// printBroker measures the broker from within a box, beside a direct
// connection, one more hop that looks at nothing, and another proxy that puts
// the same credential in. The upstream is none of the vendors' own, so the
// broker also searches the answers for the key.
func (p *place) printBroker(others []*place) error {
	upstream := httptest.NewServer(http.HandlerFunc(provide))
	defer upstream.Close()
	proxy, stop, err := p.startCaddy(upstream.Listener.Addr().String())
	if err != nil {
		return err
	}
	defer stop()
	self, err := p.copySelf()
	if err != nil {
		return err
	}
	bare, stopBare, err := p.startRelay(self, upstream.Listener.Addr().String())
	if err != nil {
		return err
	}
	defer stopBare()
	all := []*injector{
		{name: "direct", cmd: p.command(self, callerMode, upstream.URL+"/direct/v1/responses")},
		{name: "botbox's broker, from a box", cmd: p.boxed(self, upstream.URL)},
		{name: "a bare relay, from outside", cmd: p.command(self, callerMode, bare)},
		{name: "caddy, from outside", cmd: p.command(self, callerMode, proxy)},
	}
	for _, o := range others {
		all = append(all, &injector{name: "the same of " + filepath.Base(o.bin), cmd: o.boxed(self, upstream.URL)})
	}
	for _, i := range all {
		if err := i.start(); err != nil {
			return fmt.Errorf("%s: %w", i.name, err)
		}
		defer i.end()
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "\nbroker, medians of rounds in turn")
	for _, i := range all {
		fmt.Fprintf(w, "\t%s", i.name)
	}
	fmt.Fprintln(w, "\tpromise")
	for _, t := range tasks {
		if err := t.run(all); err != nil {
			return err
		}
		fmt.Fprint(w, t.name)
		for _, i := range all {
			fmt.Fprintf(w, "\t%s", t.show(i, all[0]))
		}
		fmt.Fprintf(w, "\t%s\n", t.promise)
	}
	return w.Flush()
}

// boxed is the client in a box of this place's worker.
func (p *place) boxed(self, upstream string) *exec.Cmd {
	cmd := p.command(filepath.Join(p.bin, "botbox"), "run", "--ro", self, "--", "sh", "-c", `exec "$0" "$1" "$OPENAI_BASE_URL/responses"`, self, callerMode)
	cmd.Env = append(slices.Clone(p.env), "OPENAI_API_KEY="+benchKey, "OPENAI_BASE_URL="+upstream+"/v1")
	return cmd
}

// provide is the upstream. It wants the key from everybody but the direct way.
func provide(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/direct/v1/responses" && r.Header.Get("Authorization") != "Bearer "+benchKey {
		http.Error(w, "no key", http.StatusUnauthorized)
		return
	}
	io.Copy(io.Discard, r.Body)
	paced, _ := strconv.Atoi(r.URL.Query().Get("paced"))
	all, _ := strconv.Atoi(r.URL.Query().Get("all"))
	if paced+all == 0 {
		io.WriteString(w, `{"ok":true}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.(http.Flusher).Flush()
	const text = `{"type":"response.output_text.delta","item_id":"msg_0123456789","output_index":0,"delta":" word"}`
	for range paced + all {
		fmt.Fprintf(w, "event: response.output_text.delta\ndata: %d %s\n\n", time.Now().UnixNano(), text)
		w.(http.Flusher).Flush()
		if paced > 0 {
			time.Sleep(2 * time.Millisecond)
		}
	}
}

func (t task) run(all []*injector) error {
	for _, i := range all {
		i.took = nil
	}
	for round := range t.rounds + 2 {
		for _, i := range all {
			took, err := i.do(t.command)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", t.name, i.name, err)
			}
			if round >= 2 { // the first ones open connections
				i.took = append(i.took, took...)
			}
		}
	}
	return nil
}

func (i *injector) median() time.Duration {
	slices.Sort(i.took)
	return i.took[len(i.took)/2]
}

func (i *injector) start() error {
	in, err := i.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := i.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	i.cmd.Stderr = os.Stderr
	i.in, i.out = in, bufio.NewReader(out)
	return i.cmd.Start()
}

func (i *injector) do(command string) (took []time.Duration, err error) {
	if _, err := fmt.Fprintln(i.in, command); err != nil {
		return nil, err
	}
	line, err := i.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("its client has ended: %w", err)
	}
	return took, json.Unmarshal(line, &took)
}

func (i *injector) end() {
	i.in.Close()
	i.cmd.Wait()
}

// copySelf puts this program where the boxes' user can run it.
func (p *place) copySelf() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	to := filepath.Join(p.top, "caller")
	return to, os.WriteFile(to, b, 0o755)
}

// startCaddy builds the other proxy by its name, once, and starts it.
func (p *place) startCaddy(upstream string) (url string, stop func(), err error) {
	bin, err := filepath.Abs(".cache/bench")
	if err != nil {
		return "", nil, err
	}
	install := exec.Command("go", "install", caddy)
	install.Env = append(os.Environ(), "GOBIN="+bin, "CGO_ENABLED=0")
	if out, err := install.CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("build %s: %w\n%s", caddy, err, out)
	}
	addr, err := freeAddress()
	if err != nil {
		return "", nil, err
	}
	config := filepath.Join(p.top, "Caddyfile")
	if err := os.WriteFile(config, fmt.Appendf(nil, caddyfile, addr, upstream, benchKey), 0o644); err != nil {
		return "", nil, err
	}
	// As whoever runs the benchmark: its place is not the boxes' user's to read.
	cmd := exec.Command(filepath.Join(bin, "caddy"), "run", "--config", config, "--adapter", "caddyfile")
	cmd.Env = []string{"HOME=" + p.top, "XDG_DATA_HOME=" + p.top, "XDG_CONFIG_HOME=" + p.top}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stop, err = comesUp(cmd, addr)
	return "http://" + addr + "/b/token/openai/v1/responses", stop, err
}

// caddyfile does what the broker does, as far as it can be said there.
const caddyfile = `{
	admin off
	auto_https off
	persist_config off
	log default {
		level ERROR
	}
}
http://%s {
	handle_path /b/token/openai/* {
		reverse_proxy %s {
			header_up Authorization "Bearer %s"
			header_up -X-Api-Key
			header_up -Cookie
			flush_interval -1
		}
	}
}
`
