package selfcheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// inPlace is a self-check in mount and process namespaces of its own, after a
// script has made the place what it is to be. The programs are in /mnt there.
// What is left behind in the place is said on stderr.
func inPlace(t *testing.T, script string, words ...string) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		rig.Missing(t, "only root makes a place")
	}
	cmd := exec.Command("unshare", append([]string{"-pfm", "--mount-proc", "--kill-child", "sh", "-c", `set -e
mount --make-rprivate /
mount --bind "$BIN" /mnt
ls -d /tmp/botbox-check-* /var/tmp/botbox-check-* /run/botbox-check-* /dev/shm/botbox-check-* >/dev/null 2>&1 && echo "litter before" >&2 || true
` + script + `
set +e
/mnt/botbox check --json "$@"
code=$?
for f in /tmp/botbox-check-* /var/tmp/botbox-check-* /run/botbox-check-* /dev/shm/botbox-check-*; do [ -e "$f" ] && echo "left behind: $f" >&2; done
exit $code`, "sh"}, words...)...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/nonexistent", "BIN=" + built(t)}
	return cmd
}

// ownFolders hides the machine's shared folders, and other runs' in them.
const ownFolders = "for d in /tmp /var/tmp /run /dev/shm; do mount -t tmpfs -o mode=1777 t $d; done\n"

func TestPlacesWhereItCannotWork(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		says   string // or the checks that fail; empty: it works there
	}{
		"an ordinary one":        {"", ""},
		"TMPDIR is not there":    {"export TMPDIR=/nonexistent", ""},
		"TMPDIR is read-only":    {"export TMPDIR=/usr", ""},
		"/tmp is read-only":      {"mount -o remount,ro /tmp", "read-only file system"},
		"/tmp is root's":         {"chmod 755 /tmp", "permission denied"},
		"/var/tmp is read-only":  {"mount -o remount,ro /var/tmp", "read-only file system"},
		"/tmp is full":           {"mount -o remount,size=4k /tmp", "no space left on device"},
		"/tmp has no inodes":     {"mount -o remount,nr_inodes=4 /tmp", "no space left on device"},
		"no place for /run's":    {"mount -t tmpfs -o ro t /run && mount -t tmpfs -o ro t /dev/shm", "read-only file system"},
		"/proc/sys is masked":    {"mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys", "reason: proc-masked"},
		"/proc/keys is masked":   {"mount --bind /dev/null /proc/keys", "reason: proc-masked"},
		"/proc/acpi is masked":   {"mount -t tmpfs -o ro t /proc/acpi", "reason: proc-masked"},
		"/proc is another's":     {"umount -l /proc", "reason: "},
		"/proc is empty":         {"mount -t tmpfs t /proc", "reason: "},
		"/sys is not there":      {"umount -l /sys", ""},
		"/dev/null is not there": {"mount -t tmpfs t /dev", "/dev/null"},
	} {
		t.Run(name, func(t *testing.T) {
			o := outcomeOf(t, inPlace(t, ownFolders+c.script, "--profile", "full"))
			if (o.code == 0) != (c.says == "") || !strings.Contains(o.said+strings.Join(o.Failed, " "), c.says) {
				t.Errorf("exit %d, failed %v: %s", o.code, o.Failed, o.said)
			}
			if strings.Contains(o.said, "left behind") || strings.Contains(o.said, "litter") {
				t.Errorf("%s", o.said)
			}
		})
	}
}

// A disk that fills up at any point of a run: with each few pages more it gets
// a little further, and it is ok only when it got to the end.
func TestADiskThatIsTooSmall(t *testing.T) {
	refused, good := 0, 0
	for _, size := range []string{"4k", "16k", "32k", "64k", "96k", "128k", "192k", "256k", "288k", "320k", "352k", "384k", "2m"} {
		o := outcomeOf(t, inPlace(t, ownFolders+"mount -o remount,size="+size+" /tmp", "--profile", "full"))
		switch {
		case o.code == 0:
			good++
		case len(o.Results) == 0 && !strings.Contains(o.said, "no space left on device"):
			t.Errorf("%s: exit %d: %s", size, o.code, o.said)
		default:
			refused++
			for _, r := range o.Results {
				if r.Verdict == fail { // a full disk is no broken wall
					t.Errorf("%s: %+v", size, r)
				}
			}
		}
		if strings.Contains(o.said, "left behind") {
			t.Errorf("%s: %s", size, o.said)
		}
	}
	if refused == 0 || good == 0 {
		t.Errorf("control: %d were too small, %d were not", refused, good)
	}
}

// The clocks that a namespace can have of its own may stand anywhere.
func TestAClockThatStandsElsewhere(t *testing.T) {
	if os.Getuid() != 0 {
		rig.Missing(t, "only root makes a time namespace")
	}
	for _, offset := range []string{"0", "100000000"} {
		before := litter(t)
		cmd := exec.Command("unshare", "-T", "--monotonic", offset, "--boottime", offset, filepath.Join(built(t), "botbox"), "check", "--json")
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}
		if o := outcomeOf(t, cmd); o.code != 0 {
			t.Errorf("%s s: exit %d, %v: %s", offset, o.code, o.Failed, o.said)
		}
		leavesNothing(t, before)
	}
}

// Root of a namespace that knows no other user can become nobody else.
func TestRootOfAContainerWithoutUsers(t *testing.T) {
	cmd := exec.Command("unshare", "-Ur", filepath.Join(built(t), "botbox"), "check", "--json")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}
	if o := outcomeOf(t, cmd); o.code == 0 || len(o.Results) > 0 || !strings.Contains(o.said, "become maus") && !strings.Contains(o.said, "no user maus") {
		t.Errorf("exit %d: %s", o.code, o.said)
	}
}
