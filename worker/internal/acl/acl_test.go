package acl

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestFor(t *testing.T) {
	base := OfMode(0o750)
	for _, c := range []struct {
		what             string
		l                List
		id, owner, group uint32
		want             Perm
	}{
		{"owner", base, 5, 5, 6, R | W | X},
		{"group", base, 6, 5, 6, R | X},
		{"other", base, 7, 5, 6, 0},
		{"named user", base.With(User, 7, X), 7, 5, 6, X},
		{"named group", base.With(Group, 7, R), 7, 5, 6, R},
		{"another's name", base.With(User, 8, R|W|X), 7, 5, 6, 0},
		{"taken out again", base.With(User, 7, X).Without(User, 7), 7, 5, 6, 0},
		{"in place of", base.With(User, 7, R|W|X).With(User, 7, X), 7, 5, 6, X},
		{"a mask", List{{UserObj, 7, noID}, {User, 7, 7}, {GroupObj, 0, noID}, {Mask, R, noID}, {Other, 0, noID}}, 7, 5, 6, R},
	} {
		if got := c.l.For(c.id, c.owner, c.group); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	if base.Named() || !base.With(User, 1, R).Named() || base.With(User, 1, R).Without(User, 1).Named() {
		t.Error("Named")
	}
}

// What is written is what the kernel gives back, and it follows it.
func TestOnAFile(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	os.Chmod(dir, 0o700)
	want := OfMode(0o700).With(User, 300001, R|W|X).With(Group, 7, R)
	if err := Set(int(f.Fd()), want); err != nil {
		t.Fatal(err)
	}
	if err := SetDefault(int(f.Fd()), want); err != nil {
		t.Fatal(err)
	}
	got, err := Of(int(f.Fd()), 0)
	if err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	if may, err := May(f, 300001); err != nil || may != R|W|X {
		t.Errorf("named: %d %v", may, err)
	}
	if may, err := May(f, 300002); err != nil || may != 0 {
		t.Errorf("not named: %d %v", may, err)
	}
	sub := filepath.Join(dir, "sub")
	os.Mkdir(sub, 0o770)
	g, err := os.Open(sub)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if may, err := May(g, 300001); err != nil || may != R|W|X {
		t.Errorf("inherited: %d %v", may, err)
	}
	if err := SetDefault(int(f.Fd()), nil); err != nil {
		t.Fatal(err)
	}
	if l, err := DefaultOf(int(f.Fd())); l != nil || err != nil {
		t.Errorf("left: %v %v", l, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(OfMode(0o644).With(User, 7, R).Bytes())
	f.Add([]byte{2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(l.Bytes())
		if err != nil || !bytes.Equal(again.Bytes(), l.Bytes()) {
			t.Fatalf("%v: %v %v", l, again, err)
		}
		l.For(1, 2, 3)
	})
}
