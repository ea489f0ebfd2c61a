package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// ownUser is one of the numbers that bots have in an ownUsersWorld: other tests
// that run on this machine at the time have others, for they are counted.
func ownUser(n int) string { return strconv.Itoa(300000 + 64*(os.Getpid()%1000) + n) }

func ownUsersWorld(t *testing.T, child bool) *running {
	t.Helper()
	r := realWorld(t, child, []string{"OMB_BOT_USERS=1", "OMB_BOT_USERS_RANGE=" + ownUser(0) + "-" + ownUser(63)})
	r.await(t, "the worker", func() bool { _, err := os.Stat(r.out + "/run/api.sock"); return err == nil })
	return r
}

// botsBox is a box of a bot's that is open, with a stream through the broker.
type botsBox struct {
	*exec.Cmd
	out *output
}

func (f *fleet) botsBox(t *testing.T, bot string) *botsBox {
	t.Helper()
	b := &botsBox{f.box(t, bot, "--", "sh", "-c", `trap 'exit 7' USR1; id -u
		while :; do curl -sN -H "x-api-key: $ANTHROPIC_API_KEY" "$ANTHROPIC_BASE_URL/v1/messages" & wait $!; sleep 0.05; done`), &output{}}
	b.Env = append(b.Env, "ANTHROPIC_API_KEY=sk-canary", "ANTHROPIC_BASE_URL="+f.URL)
	b.Stdout, b.Stderr = b.out, b.out
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Process.Kill(); b.Wait() })
	f.await(t, "the box of "+bot, func() bool { return b.ticks() > 0 })
	return b
}

func (b *botsBox) ticks() int { return strings.Count(b.out.String(), "tick\n") }

// open lists the boxes of bots by their engines' pids.
func (f *fleet) open(t *testing.T) map[int]string {
	t.Helper()
	var list []struct {
		ID, Bot string
		Pid     int
	}
	f.await(t, "the list of boxes", func() bool { return f.ask(t, "/v1/boxes", &list) == nil })
	found := map[int]string{}
	for _, b := range list {
		if b.Bot != "" {
			found[b.Pid] = b.ID + " " + b.Bot
		}
	}
	return found
}

