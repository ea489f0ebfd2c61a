package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// systemd 256 and newer leaves a file of root's among ssh's settings; ssh takes
// it for a stranger's where root is nobody, and ends.
func TestSSHBesideTheSystemsSettings(t *testing.T) {
	needs(t, "ssh")
	p := newPlace(t)
	run := func(box string) rig.Output {
		return p.mounted(`mount -t tmpfs -o mode=0755 t /etc/ssh/ssh_config.d && echo 'User of-the-system' >/etc/ssh/ssh_config.d/20-system.conf`,
			box+` sh -c 'ls /etc/ssh/ssh_config.d; touch /etc/ssh/ssh_config.d/x 2>&1; for host in www.example.com localhost; do ssh -G $host 2>&1 | grep -iE "^proxycommand|owner|of-the-system"; done'`)
	}
	const closed = "touch: cannot touch '/etc/ssh/ssh_config.d/x': Read-only file system\n"
	botbox := filepath.Join(p.bin, "botbox") + " run --standalone "
	for box, want := range map[string]string{
		botbox + "--":            "botbox.conf\n" + closed + "proxycommand /run/botbox/boxentry connect %h %p\n",
		botbox + "--net none --": closed,
	} {
		if out := run(box); out.Stdout != want {
			t.Errorf("%s: %+v, want %q", box, out, want)
		}
	}
	// Control: where root is nobody and the machine's own folder stands, ssh ends.
	if out := run("bwrap --unshare-user --ro-bind / / --dev /dev"); !strings.Contains(out.Stdout, "20-system.conf") || strings.Count(out.Stdout, "Bad owner or permissions") != 2 {
		t.Errorf("control: %+v", out)
	}
}
