package fresh

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// pack makes the Debian package of a checkout, in a folder of its own.
func pack(t *testing.T, checkout string, env []string, version ...string) (file string) {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		rig.Missing(t, "no dpkg-deb: %v", err)
	}
	cmd := exec.Command("/bin/sh", append([]string{filepath.Join(checkout, "init/debian/package.sh"), t.TempDir()}, version...)...)
	cmd.Env = append(os.Environ(), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("package.sh: %v\n%s", err, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// give copies files into the machine's /srv.
func (m *machine) give(t *testing.T, files ...string) {
	t.Helper()
	at := filepath.Join(m.dir, "upper/srv")
	command(t, append([]string{"install", "-D", "-m", "644", "-t", at}, files...)...)
}

// TestReproducible: two checkouts of one source, one by another umask, the same
// bytes; another date is another package.
func TestReproducible(t *testing.T) {
	var made [][]byte
	checkout := filepath.Join(t.TempDir(), "botbox")
	command(t, "sh", "-c", "umask 077 && git -c safe.directory='*' clone --quiet file://"+rig.Root()+" "+checkout)
	date := "SOURCE_DATE_EPOCH=" + command(t, "git", "-c", "safe.directory=*", "-C", rig.Root(), "log", "-1", "--format=%ct")
	for _, c := range []struct {
		checkout string
		env      []string
	}{{checkout, []string{date, "TZ=Asia/Tokyo"}}, {rig.Root(), []string{date, "LC_ALL=C.UTF-8"}}, {checkout, []string{"SOURCE_DATE_EPOCH=1700000000"}}} {
		b, err := os.ReadFile(pack(t, c.checkout, append(c.env, "BUILD=same"), "1~same"))
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, b)
	}
	if !bytes.Equal(made[0], made[1]) {
		t.Error("two packages of one commit differ")
	}
	if bytes.Equal(made[0], made[2]) {
		t.Error("a package of another date is the same")
	}
}

// TestLintian: Debian's own rules; what we do otherwise has a reason in
// init/debian/lintian-overrides.
func TestLintian(t *testing.T) {
	m := newMachine(t, "trixie", layer(t, "trixie", "lintian", func(m *machine) { m.install(t, "lintian") }))
	good := pack(t, rig.Root(), nil)
	bad := t.TempDir()
	// A package with a fault that it has to see.
	command(t, "sh", "-c", "dpkg-deb -R "+good+" "+bad+"/tree && chmod 666 "+bad+"/tree/usr/lib/sysusers.d/botbox.conf && dpkg-deb --root-owner-group -b "+bad+"/tree "+bad+"/botbox_0_amd64.deb")
	m.give(t, good, bad+"/botbox_0_amd64.deb")
	if got := m.run(t, 2*time.Minute, "lintian --fail-on error,warning /srv/botbox_0_amd64.deb"); got.Code == 0 || !strings.Contains(got.Stdout, "non-standard-file-perm") {
		t.Errorf("it saw no fault: %+v", got)
	}
	if got := m.run(t, 2*time.Minute, "lintian --fail-on error,warning --display-info /srv/"+filepath.Base(good)); got.Code != 0 {
		t.Errorf("%s%s", got.Stdout, got.Stderr)
	} else {
		t.Log(got.Stdout)
	}
}

// everything lists all that is there but for dpkg's own books.
const everything = `found() { find / -xdev '(' -path /var/lib/dpkg -o -path /var/log/dpkg.log ')' -prune -o "$@"; }
found -printf '%p %y %m %u %g %l\n' | sort; found -type f -print0 | sort -z | xargs -0 md5sum`

// TestPackage: installed by dpkg, it is complete and starts nothing; what it
// made stays on an upgrade and on removal, and goes on purge, but for the account.
func TestPackage(t *testing.T) {
	first, second := pack(t, rig.Root(), nil, "1~first"), pack(t, rig.Root(), nil, "1~second")
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			m := newMachine(t, suite)
			m.give(t, first, second)
			if got := m.run(t, time.Minute, "dpkg --dry-run --no-act -i /srv/botbox_1~first_*.deb; dpkg -i /srv/botbox_1~first_*.deb; code=$?; dpkg -P botbox; exit $code"); got.Code == 0 || !strings.Contains(got.Stderr, "botbox depends on bubblewrap (>= 0.8.0)") {
				t.Fatalf("installed where bubblewrap is missing: %+v", got)
			}
			m.install(t, "bubblewrap", "ca-certificates", "systemd")
			before := m.must(t, time.Minute, everything).Stdout

			got := m.must(t, time.Minute, "dpkg -i /srv/botbox_1~first_*.deb")
			if !strings.Contains(got.Stdout, "nothing was started") {
				t.Errorf("it does not say what it did:\n%s", got.Stdout)
			}
			m.works(t)
			if seen := strings.Join(difference(before, m.must(t, time.Minute, everything).Stdout), "\n"); !strings.Contains(seen, "/usr/libexec/botbox/botbox f 711 root root") || !strings.Contains(seen, "/var/lib/maus d 700 maus maus") {
				t.Fatalf("what was installed is not seen:\n%s", seen)
			}
			m.must(t, time.Minute, "test -e /var/lib/botbox && dpkg -i /srv/botbox_1~second_*.deb && test -e /var/lib/botbox && dpkg -l botbox | grep -q 1~second")
			m.must(t, time.Minute, "echo OMB_LOG=text >/etc/botbox.env && dpkg -r botbox && test -e /var/lib/botbox && test -e /etc/botbox.env && test ! -e /usr/libexec/botbox && ! command -v botbox")
			m.must(t, time.Minute, "dpkg -P botbox && ! dpkg -l botbox")
			after := m.must(t, time.Minute, everything).Stdout
			for _, line := range difference(before, after) {
				if !account.MatchString(line) {
					t.Errorf("left or changed: %s", line)
				}
			}
			m.must(t, time.Minute, `for f in passwd group shadow gshadow; do new=$(diff /etc/$f- /etc/$f | grep '^[<>]'); case $new in '> maus:'*) ;; *) echo "$f: $new"; exit 1 ;; esac; done`)
		})
	}
}

