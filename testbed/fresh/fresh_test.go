package fresh

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

var (
	proved     = regexp.MustCompile(`(?m)^ *(\d+)/(\d+) checks passed$`)
	installing = regexp.MustCompile(`(?m)^setup\.sh: `)
)

// allPassed wants a self-check that was carried out, and held.
func allPassed(t *testing.T, out string) {
	t.Helper()
	if m := proved.FindStringSubmatch(out); m == nil || m[1] != m[2] || len(m[1]) < 2 {
		t.Errorf("the self-check did not pass:\n%s", out)
	}
}

// as wraps a script for whoever works on a suite's machine: root on one, and on
// the other somebody who has sudo, as README.md says.
func (m *machine) as(t *testing.T, suite string) (home string, wrap func(string) string) {
	t.Helper()
	if suite == "bookworm" {
		return "root", func(script string) string { return "cd /root/botbox && " + script }
	}
	return m.sudoer(t)
}

// sudoer makes a user who may do everything through sudo.
func (m *machine) sudoer(t *testing.T) (home string, wrap func(string) string) {
	t.Helper()
	m.install(t, "sudo")
	m.must(t, time.Minute, `useradd --create-home --shell /bin/sh dev && cat >/etc/sudoers.d/dev <<END
dev ALL=(ALL) NOPASSWD: ALL
# Where modules come from, on a machine without a network of its own.
Defaults env_keep += "GOPROXY GOCACHE GOTOOLCHAIN NODE_EXTRA_CA_CERTS"
END`)
	return "home/dev", func(script string) string {
		file := filepath.Join(m.dir, "upper/srv/script")
		if err := os.WriteFile(file, []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
		return "chown -R dev:dev /home/dev && cd /home/dev/botbox && exec setpriv --reuid dev --regid dev --init-groups env HOME=/home/dev sh /srv/script"
	}
}

// TestLaptop: the page for a laptop, as it is written.
func TestLaptop(t *testing.T) {
	blocks := rig.Page(t, "docs/laptop.md", "laptop")
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			m := newMachine(t, suite)
			home, wrap := m.sudoer(t)
			m.clone(t, home+"/botbox")
			got := m.must(t, 10*time.Minute, wrap(rig.Script(blocks)))
			rig.Printed(t, "docs/laptop.md", blocks, got.Stdout)
		})
	}
}

// TestRun: `make run` alone, on a machine that has Go, make, and root or sudo.
func TestRun(t *testing.T) {
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			m := newMachine(t, suite)
			if got := m.run(t, time.Minute, "for p in bwrap curl git sudo make go; do command -v $p; done"); got.Stdout != "/usr/bin/make\n/srv/lent/go/bin/go\n" {
				t.Fatalf("the machine is not fresh: %+v", got)
			}
			home, wrap := m.as(t, suite)
			m.clone(t, home+"/botbox")
			first := m.must(t, 10*time.Minute, wrap("make run"))
			if !strings.Contains(first.Stderr, "setup.sh: installing bubblewrap curl\n") || !strings.Contains(first.Stderr, "setup.sh: creating the user maus\n") {
				t.Errorf("it did not say what it installs:\n%s", first.Stderr)
			}
			for _, want := range []string{"In the box\n", "Hello from the stand-in model.\n", "nowhere, in ", "cloud metadata service (403)\n"} {
				if !strings.Contains(first.Stdout, want) {
					t.Errorf("no %q in\n%s", want, first.Stdout)
				}
			}
			allPassed(t, first.Stdout)
			second := m.must(t, 10*time.Minute, wrap("make run"))
			if left := command(t, "git", "-c", "safe.directory=*", "-C", filepath.Join(m.dir, "upper", home, "botbox"), "status", "--porcelain"); left != "" {
				t.Errorf("it left in the checkout:\n%s", left)
			}
			if installing.MatchString(second.Stderr) {
				t.Errorf("the second run was not content:\n%s", second.Stderr)
			}
			allPassed(t, second.Stdout)
		})
	}
}

// part is what is tested of `make test` here: rules, and real boxes. All of it
// takes the time that it takes beside this test.
const part = "./shared/... ./worker/internal/box"

// TestTest: `make test` alone. What it installs is kept, and has to be enough
// for it in a machine that was not there when it was installed.
// BOTBOX_FRESH=all tests everything in there, but for this package.
func TestTest(t *testing.T) {
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			m := newMachine(t, suite, prepared(t, suite))
			home, wrap := m.as(t, suite)
			m.clone(t, home+"/botbox")
			tests, within := part, 10*time.Minute
			if os.Getenv("BOTBOX_FRESH") == "all" {
				tests, within = "$(go list ./... | grep -v testbed/fresh | tr \"\\n\" \" \")", 80*time.Minute
			}
			got := m.must(t, within, wrap(`make test TESTS="`+tests+`"`))
			if installing.MatchString(got.Stderr) {
				t.Errorf("it installed more than make setup-test had:\n%s", got.Stderr)
			}
			for _, want := range []string{"ok  \tgithub.com/openmausbot/botbox/shared/seccomp\t", "ok  \tgithub.com/openmausbot/botbox/worker/internal/box\t"} {
				if !strings.Contains(got.Stdout, want) {
					t.Errorf("no %q in\n%s", want, got.Stdout)
				}
			}
		})
	}
}

// prepared is what `make setup-test` writes on a fresh machine, kept until the
// list of packages or the machine changes.
func prepared(t *testing.T, suite string) string {
	t.Helper()
	return layer(t, suite, "prepared-"+key(t, "testbed/setup.sh"), func(m *machine) {
		m.clone(t, "srv/botbox")
		got := m.must(t, 20*time.Minute, "cd /srv/botbox && make setup-test && make setup-test 2>/tmp/second && test ! -s /tmp/second && apt-get clean && rm -rf /srv/botbox")
		if !strings.Contains(got.Stderr, "setup.sh: installing ") {
			t.Fatalf("nothing was missing in a fresh machine:\n%s", got.Stderr)
		}
	})
}
