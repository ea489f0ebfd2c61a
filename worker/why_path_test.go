package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// What `botbox why path` says is what `botbox run` does, path by path.
func TestWhyPathIsWhatHappens(t *testing.T) {
	p := newPlace(t)
	at := func(name string) string { return filepath.Join(p.top, name) }
	for _, dir := range []string{"other", "home/.openmausbot", "sockets"} {
		if err := os.MkdirAll(at(dir), 0o700); err != nil {
			t.Fatal(err)
		}
		rig.Give(t, at(dir))
	}
	rig.Write(t, at("work/file"), "x")
	rig.Write(t, at("other/file"), "x")
	if err := os.Symlink(at("other"), at("link")); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", at("sockets/docker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct{ path, sight, why string }{
		{p.work, "read and write (the work folder)", ""},
		{p.home, "an empty private folder", "it holds the data folder"},
		{at("home/.openmausbot"), "an empty private folder", "it is the data folder"},
		{p.run, "not there", "it is the worker's own"},
		{at("other"), "not there", ""},
		{at("other/file"), "not there", ""},
		{at("link"), "not there", "symbolic link on the way"},
		{at("sockets"), "not there", "docker.sock"},
		{at("sockets/docker.sock"), "not there", "it is a socket"},
		{at("missing"), "not there", "it does not exist"},
		{p.top, "nothing in it but what is let in below it", "it holds the worker's own folder"},
		{"/usr", "read-only (the system's programs)", "already, read-only"},
		{"/usr/bin/env", "in /usr, which is read-only", ""},
		{"/bin/env", "in /usr, which is read-only", "symbolic link on the way"},
		{"/etc/passwd", "in /etc, which is read-only", "the machine's settings"},
		{"/tmp", "an empty private folder", "other turns' files"},
		{"/sys/kernel", "not there", "the machine's kernel"},
		{"/proc/1", "the box's own /proc", "the machine's processes"},
		{"/", "nothing in it but what is let in below it", "it is the whole machine"},
	} {
		out := rig.Run(t, p.botbox(nil, "why", "path", c.path))
		// /tmp of a box is private, so what is below the test's folder is in it.
		sight := strings.Contains(out.Stdout, c.sight) || (strings.HasPrefix(c.path, p.top) && strings.Contains(out.Stdout, "in /tmp, which is an empty private folder"))
		if out.Code != 0 || !sight {
			t.Errorf("%s: %+v, want %q", c.path, out, c.sight)
		}
		for _, flag := range []string{"--ro", "--rw"} {
			said := strings.Contains(out.Stdout, flag+": allowed\n")
			if said == (c.why != "") || !strings.Contains(out.Stdout, c.why) {
				t.Errorf("%s: %s, want %q", c.path, out.Stdout, c.why)
			}
			if run := rig.Run(t, p.botbox(nil, "run", "--standalone", flag, c.path, "--", "true")); (run.Code == 0) != said {
				t.Errorf("botbox run %s %s: %+v; said: %s", flag, c.path, run, out.Stdout)
			}
		}
	}
	out := rig.Run(t, p.botbox(nil, "why", "path", "file")) // below the folder that it is asked in
	if !strings.Contains(out.Stdout, "in "+p.work+", which is read and write") ||
		!strings.Contains(out.Stdout, "--ro: refused: "+p.work+"/file may not enter the box: it lies in "+p.work+", which the box can write") ||
		!strings.Contains(out.Stdout, "--rw: allowed") {
		t.Errorf("a relative path: %+v", out)
	}
	cmd := p.botbox(nil, "why", "path", "/usr")
	cmd.Dir = "/"
	if out := rig.Run(t, cmd); out.Code != 0 || !strings.Contains(out.Stdout, "this one can be none") || !strings.Contains(out.Stdout, "read-only") {
		t.Errorf("where no work folder can be: %+v", out)
	}
}

// Every check is explained in boxprobe's own words.
func TestWhyCheckIsBoxprobesTable(t *testing.T) {
	p := newPlace(t)
	var rows []struct {
		ID, Layer, Tries, Expect, Control string
		BrokenBy                          []string `json:"broken_by"`
	}
	list := rig.Run(t, rig.Command(t, p.work, p.env, filepath.Join(p.bin, "boxprobe"), "--list"))
	if err := json.Unmarshal([]byte(list.Stdout), &rows); err != nil || len(rows) < 40 {
		t.Fatalf("%v, %d rows", err, len(rows))
	}
	for _, row := range rows {
		out := rig.Run(t, p.botbox(nil, "why", "check", row.ID))
		for _, want := range append([]string{row.ID + ", of the layer " + row.Layer, row.Tries, row.Expect, row.Control}, row.BrokenBy...) {
			if !strings.Contains(out.Stdout, want) {
				t.Errorf("%s: %+v, want %q", row.ID, out, want)
			}
		}
	}
	if out := rig.Run(t, p.botbox(nil, "why", "check", "X99")); out.Code != 100 || !strings.Contains(out.Stderr, `no check "X99"`) {
		t.Errorf("%+v", out)
	}
}