// uids are the four user ids of a process in the supervisor's namespaces.
func (f *fleet) uids(t *testing.T, pid int) string {
	t.Helper()
	// As root there: the account may see no more of it than the worker does.
	out, err := exec.Command("nsenter", "-t", fmt.Sprint(descendants(f.Process.Pid)[0]), "-m", "-p", "cat", fmt.Sprintf("/proc/%d/status", pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(section(string(out), "Uid:")), " ")
}

// The worker dies under boxes that have Linux users of their own: they live,
// the next one serves, sees, signals and ends them, and no user changes hands.
func TestBotsBoxesOutliveTheirWorker(t *testing.T) {
	bothWays(t, botsBoxesOutlive)
}

func botsBoxesOutlive(t *testing.T, child bool) {
	f := &fleet{running: ownUsersWorld(t, child), ticker: newTicker(t)}
	boxes := []*botsBox{f.botsBox(t, "alice"), f.botsBox(t, "alice"), f.botsBox(t, "bob")}
	uid := map[string]string{"alice": ownUser(0), "bob": ownUser(1), "carol": ownUser(2)}
	before := f.open(t)
	if len(before) != 3 {
		t.Fatalf("%v", before)
	}
	for range 5 {
		worker := f.workerPid(t)
		f.awaitSettled(t, worker)
		send(t, worker, syscall.SIGKILL)
		f.await(t, "its end", func() bool { return read(fmt.Sprintf("/proc/%d/cmdline", worker)) == "" })
		for i, b := range boxes {
			had := b.ticks()
			f.await(t, fmt.Sprintf("the stream of box %d", i), func() bool { return b.ticks() > had })
		}
	}
	f.awaitSettled(t, f.workerPid(t))
	if after := f.open(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Fatalf("the boxes were %v and are %v", before, after)
	}
	for pid, name := range before {
		id := uid[strings.Fields(name)[1]]
		if got := f.uids(t, pid); got != strings.Join([]string{id, id, id, id}, " ") {
			t.Errorf("%s is of the users %s", name, got)
		}
	}
	botbox := rig.Programs(t) + "/botbox"
	// What a bot has open is known to the next worker: its files stay its own.
	if out, err := f.as(t, "", botbox, "bot", "release", "alice").CombinedOutput(); err == nil || !strings.Contains(string(out), "reason: bot-user-busy") {
		t.Errorf("a bot with open boxes: %v %s", err, out)
	}
	f.signalled(t, boxes[2], before)
	f.ended(t, botbox, before)
	f.usersAfterwards(t, uid)
}

// signalled signals bob's engine through a worker that never started it.
func (f *fleet) signalled(t *testing.T, bob *botsBox, open map[int]string) {
	t.Helper()
	for _, name := range open {
		if id, bot, _ := strings.Cut(name, " "); bot == "bob" {
			const body = `{"sig":"USR1"}`
			out, err := exec.Command("curl", "-sS", "-f", "--unix-socket", f.out+"/run/api.sock", "-d", body, "http://worker/v1/boxes/"+id+"/signal").CombinedOutput()
			if err != nil {
				t.Fatalf("signal: %v %s", err, out)
			}
			defer func() { // what the worker that took it back says of its end
				var ending struct {
					End  string
					Code int
				}
				if err := f.ask(t, "/v1/boxes/"+id, &ending); err != nil || ending.End != "exited" || ending.Code != 7 {
					t.Errorf("%v, %+v", err, ending)
				}
			}()
		}
	}
	if err := bob.Wait(); rig.Code(err) != 7 {
		t.Errorf("a signalled box: %v", err)
	}
	f.await(t, "bob's user is nobody's process", func() bool { return f.running.running(ownUser(1)) == 0 })
}

// ended ends one of alice's two boxes, and the other one lives on.
func (f *fleet) ended(t *testing.T, botbox string, open map[int]string) {
	t.Helper()
	var alices []string
	for _, name := range open {
		if id, bot, _ := strings.Cut(name, " "); bot == "alice" {
			alices = append(alices, id)
		}
	}
	slices.Sort(alices)
	if out, err := f.as(t, "", botbox, "kill", alices[0]).CombinedOutput(); err != nil {
		t.Errorf("kill: %v %s", err, out)
	}
	f.await(t, "one box of alice's", func() bool { return len(f.open(t)) == 1 })
	if f.running.running(ownUser(0)) == 0 {
		t.Error("the other box of alice's has died, too")
	}
}

// usersAfterwards wants each bot's number to be its own, whatever lives and
// whoever asks, across workers and after all.
func (f *fleet) usersAfterwards(t *testing.T, uid map[string]string) {
	t.Helper()
	for range 2 {
		worker := f.workerPid(t)
		f.awaitSettled(t, worker)
		for _, bot := range []string{"carol", "bob", "alice"} {
			f.botsBox(t, bot)
			f.await(t, "a process of "+bot, func() bool { return f.running.running(uid[bot]) > 0 })
		}
		send(t, worker, syscall.SIGKILL)
		f.await(t, "its end", func() bool { return read(fmt.Sprintf("/proc/%d/cmdline", worker)) == "" })
	}
	if table := read(f.out + "/state.ctl/bot-users"); table != fmt.Sprintf("bot-users 1 %s-%s\n%s alice\n%s bob\n%s carol\n", ownUser(0), ownUser(63), ownUser(0), ownUser(1), ownUser(2)) {
		t.Errorf("the table is %q", table)
	}
	send(t, f.supervisor(t), syscall.SIGTERM)
	f.status(t)
	for bot, id := range uid {
		if n := f.running.running(id); n != 0 {
			t.Errorf("%d processes of %s are left", n, bot)
		}
	}
}

// A bot's box whose end nobody saw leaves no process of its user's, and its
// grants are revoked; the user stays the bot's.
func TestABotsBoxThatEndsWithoutAWorker(t *testing.T) {
	f := &fleet{running: ownUsersWorld(t, true), ticker: newTicker(t)}
	f.botsBox(t, "alice")
	bob := f.botsBox(t, "bob")
	supervisor, worker := f.supervisor(t), f.workerPid(t)
	f.awaitSettled(t, worker)
	send(t, supervisor, syscall.SIGSTOP) // so that no other worker comes
	send(t, worker, syscall.SIGKILL)
	pid := bwrapOf(t, bob.Process.Pid)
	send(t, pid, syscall.SIGKILL)
	f.await(t, "the end of bob's box", func() bool { return f.running.running(ownUser(1)) == 0 })
	send(t, supervisor, syscall.SIGCONT)
	f.await(t, "alice's alone", func() bool {
		open := f.open(t)
		return len(open) == 1 && strings.HasSuffix(fmt.Sprint(open), " alice]")
	})
	f.await(t, "its grants are revoked", func() bool {
		return strings.Contains(f.stderr.String(), "the grants of boxes that are no more are revoked")
	})
	f.botsBox(t, "bob")
	if f.running.running(ownUser(1)) == 0 || f.running.running(ownUser(2)) != 0 {
		t.Error("bob has another user")
	}
}

// The promise of a map's time, over 500 maps: on a busy machine one round of
// three has to keep it.
func TestAMapTakesNoTime(t *testing.T) {
	const most = 20 * time.Millisecond
	for round := 1; ; round++ {
		r := mapperWorld(t, "bench")
		r.await(t, "the end", func() bool { return strings.Contains(r.stderr.String(), "mapper: done") })
		p99 := time.Duration(0)
		for line := range strings.Lines(r.stderr.String()) {
			if rest, ok := strings.CutPrefix(line, "mapper: lease and map "); ok {
				t.Logf("500 maps, lease and map: %s", strings.TrimSpace(rest))
				p99, _ = time.ParseDuration(strings.Fields(rest)[3])
			}
		}
		if p99 > 0 && p99 < most {
			return
		}
		if round == 3 {
			t.Fatalf("p99 is %v, over %v", p99, most)
		}
	}
}
