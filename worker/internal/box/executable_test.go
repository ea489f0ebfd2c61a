package box

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestInstall(t *testing.T) {
	for real, want := range map[string]string{
		"/h/u/.local/share/claude/versions/1.2":                      "/h/u/.local/share/claude/versions/1.2",
		"/h/u/.nvm/versions/node/v20/lib/node_modules/@a/b/cli.js":   "/h/u/.nvm/versions/node/v20",
		"/h/u/.npm-global/lib/node_modules/@a/b/cli.js":              "/h/u/.npm-global/lib/node_modules",
		"/h/u/p/node_modules/x/node_modules/y/y.js":                  "/h/u/p/node_modules",
		"/h/u/.local/share/mise/installs/node/20/bin/node":           "/h/u/.local/share/mise/installs/node/20",
		"/h/u/.nvm/versions/node/v20":                                "/h/u/.nvm/versions/node/v20",
		"/h/u/.local/share/uv/python/cpython-3.12-linux/bin/python3": "/h/u/.local/share/uv/python/cpython-3.12-linux",
		"/h/u/bin/tool": "/h/u/bin/tool",
	} {
		if got := install(real); got != want {
			t.Errorf("%s comes with %s, want %s", real, got, want)
		}
	}
}

func TestFollow(t *testing.T) {
	top := t.TempDir()
	file(t, top+"/real/tool", "#!/bin/sh\n")
	file(t, top+"/key", "secret")
	if err := os.Chmod(top+"/key", 0o600); err != nil {
		t.Fatal(err)
	}
	for at, to := range map[string]string{"dir": "real", "abs": top + "/dir/tool", "loop": "loop", "gone": "nothing"} {
		if err := os.Symlink(to, top+"/"+at); err != nil {
			t.Fatal(err)
		}
	}
	real, links := follow(top + "/abs")
	if real != top+"/real/tool" || !slices.Equal(links, []Link{{top + "/abs", top + "/dir/tool"}, {top + "/dir", "real"}}) {
		t.Errorf("%s by %v", real, links)
	}
	for _, path := range []string{top + "/loop", top + "/gone", top + "/real", top + "/key", "real/tool", ""} {
		if real, _ := follow(path); real != "" {
			t.Errorf("%q leads to %s", path, real)
		}
	}
}

func FuzzShebang(f *testing.F) {
	for text, want := range map[string]string{
		"#!/bin/sh\n": "/bin/sh", "#! /usr/bin/env -S A=1 node --x\n": "node", "#!/usr/bin/env\n": "", "\x7fELF": "", "#!": "", "": "",
	} {
		if got := shebang([]byte(text)); got != want {
			f.Errorf("%q names %q, want %q", text, got, want)
		}
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if name := shebang(b); name != "" && (strings.ContainsAny(name, " \n\t") || !strings.Contains(string(b), name)) {
			t.Errorf("%q names %q", b, name)
		}
	})
}

// The way to a command may lead through a folder that a box has written: it is
// not followed out of there.
func TestTheWayToACommandEndsWhereABoxCanWrite(t *testing.T) {
	secret := Step{nil, "/home/u/bin/secret", "/home/u/bin/secret"}
	for name, c := range map[string]struct {
		x    Executable
		want bool
	}{
		"by itself":                {Executable{secret}, true},
		"a link of the system's":   {Executable{{[]Link{{"/usr/local/bin/claude", secret.Real}}, secret.Real, secret.Place}}, true},
		"a link in the work":       {Executable{{[]Link{{"/srv/project/claude", secret.Real}}, secret.Real, secret.Place}}, false},
		"a link to a link there":   {Executable{{[]Link{{"/home/u/bin/claude", "/srv/project/x"}, {"/srv/project/x", secret.Real}}, secret.Real, secret.Place}}, false},
		"a script's interpreter":   {Executable{{nil, "/srv/project/script", "/srv/project/script"}, secret}, false},
		"a script of the system's": {Executable{{nil, "/usr/bin/script", "/usr/bin/script"}, secret}, true},
	} {
		m := debian()
		m.Executable = c.x
		p, err := NewPlan(claude("private"), m, ports)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.visible(secret.Real) != nil; got != c.want {
			t.Errorf("%s: let in: %v", name, got)
		}
	}
}
