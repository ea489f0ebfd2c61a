package harden

import (
	"net"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/supervisor/internal/privdrop"
)

func account(t *testing.T) privdrop.Account {
	t.Helper()
	passwd, _ := os.ReadFile("/etc/passwd")
	id, err := privdrop.FindAccount(string(passwd))
	if err == nil && os.Geteuid() == 0 {
		return id
	}
	if os.Getenv("BOTBOX_MUST_RUN") == "1" {
		t.Fatalf("this test must run: user %d, %v", os.Geteuid(), err)
	}
	t.Skip("needs root and the account maus")
	return id
}

// open makes a folder that everybody can enter, as t.TempDir is not.
func open(t *testing.T) string {
	dir, err := os.MkdirTemp("", "hd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	return dir
}

func TestProcMounts(t *testing.T) {
	text := "22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw,hidepid=invisible\n" +
		"23 27 0:22 / /sys rw - sysfs sysfs rw\n" +
		"40 22 0:21 /sys /proc/sys ro - proc proc rw\nnonsense\n" +
		`41 22 0:50 / /odd\040place rw - proc proc rw` + "\n"
	want := []procMount{{22, "0:21", "/proc", "rw,hidepid=invisible"}, {40, "0:21", "/proc/sys", "rw"}, {41, "0:50", "/odd place", "rw"}}
	if got := procMounts(text); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

func FuzzProcMounts(f *testing.F) {
	f.Add("22 27 0:21 / /proc rw,relatime - proc proc rw\n")
	f.Fuzz(func(t *testing.T, text string) { procMounts(text) })
}

func TestLockFly(t *testing.T) {
	id := account(t)
	base := open(t)
	fly := base + "/fly"
	if state, _ := LockFly(fly, id); state != wire.StepAbsent {
		t.Errorf("nothing there: %s", state)
	}
	os.Mkdir(fly, 0o777)
	os.Chmod(fly, 0o777)
	l, err := net.Listen("unix", fly+"/api")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	os.Chmod(fly+"/api", 0o777)
	os.Link(fly+"/api", base+"/alias")
	if in, err := enters(id, fly, nowhere); !in || err != nil {
		t.Fatalf("control: the account cannot enter before: %t %v", in, err)
	}
	if state, evidence := LockFly(fly, id); state != wire.StepDone {
		t.Errorf("%s: %s", state, evidence)
	}
	for path, want := range map[string]os.FileMode{fly: 0o700, base + "/alias": 0o700} {
		if st, err := os.Lstat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v %v", path, st.Mode(), err)
		}
	}
	os.Symlink(fly, base+"/link")
	os.WriteFile(base+"/file", nil, 0o644)
	os.Mkdir(base+"/theirs", 0o755)
	os.Chown(base+"/theirs", int(id.UID), 0)
	for _, name := range []string{"link", "file", "theirs"} {
		if state, evidence := LockFly(filepath.Join(base, name), id); state != wire.StepFailed {
			t.Errorf("%s: %s %s", name, state, evidence)
		}
	}
}

func TestMakeFolder(t *testing.T) {
	id := account(t)
	base := open(t)
	os.Mkdir(base+"/loose", 0o777)
	os.Chmod(base+"/loose", 0o777)
	os.Symlink(base, base+"/link")
	os.Mkdir(base+"/foreign", 0o700)
	os.Chown(base+"/foreign", 1, 1)
	os.WriteFile(base+"/file", nil, 0o644)
	// In this order: below a folder that was given away nothing more is made.
	for _, c := range []struct {
		path string
		good bool
	}{
		{"/a/b/c", true}, {"/a/b", true}, {"/a/b/d", false}, {"/loose/x", false}, {"/link/x", false},
		{"/foreign", false}, {"/foreign/x", false}, {"/file", false}, {"/a/../x", false},
	} {
		path, good := c.path, c.good
		err := MakeFolder(Folder{Path: base + path, UID: id.UID, GID: id.GID, Mode: 0o750})
		if (err == nil) != good {
			t.Errorf("%s: %v", path, err)
		}
		if good && path == "/a/b/c" {
			st, _ := os.Stat(base + path)
			if st.Mode() != os.ModeDir|0o750 {
				t.Errorf("%s has mode %v", path, st.Mode())
			}
		}
	}
}

func TestTrustCode(t *testing.T) {
	account(t)
	base := open(t)
	os.WriteFile(base+"/p", nil, 0o755)
	if state, evidence := TrustCode(base + "/p"); state != wire.StepDone {
		t.Errorf("control: %s %s", state, evidence)
	}
	os.Symlink("p", base+"/link")
	os.WriteFile(base+"/w", nil, 0o755)
	os.Chmod(base+"/w", 0o775)
	os.WriteFile(base+"/theirs", nil, 0o755)
	os.Chown(base+"/theirs", 1, 1)
	for _, name := range []string{"link", "w", "theirs", "missing"} {
		if state, _ := TrustCode(base + "/" + name); state != wire.StepFailed {
			t.Errorf("%s: %s", name, state)
		}
	}
}
