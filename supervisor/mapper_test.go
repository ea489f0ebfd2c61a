package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// mapperWorld is a supervisor whose worker asks for maps and lies.
func mapperWorld(t testing.TB, mode string, vars ...string) *running {
	t.Helper()
	return mapperWorldAs(t, false, mode, vars...)
}

// mapperWorldAs is that with a supervisor that is or is not PID 1.
func mapperWorldAs(t testing.TB, child bool, mode string, vars ...string) *running {
	t.Helper()
	bin, err := os.MkdirTemp("", "mapper")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(bin) })
	if err := os.Chmod(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", bin+"/botbox", "./testdata/mapper")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("cp", filepath.Join(built, "botbox-supervisor"), bin).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := realWorldOf(t, bin, child, append([]string{"OMB_BOT_USERS=1", "OMB_BOX_FAKE=" + mode}, vars...))
	return r
}

// maps gives the maps of the sleeps below the supervisor.
func (r *running) maps() (all []string) {
	for _, pid := range descendants(r.Process.Pid) {
		if read(fmt.Sprintf("/proc/%d/cmdline", pid)) == "sleep\x004711\x00" {
			all = append(all, strings.Join(strings.Fields(read(fmt.Sprintf("/proc/%d/uid_map", pid))), " "))
		}
	}
	return all
}

func TestAMapIsWritten(t *testing.T) {
	r := mapperWorld(t, "good")
	r.await(t, "the answer", func() bool { return strings.Contains(r.stderr.String(), "mapper: uid.mapped map[lease:u1]") })
	id := account(t)
	if got, want := strings.Join(r.maps(), ";"), fmt.Sprintf("0 %d 1 %d 300000 1", id.UID, id.UID); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Whatever a worker lies about: root has done nothing for it, and it is
// replaced.
func TestHostileMappersAreReplaced(t *testing.T) {
	for mode, mapped := range map[string]int{ // how many maps were rightly asked for before the lie
		"unknown": 0, "replay": 1, "released": 0, "other-bots": 1, "initial": 0, "self-mapped": 0, "nested": 0,
		"grandchild": 0, "supervisor": 0, "flood": 0, "former": 0,
	} {
		bothWays(t, func(t *testing.T, child bool) {
			if mode == "supervisor" && !child {
				return // it tries the process above ours, of which there is none then
			}
			r := mapperWorldAs(t, child, mode)
			r.await(t, "the next worker", func() bool { return strings.Contains(r.stderr.String(), "mapper: replaced") })
			if !strings.Contains(r.stderr.String(), "the worker is replaced: the channel is dead: uid.") &&
				!strings.Contains(r.stderr.String(), "more leases are open") {
				t.Errorf("%s: said %s", mode, r.stderr.String())
			}
			written := 0
			for _, m := range r.maps() {
				if strings.Contains(m, "30000") {
					written++
				}
				if strings.Contains(m, "300001") {
					t.Errorf("the other bot's: %q", m)
				}
			}
			if written != mapped {
				t.Errorf("%s: %d maps, want %d: %q", mode, written, mapped, r.maps())
			}
		})
	}
}

// A child that has died is nobody's lie.
func TestAChildThatDiedIsRefused(t *testing.T) {
	r := mapperWorld(t, "dead")
	r.await(t, "the answer", func() bool {
		return strings.Contains(r.stderr.String(), "mapper: uid.refused map[code:bot-users-refused]")
	})
}

// What runs as the bot is killed, and nothing that does not.
func TestABotsProcessesAreKilled(t *testing.T) {
	r := mapperWorld(t, "kill")
	r.await(t, "the end", func() bool { return strings.Contains(r.stderr.String(), "mapper: the bot's process ended by signal 9") })
	if n := len(r.maps()); n != 1 {
		t.Errorf("%d sleeps are left, want the account's one", n)
	}
}

// The table is bounded, and what is over it is refused, not shared.
func TestBotsWithoutEndAreRefused(t *testing.T) {
	r := mapperWorld(t, "bots", "OMB_BOT_USERS_RANGE=300000-300019")
	r.await(t, "the refusal", func() bool { return strings.Contains(r.stderr.String(), "mapper: refused after 20 bots") })
	if n := strings.Count(read(r.out+"/state.ctl/bot-users"), "\n"); n != 21 {
		t.Errorf("%d lines", n)
	}
}

// A range that others have ends the boot, with the reason.
func TestATakenRangeEndsTheBoot(t *testing.T) {
	for _, c := range []struct{ setting, says string }{
		{"OMB_BOT_USERS_RANGE=61000-62000", "systemd's DynamicUser="},
		{"OMB_BOT_USERS_RANGE=900-1100", "accounts"},
		{"OMB_BOT_USERS_RANGE=7", "OMB_BOT_USERS_RANGE"},
		{"OMB_BOT_USERS=yes", "OMB_BOT_USERS"},
	} {
		r := mapperWorld(t, "good", c.setting)
		if status := r.status(t); status != 100 || !strings.Contains(r.stderr.String(), c.says) {
			t.Errorf("%s: %d %s", c.setting, status, r.stderr.String())
		}
	}
	r := mapperWorld(t, "good") // control, and then a table that somebody spoiled
	r.await(t, "the answer", func() bool { return strings.Contains(r.stderr.String(), "mapper: uid.mapped") })
	table := r.out + "/state.ctl/bot-users"
	if err := os.WriteFile(table, []byte("300000 a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Process.Kill()
	r.Wait()
	again := realWorldIn(t, r.out, r.bin, false, []string{"OMB_BOT_USERS=1", "OMB_BOX_FAKE=good"})
	if status := again.status(t); status != 100 || !strings.Contains(again.stderr.String(), "reason: bot-users-range") {
		t.Errorf("%d %s", status, again.stderr.String())
	}
}

// BenchmarkUIDMap prints what a bot's user adds to the start of a box.
func BenchmarkUIDMap(b *testing.B) {
	for range b.N {
		r := mapperWorld(b, "bench")
		r.await(b, "the end", func() bool { return strings.Contains(r.stderr.String(), "mapper: done") })
		for line := range strings.Lines(r.stderr.String()) {
			if strings.HasPrefix(line, "mapper: ") {
				b.Log(strings.TrimSpace(line))
			}
		}
	}
}

// BenchmarkBotsBox prints what a leased box takes from its asker's start to its
// end, with a user of its own and without, turn about.
func BenchmarkBotsBox(b *testing.B) {
	worlds := []*running{}
	for _, setting := range []string{"0", "1"} {
		r := realWorldOf(b, rig.Programs(b), true, []string{"OMB_BOT_USERS=" + setting})
		r.await(b, "the worker", func() bool { _, err := os.Stat(r.out + "/run/lease.sock"); return err == nil })
		worlds = append(worlds, r)
	}
	for range b.N {
		var took [2][]time.Duration
		for i := range 120 {
			r := worlds[i%2]
			cmd := r.box(b, "alice", "--", "true")
			begin := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v %s", err, out)
			}
			took[i%2] = append(took[i%2], time.Since(begin))
		}
		for i, name := range []string{"the account's", "a bot's own"} {
			slices.Sort(took[i])
			b.Logf("%s: min %v median %v", name, took[i][0], took[i][len(took[i])/2])
		}
	}
}
