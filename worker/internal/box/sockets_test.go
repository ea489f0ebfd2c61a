package box

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What looking for sockets costs does not depend on how large a folder is
// (claude-code#84681): it reads one buffer of names.
func TestLookingForSocketsIsBounded(t *testing.T) {
	top, err := os.MkdirTemp("/tmp", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(top)
	small, large := folder(t, top+"/small"), folder(t, top+"/large")
	for i := range 5000 {
		if err := os.Symlink("x", fmt.Sprintf("%s/%d", large, i)); err != nil {
			t.Fatal(err)
		}
	}
	quickest := func(dir string) time.Duration {
		best := time.Hour
		for range 50 {
			begin := time.Now()
			f, err := openSource(Mount{Kind: Bind, Source: dir, Sockets: KnownSocket})
			if err != nil {
				t.Fatal(err)
			}
			best = min(best, time.Since(begin))
			f.Close()
		}
		return best
	}
	if s, l := quickest(small), quickest(large); l > 20*s+2*time.Millisecond {
		t.Errorf("%v for an empty folder, %v for a large one", s, l)
	}
	// A name that is looked for is found all the same.
	l, err := net.Listen("unix", filepath.Join(large, "docker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := openSource(Mount{Kind: Bind, Source: large, Sockets: KnownSocket}); err == nil || !strings.Contains(err.Error(), "Docker") {
		t.Errorf("a large folder that holds Docker's socket: %v", err)
	}
}

func FuzzSocketEntries(f *testing.F) {
	dir := f.TempDir()
	l, err := net.Listen("unix", dir+"/s")
	if err != nil {
		f.Fatal(err)
	}
	defer l.Close()
	open, err := os.Open(dir)
	if err != nil {
		f.Fatal(err)
	}
	defer open.Close()
	if names, err := someNames(open); err != nil || len(names) != 1 || names[0] != "s" {
		f.Fatalf("positive control: %q, %v", names, err)
	}
	f.Add([]byte{0: 1, 16: 24, 18: 12, 19: 's', 23: 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range socketEntries(b) {
			if len(name) > len(b) {
				t.Errorf("%q", name)
			}
		}
	})
}