// account is what a new account changes.
var account = regexp.MustCompile(`[ /]etc/((passwd|group|shadow|gshadow)-?|\.pwd\.lock)( f |$)`)

// works tries the installed programs: nothing runs, the machine can box, the
// check holds, and the supervisor boxes a command.
func (m *machine) works(t *testing.T) {
	t.Helper()
	if got := m.run(t, time.Minute, "ps -e -o args= 2>/dev/null | grep -v ps | grep botbox; grep -l botbox /proc/[0-9]*/comm; ls /etc/systemd/system/*.wants | grep botbox"); got.Stdout != "" {
		t.Errorf("started, or wanted at the next boot: %s", got.Stdout)
	}
	if got := m.must(t, time.Minute, "OMB_BOT_BOX=1 botbox detect --json"); !strings.Contains(got.Stdout, `"reason":null`) {
		t.Errorf("detect: %+v", got)
	}
	allPassed(t, m.must(t, time.Minute, "cd /tmp && botbox check").Stdout)
	if got := m.must(t, time.Minute, "cd /tmp && /usr/libexec/botbox/botbox-supervisor -- id -un"); got.Stdout != "maus\n" {
		t.Errorf("the supervisor boxed nothing: %+v", got)
	}
	if got := m.must(t, time.Minute, "stat -c '%U %a' /var/lib/maus /usr/libexec/botbox/botbox /var/lib/botbox"); got.Stdout != "maus 700\nroot 711\nmaus 700\n" {
		t.Errorf("owners and modes: %q", got.Stdout)
	}
}

// difference gives the lines that only one of two texts has.
func difference(a, b string) (lines []string) {
	in := map[string]int{}
	for line := range strings.Lines(a) {
		in[line]++
	}
	for line := range strings.Lines(b) {
		in[line]--
	}
	for line, n := range in {
		if n != 0 {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	slices.Sort(lines)
	return lines
}
