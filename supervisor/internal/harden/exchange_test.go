package harden

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// CVE-2026-27456: a folder on the way is exchanged for a link, again and again,
// while ours is made below it. It is made where it was asked for or not at all,
// and nothing at the link's end is ever touched.
func TestBug_CVE202627456_ExchangedFolders(t *testing.T) {
	id := account(t)
	base := open(t)
	for _, dir := range []string{"/way", "/elsewhere"} {
		if err := os.Mkdir(base+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(base+"/elsewhere", base+"/link"); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan bool), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				if n%2 == 1 {
					unix.Renameat2(unix.AT_FDCWD, base+"/way", unix.AT_FDCWD, base+"/link", unix.RENAME_EXCHANGE)
				}
				stopped <- n
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, base+"/way", unix.AT_FDCWD, base+"/link", unix.RENAME_EXCHANGE)
			}
		}
	}()
	made, refused := 0, 0
	for range 2000 {
		if err := MakeFolder(Folder{Path: base + "/way/ours", UID: id.UID, GID: id.GID, Mode: 0o700}); err != nil {
			refused++
		} else {
			made++
		}
		os.Remove(base + "/way/ours") // through whatever it is now: a link leads to a folder without it
	}
	close(stop)
	exchanged := <-stopped
	if entries, err := os.ReadDir(base + "/elsewhere"); err != nil || len(entries) > 0 {
		t.Errorf("at the link's end: %v %v", entries, err)
	}
	t.Logf("%d made, %d refused, %d exchanges", made, refused, exchanged)
	if made < 10 || refused < 10 || exchanged < 100 {
		t.Error("that was no race")
	}
}
