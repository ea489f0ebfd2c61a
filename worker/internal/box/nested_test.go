package box

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

func folder(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func file(t *testing.T, path, content string) {
	t.Helper()
	folder(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// nestedPlan lays a team's sign-in over .codex, a mask over hidden/deep and a
// guard over .git/config, in one folder.
func nestedPlan(t *testing.T, top string) *Plan {
	t.Helper()
	home, team := filepath.Join(top, "home"), filepath.Join(top, "team")
	p := &Plan{Mounts: []Mount{
		{Kind: Bind, Source: home, Dest: home},
		{Kind: Bind, Source: team, Dest: home + "/.codex", Nested: true},
		{Kind: Tmpfs, Dest: home + "/hidden/deep", Size: mib},
		{Kind: ROBind, Source: home + "/.git/config", Dest: home + "/.git/config", Nested: true},
	}}
	if err := p.orderMounts(); err != nil {
		t.Fatal(err)
	}
	return p
}

func layNested(t *testing.T, top string) {
	t.Helper()
	for _, dir := range []string{"home/.codex", "home/hidden/deep", "home/.git", "team", "fixture"} {
		folder(t, filepath.Join(top, dir))
	}
	file(t, filepath.Join(top, "home/.git/config"), "")
}

// A thousand links planted where a nested mount stands, or on the way there:
// each is seen before bubblewrap is started.
func TestPlantedDestinations(t *testing.T) {
	top := t.TempDir()
	layNested(t, top)
	p := nestedPlan(t, top)
	open := func() error {
		files, feet, err := openSources(p)
		closeAll(files)
		if err == nil && len(feet) != 5 {
			t.Fatalf("%d nested mounts", len(feet))
		}
		return err
	}
	if err := open(); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	spots := []string{".codex", "hidden", "hidden/deep", ".git", ".git/config"}
	for range 1000 {
		at := filepath.Join(top, "home", spots[r.IntN(len(spots))])
		to := []string{"/oldroot", "", strings.Repeat("../", r.IntN(14)) + "oldroot", strings.Repeat("../", r.IntN(14))}[r.IntN(4)] +
			filepath.Join(top, "fixture") + []string{"", "/x", "/x/y"}[r.IntN(3)]
		if err := os.Rename(at, top+"/aside"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
		if err := open(); err == nil || reason.Of(err).Code != reason.PathRefused {
			t.Fatalf("%s -> %s: %v", at, to, err)
		}
		os.Remove(at)
		if err := os.Rename(top+"/aside", at); err != nil {
			t.Fatal(err)
		}
	}
	if entries, _ := os.ReadDir(top + "/fixture"); len(entries) != 0 {
		t.Errorf("made outside: %v", entries)
	}
	if err := open(); err != nil {
		t.Errorf("positive control, all links gone: %v", err)
	}
}

// A thousand times a source is exchanged for a link while it is opened: what
// was opened is the folder itself, or nothing.
func TestExchangedWhileOpened(t *testing.T) {
	top := t.TempDir()
	own, link := folder(t, top+"/own"), top+"/link"
	folder(t, top+"/victim")
	file(t, top+"/own/deep/f", "own")
	file(t, top+"/victim/deep/f", "victim")
	if err := os.Symlink(top+"/victim", link); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, own, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	}()
	opened, refused := 0, 0
	for tries := 0; tries < 1000 || (opened == 0 || refused == 0) && tries < 100000; tries++ {
		f, err := openSource(Mount{Kind: ROBind, Source: own + "/deep/f"})
		if err != nil {
			refused++
			continue
		}
		opened++
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		f.Close()
		if err != nil || string(b) != "own" {
			t.Fatalf("what was opened holds %q, %v", b, err)
		}
	}
	close(stop)
	<-stopped
	if opened == 0 || refused == 0 {
		t.Errorf("%d opened, %d refused: nothing was exchanged in between", opened, refused)
	}
}

// A mount that is not where it was planned, or whose place was exchanged, ends
// the box before its engine runs.
func TestStand(t *testing.T) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var f footing
	point := mountPoints(string(b))[0]
	place := folder(t, t.TempDir()+"/place")
	if _, err := f.look(unix.AT_FDCWD, place); err != nil {
		t.Fatal(err)
	}
	f.dest, f.host = point, place
	if err := stand([]footing{f}, os.Getpid()); err != nil {
		t.Errorf("positive control: %v", err)
	}
	elsewhere := f
	elsewhere.dest = place
	if err := stand([]footing{f, elsewhere}, os.Getpid()); err == nil {
		t.Error("a mount that is not there stands")
	}
	os.Rename(place, place+".old")
	folder(t, place)
	if err := stand([]footing{f}, os.Getpid()); err == nil {
		t.Error("a place that was exchanged is the same")
	}
}

func FuzzMountPoints(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n")
	f.Add(`1 2 3:4 / /a\040b\134c rw` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		points := mountPoints(text)
		if len(points) > strings.Count(text, "\n")+1 || slices.Contains(points, "") {
			t.Errorf("%q", points)
		}
	})
}

func TestMountPoints(t *testing.T) {
	got := mountPoints(`36 35 98:0 / /a\040b\134c\011d rw - ext3 x rw` + "\nshort line\n")
	if !slices.Equal(got, []string{"/a b\\c\td"}) {
		t.Errorf("%q", got)
	}
}
