package systemd

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const repository = "../.."

func needed(t *testing.T, programs ...string) {
	t.Helper()
	var missing []string
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	switch {
	case len(missing) == 0:
	case os.Getenv("BOTBOX_MUST_RUN") == "1":
		t.Fatalf("missing: %v", missing)
	default:
		t.Skipf("missing: %v", missing)
	}
}

func install(t *testing.T) (dir string) {
	t.Helper()
	// Not below /tmp: the container has a /tmp of its own.
	dir, err := os.MkdirTemp("/var/tmp", "botbox-install")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	run(t, "make", "-s", "-C", repository, "install", "DESTDIR="+dir)
	return dir
}

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
}

// files lists what is below dir and no folder.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestUninstallTakesAllAndOnlyThat(t *testing.T) {
	needed(t, "make")
	dir := install(t)
	installed := files(t, dir)
	if len(installed) != 11 || !slices.Contains(installed, "/usr/libexec/botbox/botbox-supervisor") {
		t.Errorf("installed %q", installed)
	}
	strangers := filepath.Join(dir, "usr/bin/stranger")
	if err := os.WriteFile(strangers, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "make", "-s", "-C", repository, "uninstall", "DESTDIR="+dir)
	if left := files(t, dir); !slices.Equal(left, []string{"/usr/bin/stranger"}) {
		t.Errorf("left %q", left)
	}
}

// boot starts the container: over this machine's root, with what was installed
// bound in, as a host has it after `make install` and a reboot. The watchdog is
// shortened, for the test waits for it.
const boot = `
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir /run/root /run/extra
mount --bind / /run/root
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
printf '[Service]\nWatchdogSec=6\n' >/run/extra/watchdog.conf
printf '[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\nTimeoutStartSec=120\nExecStart=/bin/sh /check.sh\n[Install]\nWantedBy=default.target\n' >/run/extra/check.service
binds=
for f in $(cd "$1" && find . -type f | sed 's|^\./||'); do
	case $f in usr/libexec/*) ;; *) binds="$binds --bind-ro=$1/$f:/$f" ;; esac
done
SYSTEMD_NSPAWN_API_VFS_WRITABLE=1 exec timeout 150 systemd-nspawn -q --register=no --keep-unit --private-network --console=pipe --link-journal=no \
	--uuid="$(cat /proc/sys/kernel/random/uuid | tr -d -)" --volatile=overlay --capability=all \
	--bind-ro="$1/usr/libexec/botbox:/usr/libexec/botbox" --bind-ro="$1/usr/libexec/botbox/botbox:/usr/bin/botbox" $binds \
	--bind-ro=/run/extra/watchdog.conf:/run/systemd/system/botbox.service.d/watchdog.conf \
	--bind-ro=/run/extra/check.service:/run/systemd/system/check.service \
	--bind-ro="$2/check.sh:/check.sh" --bind="$3:/out" \
	--boot -D /run/root systemd.show_status=0 systemd.unit=multi-user.target systemd.wants=check.service </dev/null
`

func TestHost(t *testing.T) {
	needed(t, "make", "systemd-nspawn", "unshare", "journalctl", "bwrap", "pgrep")
	dir := install(t)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "-m", "--propagation", "private", "sh", "-c", boot, "boot", dir, here, out)
	console, err := cmd.CombinedOutput()
	log, _ := os.ReadFile(filepath.Join(out, "log"))
	text := string(log)
	if !strings.HasSuffix(text, "DONE\n") {
		t.Fatalf("the container did not come to its end: %v\n%s\n%s", err, console, text)
	}
	checks := 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "CHK ") {
			checks++
		}
	}
	if checks != 19 || strings.Contains(text, " FAIL") {
		t.Errorf("%d checks\n%s", checks, text)
	}
}
