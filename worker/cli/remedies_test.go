package cli

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
)

func TestPlaceOf(t *testing.T) {
	for want, c := range map[string]struct {
		files map[string]string
		env   map[string]string
	}{
		"a system without /etc/os-release":      {},
		"debian":                                {map[string]string{"etc/os-release": "PRETTY_NAME=\"x\"\nID=debian\n", "proc/self/cgroup": "0::/user.slice/user-1000.slice/session-2.scope"}, nil},
		"ubuntu, in docker":                     {map[string]string{"etc/os-release": "ID=ubuntu\nID_LIKE=debian", ".dockerenv": ""}, nil},
		"alpine, in podman":                     {map[string]string{"etc/os-release": "ID='alpine'", "run/.containerenv": "engine=podman", ".dockerenv": ""}, nil},
		"fedora, in podman":                     {map[string]string{"etc/os-release": "ID=fedora", "proc/self/cgroup": "0::/machine.slice/libpod-12.scope"}, nil},
		"arch, in docker":                       {map[string]string{"etc/os-release": "ID=arch", "proc/self/cgroup": "2:cpu:/docker/12\n1:x:/y"}, nil},
		"debian, in fly":                        {map[string]string{"etc/os-release": "ID=debian", ".dockerenv": ""}, map[string]string{"FLY_MACHINE_ID": "1"}},
		"debian, in lxc":                        {map[string]string{"etc/os-release": "ID=debian", "run/systemd/container": "lxc\n"}, nil},
		"debian, in container":                  {map[string]string{"etc/os-release": "ID=debian", "proc/self/cgroup": "0::/kubepods/pod1/2"}, nil},
		"rhel, in a systemd service":            {map[string]string{"etc/os-release": "ID=rhel", "proc/self/cgroup": "0::/system.slice/botbox.service"}, nil},
		"rocky":                                 {map[string]string{"etc/os-release": "ID=rocky", "proc/self/cgroup": "0::/user.slice/user-1.slice/user@1.service/app.slice/term.scope"}, nil},
		"nixos":                                 {map[string]string{"etc/os-release": "ID=nixos", "proc/self/cgroup": "0::/user.slice/user-1.slice/user@1.service"}, nil},
		"suse, in docker, in a systemd service": {map[string]string{"etc/os-release": "ID=suse", ".dockerenv": "", "proc/self/cgroup": "0::/system.slice/x.service"}, nil},
	} {
		root := fstest.MapFS{}
		for name, text := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := placeOf(root, func(name string) string { return c.env[name] }).String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRemedy(t *testing.T) {
	docker := place{System: "ubuntu", Like: "debian", Container: "docker"}
	for _, c := range []struct {
		code  reason.Code
		where place
		want  string
	}{
		{reason.NoBwrap, place{System: "debian"}, "apt-get install bubblewrap"},
		{reason.NoBwrap, place{System: "mint", Like: "ubuntu debian"}, "apt-get install bubblewrap"},
		{reason.NoBwrap, place{System: "rocky", Like: "rhel centos fedora"}, "dnf install bubblewrap"},
		{reason.NoBwrap, place{System: "arch"}, "pacman -S bubblewrap"},
		{reason.NoBwrap, place{System: "alpine"}, "apk add bubblewrap"},
		{reason.ProcMasked, docker, "systempaths=unconfined"},
		{reason.ProcMasked, place{System: "debian", Container: "podman"}, "unmask=ALL"},
		{reason.ProcMasked, place{System: "debian", Service: true}, "ProtectKernelTunables=no"},
		{reason.ProcMasked, place{System: "debian"}, "systempaths=unconfined"}, // the table's own hint
		{reason.UsernsSeccomp, docker, "--cap-add SYS_ADMIN --security-opt seccomp=unconfined"},
		{reason.UsernsSeccomp, place{Service: true}, "RestrictNamespaces=no"},
		{reason.UsernsLSM, place{System: "ubuntu"}, "install -m 644 init/apparmor/bwrap"},
		{reason.UsernsLSM, docker, "on the host: install"},
		{reason.UsernsLSM, place{Container: "lxc"}, "on the host: install"},
		{reason.UsernsSysctl, place{System: "debian"}, "sysctl -w kernel.unprivileged_userns_clone=1 "},
		{reason.UsernsLimit, place{System: "debian", Container: "fly"}, "sysctl -w user.max_user_namespaces=15000 "},
		{reason.UsernsLimit, docker, "on the host: "},
		{reason.MountRefused, place{Container: "lxc"}, "security.nesting"},
		{reason.NetRefused, place{Service: true}, "AF_NETLINK"},
	} {
		lines := remedy(fmt.Errorf("found: %w", reason.New(c.code, "x")), c.where)
		if len(lines) != 1 || !strings.Contains(lines[0], c.want) {
			t.Errorf("%s in %v: %q, want %q", c.code, c.where, lines, c.want)
		}
	}
	closer := remedy(reason.New(reason.BwrapSetuid, "x").WithHint("chmod u-s /x/bwrap"), place{System: "debian"})
	if strings.Join(closer, "|") != "chmod u-s /x/bwrap" {
		t.Errorf("%q", closer)
	}
}

// Each row is reached from some place, and none hides a later one.
func TestEveryRemedyIsReached(t *testing.T) {
	for _, row := range remedies {
		where := place{System: row.where, Container: row.where, Service: row.where == "service"}
		if row.where == "service" {
			where.System, where.Container = "", ""
		}
		if got := remedy(reason.New(row.code, "x"), where); len(got) != 1 || got[0] != row.line {
			t.Errorf("%s in %q: %q is reached, not %q", row.code, row.where, got, row.line)
		}
	}
}

func TestDiagnoseKeepsTheSeedsRuleApart(t *testing.T) {
	d := diagnose(box.Finding{}, box.Wanted("", ""), place{})
	if !d.Able || d.Reason != nil || !strings.Contains(d.Note, "not-cloud") || d.Next != "botbox check" {
		t.Errorf("%+v", d)
	}
	d = diagnose(box.Finding{Err: reason.New(reason.NoBwrap, "x")}, box.Wanted("0", ""), place{})
	if d.Able || d.Note != "" || *d.Reason != "no-bwrap" || len(d.Fix) != 1 {
		t.Errorf("%+v", d)
	}
}
