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

	"github.com/openmausbot/botbox/testbed/rig"
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

// boot starts the container: this machine's root under an overlay that is thrown
// away, with what the arguments behind the first two bind in. The watchdog is
// shortened, for a test waits for it.
const boot = `
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir /run/root /run/extra
mount --bind / /run/root
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
printf '[Service]\nWatchdogSec=6\n' >/run/extra/watchdog.conf
printf '[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\nTimeoutStartSec=240\nExecStartPre=-/bin/umount /proc/kmsg /proc/sys/kernel/random/boot_id\nExecStart=/bin/sh /check.sh\n[Install]\nWantedBy=default.target\n' >/run/extra/check.service
script=$1 out=$2
shift 2
SYSTEMD_NSPAWN_API_VFS_WRITABLE=1 exec timeout 270 systemd-nspawn -q --register=no --keep-unit --private-network --console=pipe --link-journal=no \
	--uuid="$(cat /proc/sys/kernel/random/uuid | tr -d -)" --volatile=overlay --capability=all "$@" \
	--bind-ro=/run/extra/watchdog.conf:/run/systemd/system/botbox.service.d/watchdog.conf \
	--bind-ro=/run/extra/check.service:/run/systemd/system/check.service \
	--bind-ro="$script:/check.sh" --bind="$out:/out" \
	--boot -D /run/root systemd.show_status=0 systemd.unit=multi-user.target systemd.wants=check.service </dev/null
`

// host runs a script as a unit of a host that has booted, and gives the folder
// that the script knows as /out. What is written to /out/log ends with DONE.
func host(t *testing.T, script string, binds ...string) (out string) {
	t.Helper()
	needed(t, "make", "systemd-nspawn", "unshare", "journalctl", "bwrap", "pgrep")
	out = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	argv := append([]string{"-m", "--propagation", "private", "sh", "-c", boot, "boot", script, out}, binds...)
	console, err := exec.CommandContext(ctx, "unshare", argv...).CombinedOutput()
	if log, _ := os.ReadFile(filepath.Join(out, "log")); !strings.HasSuffix(string(log), "DONE\n") {
		said, _ := os.ReadFile(filepath.Join(out, "said"))
		t.Fatalf("the container did not come to its end: %v\n%s\n%s\n%s", err, console, log, said)
	}
	return out
}

// TestHost: what `make install` puts on a host, after a reboot.
func TestHost(t *testing.T) {
	dir := install(t)
	binds := []string{"--bind-ro=" + dir + "/usr/libexec/botbox:/usr/libexec/botbox", "--bind-ro=" + dir + "/usr/libexec/botbox/botbox:/usr/bin/botbox"}
	for _, file := range files(t, dir) {
		if info, err := os.Lstat(dir + file); err == nil && info.Mode().IsRegular() && !strings.HasPrefix(file, "/usr/libexec/") {
			binds = append(binds, "--bind-ro="+dir+file+":"+file)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(host(t, here+"/check.sh", binds...), "log"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(log)
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

// upgrade: a running service is started again, for programs of two builds refuse
// one another; one that is stopped stays so.
const upgrade = `
upgraded() { DEBIAN_FRONTEND=noninteractive apt-get install -y -q --reinstall ./bin/botbox_*.deb >&2; }
before=$(systemctl show -P MainPID botbox)
upgraded
{ [ "$(systemctl show -P MainPID botbox)" != "$before" ] && systemctl is-active botbox; systemctl stop botbox; upgraded; systemctl is-active botbox || true; } >/out/upgrade
`

// TestPage: the page for a systemd host, as it is written. Who reads it has sudo;
// here root reads it.
func TestPage(t *testing.T) {
	needed(t, "git", "go", "dpkg-deb")
	blocks := rig.Page(t, "docs/systemd.md", "systemd")
	// Not below /tmp: the container has a /tmp of its own.
	dir, err := os.MkdirTemp("/var/tmp", "botbox-page")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	clone, script := filepath.Join(dir, "botbox"), filepath.Join(dir, "script.sh")
	run(t, "git", "-c", "safe.directory=*", "clone", "--quiet", "file://"+rig.Root(), clone)
	text := "export HOME=/root LC_ALL=C.UTF-8 PATH='" + os.Getenv("PATH") + "'\n"
	binds := []string{"--bind=" + clone + ":/srv/botbox", "--bind-ro=" + dir + "/page.sh:/page.sh"}
	for _, name := range []string{"GOROOT", "GOMODCACHE", "GOCACHE"} { // what a host that builds has
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		value := strings.TrimSpace(string(out))
		text += "export " + name + "='" + value + "'\n"
		binds = append(binds, "--overlay="+value+"::"+value) // what is written is thrown away
	}
	// A machine for builds has one of these, which lets no package start anything.
	text += "rm -f /usr/sbin/policy-rc.d\n"
	text += "printf '#!/bin/sh\nexec \"$@\"\n' >/usr/local/bin/sudo && chmod 755 /usr/local/bin/sudo\n" +
		"cd /srv/botbox && sh /page.sh >/out/said 2>/out/errors; echo $? >/out/code; journalctl -n 40 -o short-monotonic >>/out/errors\n" +
		"echo DONE >/out/log\nsystemctl poweroff --force --force\n"
	last := len(blocks) - 1 // takes everything away
	for name, content := range map[string]string{script: text, dir + "/page.sh": rig.Script(blocks[:last]) + upgrade + rig.Script(blocks[last:])} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := host(t, script, binds...)
	read := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(out, name))
		return string(b)
	}
	if code := read("code"); code != "0\n" {
		t.Errorf("it ended with %s\n%s", code, read("errors"))
	}
	if got := read("upgrade"); got != "active\ninactive\n" {
		t.Errorf("upgrades of a service that runs and of one that is stopped: %q\n%s", got, read("errors"))
	}
	rig.Printed(t, "docs/systemd.md", blocks, read("said"))
}
