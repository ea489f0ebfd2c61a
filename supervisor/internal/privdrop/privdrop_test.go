package privdrop

import (
	"os"
	"testing"
)

func TestFindAccount(t *testing.T) {
	for text, want := range map[string]Account{
		"root:x:0:0::/root:/bin/sh\nmaus:x:999:995::/home/maus:/usr/sbin/nologin\n": {999, 995, "/home/maus"},
		"maus:x:5:6::/h:": {5, 6, "/h"},
	} {
		if got, err := FindAccount(text); err != nil || got != want {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "mausx:x:5:6::/h:\n", "maus:x:0:6::/h:\n", "maus:x:5:0::/h:\n", "maus:x:a:6::/h:\n",
		"maus:x:5:6:/h:\n", "maus:x:-1:6::/h:\n", "maus:x:4294967295:6::/h:\n", "#maus:x:5:6::/h:\n"} {
		if got, err := FindAccount(text); err == nil {
			t.Errorf("%q gave %v", text, got)
		}
	}
}

func FuzzFindAccount(f *testing.F) {
	f.Add("maus:x:999:995::/home/maus:/bin/sh\n")
	f.Fuzz(func(t *testing.T, text string) {
		if a, err := FindAccount(text); err == nil && (a.UID == 0 || a.GID == 0) {
			t.Errorf("%q gave root: %v", text, a)
		}
	})
}

func TestKeptRowsHaveReasons(t *testing.T) {
	for _, c := range Kept() {
		if c.Why == "" || c.Name == "" {
			t.Errorf("%v", c)
		}
	}
	if keptMask() != 0xe0 {
		t.Errorf("mask %x", keptMask())
	}
}

// The memfd of a resume must be sealed and root's; anything else is refused.
func TestStateRefusesWhatIsNotSealed(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, arg := range []string{"--resume=", "--resume=x", "--resume=0", "--resume=-1", "--resume=9999", "--resume=3"} {
		if _, err := State([]string{"botbox-supervisor", arg}); err == nil {
			t.Errorf("%s is taken", arg)
		}
	}
}
