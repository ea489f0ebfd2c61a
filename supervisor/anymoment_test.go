package main

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// moment is a part of a supervisor's life in which it can be asked to stop.
type moment struct {
	name, mode string   // of the fake worker
	args       []string // the supervisor's
	reached    func(r *running) bool
	span       time.Duration // how long it lasts, about
	stops      int           // 2: the first one begins the moment
	codes      func(sig int) []int
}

func always(codes ...int) func(int) []int { return func(int) []int { return codes } }

var moments = []moment{
	// Between an exec and the catching of signals the Go runtime dies of one as
	// it likes: SECURITY.md, known gaps.
	{name: "boot", span: 40 * time.Millisecond, reached: func(r *running) bool { return r.image() != 0 },
		codes: func(sig int) []int { return []int{0, 128 + sig, 2} }},
	{name: "hello", mode: "late", span: 200 * time.Millisecond, reached: func(r *running) bool { return r.starts() == 1 }, codes: always(0)},
	{name: "hello without an answer", mode: "silent", span: 100 * time.Millisecond, reached: func(r *running) bool { return r.starts() == 1 }, codes: always(137)},
	{name: "ready", span: 50 * time.Millisecond, reached: func(r *running) bool { return r.report("worker") != "" }, codes: always(0)},
	{name: "ready, with a command", args: []string{"--plain", "--", "sleep", "100"}, span: 50 * time.Millisecond,
		reached: func(r *running) bool { return r.report("worker") != "" }, // the command may not have started yet
		codes:   func(sig int) []int { return []int{143, 128 + sig} }},
	{name: "backoff", mode: "exit7", span: 800 * time.Millisecond, reached: func(r *running) bool { return r.starts() == 1 }, codes: always(7, 137)},
	{name: "drain", span: 40 * time.Millisecond, reached: func(r *running) bool { return r.report("worker") != "" }, stops: 2, codes: always(0, 137)},
	{name: "drain of a stubborn worker", mode: "no-drain", span: 900 * time.Millisecond, reached: func(r *running) bool { return r.report("worker") != "" }, stops: 2, codes: always(137)},
}

// image is the supervisor from its first instruction on.
func (r *running) image() int {
	for _, pid := range descendants(r.Process.Pid) {
		line := read(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.HasPrefix(line, "/bb/botbox-supervisor\x00") || strings.HasPrefix(line, "botbox-supervisor\x00") {
			return pid
		}
	}
	return 0
}

// A stop at any moment: it ends in time, with a documented status, and leaves
// no process, FIFO, socket or folder behind but the empty run folder.
func TestStopsAtRandomMoments(t *testing.T) {
	const each = 7 // times 8 moments times 2 places
	var stops, lost, runtimes atomic.Int32
	t.Cleanup(func() {
		t.Logf("%d stops; %d came before the first instructions, and at %d the Go runtime ended by itself", stops.Load(), lost.Load(), runtimes.Load())
		if stops.Load() < 50 && !t.Failed() || lost.Load()+runtimes.Load() > 6 {
			t.Errorf("that is not what was to be tried")
		}
	})
	bothAtOnce(t, func(t *testing.T, child bool) {
		for _, m := range moments {
			for i := range each {
				sig := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT}[i%3]
				after := time.Duration(rand.Int64N(int64(m.span)))
				what := fmt.Sprintf("%s + %v, %v", m.name, after, sig)
				run := t.TempDir()
				os.Chmod(run, 0o755)
				r := start(t, world{child: child, args: m.args, vars: "OMB_DRAIN_SECONDS=1 OMB_BOX_FAKE=" + m.mode,
					setup: `mkdir -p "$W/r/run" && mount --bind ` + run + ` "$W/r/run"`})
				r.await(t, what, func() bool { return m.reached(r) })
				pid := 0
				r.await(t, what, func() bool { pid = r.image(); return pid != 0 }) // in the midst of an exec it has no command line
				if m.stops == 2 {
					send(t, pid, syscall.SIGTERM)
				}
				time.Sleep(after)
				began := time.Now()
				send(t, pid, sig)
				// The kernel throws a signal away that the first process of a
				// namespace has no handler for yet.
				again := time.AfterFunc(3*time.Second, func() {
					if m.name == "boot" && !child {
						lost.Add(1)
						send(t, pid, sig)
					}
				})
				code := r.status(t)
				again.Stop()
				stops.Add(1)
				// It then takes nothing away, and the next start takes the folders over.
				ours, _ := filepath.Glob(run + "/botbox.*")
				if m.name == "boot" && (code == 2 || len(ours) > 0) {
					runtimes.Add(1)
					for _, folder := range ours {
						os.Remove(folder)
					}
				}
				if took := time.Since(began); took > 6*time.Second || !slices.Contains(m.codes(int(sig)), code) || code == 2 && child && sig != syscall.SIGQUIT {
					t.Errorf("%s: status %d after %v: %s", what, code, took, r.stderr.String())
				}
				r.leftNothing(t, what, run, child)
			}
		}
	})
}

// leftNothing looks through the folder that was the supervisor's /run, and
// where something could be left, for processes.
func (r *running) leftNothing(t *testing.T, what, run string, child bool) {
	t.Helper()
	found := strings.Fields(left(run))
	for _, name := range strings.Fields(r.report("comms")) {
		if name != "sh" && name != "cat" {
			found = append(found, name)
		}
	}
	if child && r.report("comms") == "" {
		t.Errorf("%s: nobody looked at the processes", what)
	}
	if len(found) > 0 {
		t.Errorf("%s left %q", what, found)
	}
}

// left lists what is in a supervisor's former /run beside the run folder.
func left(run string) string {
	var all []string
	filepath.WalkDir(run, func(path string, d fs.DirEntry, err error) error {
		if name := strings.TrimPrefix(path, run); name != "" && name != "/botbox" {
			all = append(all, name)
		}
		return err
	})
	return strings.Join(all, " ")
}

// The same with the real worker, from its first instruction through the checks
// that it makes of itself in boxes of its own: its sockets go with it.
func TestStopsWithARealWorker(t *testing.T) {
	bothWays(t, func(t *testing.T, child bool) {
		codes := map[int]int{}
		for i := range 12 {
			r := realWorld(t, child, nil)
			r.await(t, "the worker", func() bool { return r.serving() != 0 })
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
			began := time.Now()
			send(t, r.supervisor(t), []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT}[i%3])
			code := r.status(t)
			codes[code]++
			if took := time.Since(began); took > 6*time.Second || code != 0 {
				t.Errorf("status %d after %v: %s", code, took, r.stderr.String())
			}
			r.gone(t, child)
			if found := left(r.out); strings.Contains(found, "/run.") || strings.Contains(found, ".sock") {
				t.Errorf("left: %s", found)
			}
		}
		t.Logf("statuses: %v", codes)
	})
}

func (r *running) serving() int {
	for _, pid := range descendants(r.Process.Pid) {
		if strings.HasPrefix(read(fmt.Sprintf("/proc/%d/cmdline", pid)), "botbox\x00serve\x00--control") {
			return pid
		}
	}
	return 0
}
