package harden

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/wire"
)

// What the step does to a real tree is seen in testbed/vm: the parts here are
// those that only read.

func TestFindCgroup(t *testing.T) {
	const unified = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	const inner = "30 24 0:26 /system.slice/a\\040b.service /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	for _, c := range []struct {
		cgroups, mounts string
		want            place
	}{
		{"0::/\n", unified, place{"/sys/fs/cgroup", true}},
		{"0::/system.slice/x.service\n", unified, place{"/sys/fs/cgroup/system.slice/x.service", false}},
		{"4:memory:/a\n0::/b\n", "1 2 0:1 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n", place{"/sys/fs/cgroup/unified/b", false}},
		{"0::/system.slice/a b.service\n", inner, place{"/sys/fs/cgroup", true}},
		{"0::/system.slice/a b.service/c\n", inner, place{"/sys/fs/cgroup/c", false}},
		{"0::/system.slice/a b.service2\n", inner, place{}},
		{"0::/..\n", unified, place{}},
		{"0::/../x\n", unified, place{}},
		{"0::/x/../../y\n", unified, place{}},
		{"0::x\n", unified, place{}},
		{"4:memory:/a\n", unified, place{}},
		{"0::/a\n", "1 2 0:1 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\nshort - cgroup2\n", place{}},
		{"", "", place{}},
	} {
		if got, ok := findCgroup(c.cgroups, c.mounts); got != c.want || ok != (c.want.dir != "") {
			t.Errorf("%q in %q: %v %t, want %v", c.cgroups, c.mounts, got, ok, c.want)
		}
	}
}

func FuzzFindCgroup(f *testing.F) {
	f.Add("0::/a\n", "30 24 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n")
	f.Fuzz(func(t *testing.T, cgroups, mounts string) {
		if at, ok := findCgroup(cgroups, mounts); ok == (at.dir == "") {
			t.Errorf("%q, %q: %v %t", cgroups, mounts, at, ok)
		}
	})
}

// group makes a folder that looks like a cgroup.
func group(t *testing.T, controllers, procs string, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"cgroup.controllers": controllers, "cgroup.procs": procs} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range more {
		var err error
		if folder, ok := strings.CutSuffix(name, "/"); ok {
			err = os.Mkdir(filepath.Join(dir, folder), 0o755)
		} else {
			err = os.WriteFile(filepath.Join(dir, name), nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestJudge(t *testing.T) {
	us := fmt.Sprintf("%d\n", os.Getpid())
	const all = "cpuset cpu io memory hugetlb pids\n"
	for _, c := range []struct {
		what, controllers, procs string
		files                    []string
		below                    bool // not the highest that we can see
		want                     []string
		why                      string
	}{
		{what: "a container's", controllers: all, procs: us, files: []string{"cgroup.type"}, want: []string{"memory", "pids", "cpu"}},
		{what: "the machine's, and nobody makes any", controllers: all, procs: "1\n2\n", want: []string{"memory", "pids", "cpu"}},
		{what: "the machine's, with ours of before", controllers: all, procs: "1\n2\n", files: []string{"botbox/", "botbox-supervisor/"}, want: []string{"memory", "pids", "cpu"}},
		{what: "only some", controllers: "memory io", procs: us, files: []string{"cgroup.type"}, want: []string{"memory"}},
		{what: "none of ours", controllers: "hugetlb io", procs: us, files: []string{"cgroup.type"}, why: "none of the controllers"},
		{what: "nothing that can be read", files: []string{"cgroup.type"}, why: "none of the controllers"},
		{what: "the machine's, and an init makes some", controllers: all, procs: "1\n2\n", files: []string{"system.slice/"}, why: "somebody else makes"},
		{what: "with a stranger", controllers: all, procs: us + "7777777\n", files: []string{"cgroup.type"}, why: "shared with process 7777777"},
		{what: "with one of another pid namespace", controllers: all, procs: "0\n" + us, files: []string{"cgroup.type"}, why: "shared with process 0"},
		{what: "a service's that was not delegated", controllers: all, procs: us, files: []string{"cgroup.type"}, below: true, why: "not delegated"},
	} {
		on, why := place{dir: group(t, c.controllers, c.procs, c.files...), top: !c.below}.judge()
		if !slices.Equal(on, c.want) || !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("%s: %q %q", c.what, on, why)
		}
	}
}

// Delegate=yes is written on the cgroup's folder.
func TestDelegated(t *testing.T) {
	dir := group(t, "memory", fmt.Sprint(os.Getpid()), "cgroup.type")
	for value, want := range map[string]bool{"1": true, "0": false, "": false, "11111": false} {
		if err := unix.Setxattr(dir, "user.delegate", []byte(value), 0); err != nil {
			if os.Getenv("BOTBOX_MUST_RUN") == "1" {
				t.Fatalf("this test must run: %v", err)
			}
			t.Skipf("no extended attributes here: %v", err)
		}
		if _, why := (place{dir: dir}).judge(); (why == "") != want {
			t.Errorf("user.delegate=%q: %q", value, why)
		}
	}
}

// On a machine whose controllers are of version 1, or whose cgroup is not
// ours, the step finds nothing to do and does nothing.
func TestAForeignCgroupIsLeftAlone(t *testing.T) {
	at, ok := ownCgroup()
	if ok {
		if _, why := at.judge(); why == "" {
			t.Skip("this test rules a cgroup of its own")
		}
	}
	if state, evidence := GiveCgroup(account(t)); state != wire.StepAbsent || evidence == "" {
		t.Errorf("%s: %s", state, evidence)
	}
	if now, _ := ownCgroup(); now != at {
		t.Errorf("we were in %v and are in %v", at, now)
	}
}
