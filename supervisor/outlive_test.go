package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// ticker is the world of the boxes: a provider, the harness and a public host.
type ticker struct {
	*httptest.Server
	mu   sync.Mutex
	keys map[string]int
}

func newTicker(t *testing.T) *ticker {
	k := &ticker{keys: map[string]int{}}
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/messages" {
			k.mu.Lock()
			k.keys[r.Header.Get("X-Api-Key")]++
			k.mu.Unlock()
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			if _, err := w.Write([]byte("tick\n")); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}))
	t.Cleanup(func() { k.CloseClientConnections(); k.Close() })
	return k
}

func (k *ticker) port() string {
	_, port, _ := net.SplitHostPort(k.Listener.Addr().String())
	return port
}

// ample are limits that nothing here reaches, but that are counted.
func ample(int) (egress, grant int) { return 1e9, 1e9 }

// fleet is a supervisor with leased boxes, each of which redials on demand.
type fleet struct {
	*running
	*ticker
	n           int
	round       int
	work, tools string
}

func newFleet(t *testing.T, n int, child bool, limits func(box int) (egress, grant int)) *fleet {
	t.Helper()
	needRoot(t)
	f := &fleet{ticker: newTicker(t), n: n}
	tools := rig.Dir(t)
	os.Chmod(tools, 0o755)
	if err := rig.Compile(tools+"/redialer", "./testbed/redialer", rig.Build); err != nil {
		t.Fatal(err)
	}
	rig.Write(t, tools+"/round", "0\n")
	work := rig.Dir(t)
	os.Chmod(work, 0o755)
	for i := range n {
		rig.Write(t, fmt.Sprintf("%s/%d/x", work, i), "")
		rig.Give(t, fmt.Sprintf("%s/%d", work, i))
	}
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do
		"$BIN/botbox" run --spec "%[2]s/$i/spec" >>"%[2]s/$i/said" 2>&1 & echo $! >"%[2]s/$i/pid"; i=$((i+1)); done
		while [ ! -e "%[2]s/stop" ]; do sleep 0.2; done`, n, work)
	for i := range n {
		egress, grant := limits(i)
		spec := fmt.Sprintf(`{"id":"box%d","argv":[%q,%q,%q,%q,%q],"cwd":%q,"paths":{"ro":[%q]},"net":{"egress":{"allow":["127.0.0.1"],"max_bytes":%d}},
			"broker":{"limits":{"bytes":%d}},"env":{"ANTHROPIC_API_KEY":"sk-canary","ANTHROPIC_BASE_URL":%q}}`,
			i, tools+"/redialer", tools+"/round", fmt.Sprintf("%s/%d/done", work, i), f.port(), f.Listener.Addr().String(),
			fmt.Sprintf("%s/%d", work, i), tools, egress, grant, f.URL)
		rig.Write(t, fmt.Sprintf("%s/%d/spec", work, i), spec)
	}
	f.running = realWorld(t, child, []string{"OMB_PORT=" + f.port(), "OMB_EGRESS_EXCEPT=" + f.Listener.Addr().String()}, "--plain", "--", "sh", "-c", script)
	f.work, f.tools = work, tools
	f.await(t, "all boxes", func() bool { return f.done(0) == n })
	return f
}

// done counts the boxes that have redialled for a round.
func (f *fleet) done(round int) int {
	n := 0
	for i := range f.n {
		if _, ok := f.at(i, round); ok {
			n++
		}
	}
	return n
}

// at tells when a box was served in a round.
func (f *fleet) at(box, round int) (time.Time, bool) {
	for _, line := range strings.Split(read(fmt.Sprintf("%s/%d/done", f.work, box)), "\n") {
		var r int
		var ns int64
		if n, _ := fmt.Sscan(line, &r, &ns); n == 2 && r == round {
			return time.Unix(0, ns), true
		}
	}
	return time.Time{}, false
}

// redial begins the next round.
func (f *fleet) redial(t *testing.T) {
	f.round++
	rig.Write(t, f.tools+"/round.new", strconv.Itoa(f.round)+"\n")
	if err := os.Rename(f.tools+"/round.new", f.tools+"/round"); err != nil {
		t.Fatal(err)
	}
}

// workerPid is the worker's of now, as the machine numbers it.
func (f *fleet) workerPid(t *testing.T) (pid int) {
	t.Helper()
	f.await(t, "a worker", func() bool {
		for _, p := range descendants(f.supervisor(t)) {
			if strings.HasPrefix(read(fmt.Sprintf("/proc/%d/cmdline", p)), "botbox\x00serve\x00--control") {
				pid = p // the first: a child of it that has not executed yet looks alike
				return true
			}
		}
		return false
	})
	return pid
}

// ask asks the worker's interface.
func (f *fleet) ask(t *testing.T, path string, into any) error {
	t.Helper()
	out, err := exec.Command("curl", "-sS", "--max-time", "5", "--unix-socket", f.out+"/run/api.sock", "http://worker"+path).Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	return err
}

// boxes gives the open boxes of the fleet with their engines' pids.
func (f *fleet) boxes(t *testing.T) map[string]int { t.Helper(); return f.boxesNamed(t, "box") }

func (f *fleet) boxesNamed(t *testing.T, prefix string) map[string]int {
	t.Helper()
	var list []struct {
		ID  string
		Pid int
	}
	f.await(t, "the list of boxes", func() bool { return f.ask(t, "/v1/boxes", &list) == nil })
	found := map[string]int{}
	for _, b := range list {
		if strings.HasPrefix(b.ID, prefix) && !strings.HasPrefix(b.ID, "box_") { // and no box of the self-check's
			found[b.ID] = b.Pid
		}
	}
	return found
}

func files(pid int) int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries)
}

// The worker is killed again and again under open boxes with streams: 25 times,
// or as often as BOTBOX_KILLS says, and then each time counts, and not the
// median alone, which says more on a busy machine.
func TestBoxesOutliveTheirWorker(t *testing.T) {
	kills, boxes := 25, 50
	if n, err := strconv.Atoi(os.Getenv("BOTBOX_KILLS")); err == nil {
		kills = n
	}
	bothWays(t, func(t *testing.T, child bool) {
		if child {
			kills, boxes = 3, 5 // the same code, but for the reaping
		}
		f := newFleet(t, boxes, child, ample)
		before := f.boxes(t)
		if len(before) != boxes {
			t.Fatalf("%d boxes", len(before))
		}
		supervisor, heldBefore, openBefore, open := f.supervisor(t), 0, 0, 0
		var took []time.Duration
		for range kills {
			worker := f.workerPid(t)
			f.awaitSettled(t, worker)
			if open = files(worker); f.round == 1 {
				openBefore = open
			}
			began := time.Now()
			send(t, worker, syscall.SIGKILL)
			f.redial(t)
			f.await(t, fmt.Sprintf("round %d", f.round), func() bool { return f.done(f.round) == boxes })
			latest := began
			for i := range boxes {
				if at, _ := f.at(i, f.round); at.After(latest) {
					latest = at
				}
			}
			took = append(took, latest.Sub(began))
			if f.round == 1 {
				heldBefore = files(supervisor)
			}
		}
		slices.Sort(took)
		t.Logf("files: supervisor %d, worker %d", heldBefore, openBefore)
		t.Logf("every listener of every box served again: median %v, longest %v", took[len(took)/2], took[len(took)-1])
		if took[len(took)/2] > time.Second || (os.Getenv("BOTBOX_KILLS") != "" && took[len(took)-1] > time.Second) {
			t.Errorf("that is over a second")
		}
		after := f.boxes(t)
		if fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("the boxes were\n%v\nand are\n%v", before, after)
		}
		if held := files(supervisor); held > heldBefore {
			t.Errorf("the supervisor has %d files open, %d after the first kill", held, heldBefore)
		}
		if open > openBefore+boxes { // by then every self-check and every stream is somewhere else in its life
			t.Errorf("the last worker had %d files open, the second %d", open, openBefore)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.keys) != 1 || f.keys["sk-canary"] != boxes*(kills+1) {
			t.Errorf("keys upstream: %v", f.keys)
		}
	})
}

// awaitSettled waits until the worker has been at work for a while: one that
// dies while it starts is started again with a pause.
func (f *fleet) awaitSettled(t *testing.T, worker int) {
	t.Helper()
	f.await(t, "the worker's socket", func() bool { var any []any; return f.ask(t, "/v1/boxes", &any) == nil })
	time.Sleep(600 * time.Millisecond)
}

// What ends while no worker lives is noticed: its grants die, and stay dead,
// its files are closed, and the others go on.
func TestABoxThatEndsWithoutAWorker(t *testing.T) {
	f := newFleet(t, 3, false, ample)
	supervisor, worker := f.supervisor(t), f.workerPid(t)
	f.awaitSettled(t, worker)
	held := files(supervisor)
	send(t, supervisor, syscall.SIGSTOP) // so that no other worker comes
	send(t, worker, syscall.SIGKILL)
	engine := 0
	for _, p := range descendants(supervisor) {
		line := read(fmt.Sprintf("/proc/%d/cmdline", p))
		if strings.HasPrefix(line, f.tools+"/redialer\x00") && strings.Contains(line, "/1/done") {
			engine = p
		}
	}
	if engine == 0 {
		t.Fatal("the engine of box 1 is not to be found")
	}
	send(t, engine, syscall.SIGKILL)
	f.await(t, "the end of the box", func() bool { return read(fmt.Sprintf("/proc/%d/cmdline", engine)) == "" })
	send(t, supervisor, syscall.SIGCONT)
	f.redial(t)
	f.await(t, "the others", func() bool { return f.done(f.round) == 2 })
	if boxes := f.boxes(t); len(boxes) != 2 || boxes["box1"] != 0 {
		t.Errorf("%v", boxes)
	}
	var ending struct {
		End  string
		Code int
	}
	if err := f.ask(t, "/v1/boxes/box1", &ending); err != nil || ending.End != "unseen" || ending.Code != -1 {
		t.Errorf("%v, %+v", err, ending)
	}
	f.await(t, "its files are closed", func() bool { return files(supervisor) < held })
	const revoked = "the grants of boxes that are no more are revoked"
	f.await(t, "its grants are revoked", func() bool { return strings.Count(f.stderr.String(), revoked) == 1 })
	next := f.workerPid(t)
	f.awaitSettled(t, next)
	send(t, next, syscall.SIGKILL)
	f.redial(t)
	f.await(t, "the others again", func() bool { return f.done(f.round) == 2 })
	if n := strings.Count(f.stderr.String(), revoked); n != 1 {
		t.Errorf("grants were revoked %d times: %s", n, f.stderr.String())
	}
}

// To kill the worker gives a box no new bytes.
func TestLimitsOutliveTheWorker(t *testing.T) {
	f := newFleet(t, 3, false, func(box int) (egress, grant int) {
		return map[int]int{0: 1500, 1: 1e9, 2: 1e9}[box], map[int]int{0: 1e9, 1: 100, 2: 1e9}[box]
	})
	for range 8 {
		worker := f.workerPid(t)
		f.awaitSettled(t, worker)
		send(t, worker, syscall.SIGKILL)
		f.redial(t)
		f.await(t, "the box with room", func() bool { _, ok := f.at(2, f.round); return ok })
		if f.round == 1 { // control: they have something at first
			f.await(t, "all boxes", func() bool { return f.done(1) == 3 })
		}
	}
	time.Sleep(time.Second) // for those that are late
	if n := f.done(f.round); n != 1 {
		t.Errorf("%d boxes are served in the last round, of which two have used up what they had", n)
	}
}

// A worker that dies while it starts, or while it takes boxes back, has taken
// nothing away from the next one.
func TestBoxesOutliveWorkersThatDieAtTheirStart(t *testing.T) {
	f := newFleet(t, 10, false, ample)
	before := f.boxes(t)
	last := f.workerPid(t)
	f.awaitSettled(t, last)
	for i := range 4 { // five in a minute would be a worker that cannot start
		send(t, last, syscall.SIGKILL)
		f.await(t, "another worker", func() bool { return read(fmt.Sprintf("/proc/%d/cmdline", last)) == "" })
		last = f.workerPid(t)
		time.Sleep(time.Duration(i*15+rand.IntN(15)) * time.Millisecond)
	}
	f.redial(t)
	f.await(t, "all boxes", func() bool { return f.done(f.round) == f.n })
	if after := f.boxes(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the boxes were\n%v\nand are\n%v", before, after)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.keys) != 1 || f.keys["sk-canary"] < 2*f.n { // a cut request is asked again
		t.Errorf("keys upstream: %v", f.keys)
	}
}

// A browser's box has another gate, and outlives its worker all the same.
func TestABrowsersBoxOutlivesItsWorker(t *testing.T) {
	needRoot(t)
	work := rig.Dir(t)
	script := `while :; do if exec 3<>/dev/tcp/127.0.0.1/1080; then printf '\5\1\0' >&3; IFS= read -t 5 -r -N 1 b <&3 && [ "$b" = $'\5' ] && echo served; fi; sleep 0.1; done`
	argv, _ := json.Marshal([]string{"bash", "-c", script})
	rig.Write(t, work+"/spec", fmt.Sprintf(`{"id":"window","kind":"browser","argv":%s}`, argv))
	r := realWorld(t, false, nil, "--plain", "--", "sh", "-c", fmt.Sprintf(`"$BIN/botbox" run --spec %q`, work+"/spec"))
	f := &fleet{running: r}
	served := func(more int) {
		t.Helper()
		was := strings.Count(r.stdout.String(), "served\n")
		r.await(t, "the SOCKS gate", func() bool { return strings.Count(r.stdout.String(), "served\n") >= was+more })
	}
	served(2)
	before := f.boxesNamed(t, "window")
	for range 2 {
		worker := f.workerPid(t)
		f.awaitSettled(t, worker)
		send(t, worker, syscall.SIGKILL)
		served(3) // one may have been on its way
	}
	if after := f.boxesNamed(t, "window"); before["window"] == 0 || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%v, before %v", after, before)
	}
}

// The way into a box, too: a driver reaches its browser again, through a socket
// that was connected when the worker died.
func TestABrowsersDebuggingPortOutlivesItsWorker(t *testing.T) {
	needRoot(t)
	work := rig.Dir(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	script := `use IO::Socket::INET; $ARGV[1] =~ /(\d+)/; my $l = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $1, Listen => 50, ReuseAddr => 1) or die;
		$SIG{CHLD} = "IGNORE"; while (my $c = $l->accept) { next if fork; print $c "here\n"; sleep 600 }`
	argv, _ := json.Marshal([]string{"bash", "-c", `exec perl -e "$1" x "$0"`, "--remote-debugging-port=" + port, script})
	rig.Write(t, work+"/spec", fmt.Sprintf(`{"id":"window","kind":"browser","argv":%s,"browser":{"debug_port":true}}`, argv))
	f := &fleet{running: realWorld(t, false, nil, "--plain", "--", "sh", "-c", fmt.Sprintf(`"$BIN/botbox" run --spec %q`, work+"/spec"))}
	drive := func() {
		t.Helper()
		f.await(t, "the browser's port", func() bool {
			c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
			if err != nil {
				return false
			}
			t.Cleanup(func() { c.Close() }) // and not before: it is open when the worker dies
			c.SetReadDeadline(time.Now().Add(time.Second))
			b := make([]byte, 5)
			n, _ := c.Read(b)
			return string(b[:n]) == "here\n"
		})
	}
	for range 3 {
		for range 10 { // of the 16 that there can be at once
			drive()
		}
		worker := f.workerPid(t)
		f.awaitSettled(t, worker)
		send(t, worker, syscall.SIGKILL)
	}
	drive()
	if boxes := f.boxesNamed(t, "window"); len(boxes) != 1 {
		t.Errorf("%v", boxes)
	}
}
