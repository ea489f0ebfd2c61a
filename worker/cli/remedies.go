package cli

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
)

// place is where we run, as far as it decides how a cause is put right.
type place struct {
	System    string `json:"system"`    // ID of /etc/os-release
	Like      string `json:"like"`      // its ID_LIKE
	Container string `json:"container"` // docker, podman, fly, what systemd calls it, container; empty = none that shows
	Service   bool   `json:"service"`   // a systemd service's process
}

func (p place) String() string {
	text := p.System
	if text == "" {
		text = "a system without /etc/os-release"
	}
	if p.Container != "" {
		text += ", in " + p.Container
	}
	if p.Service {
		text += ", in a systemd service"
	}
	return text
}

// placeOf looks at what container runtimes and init systems leave to be seen.
// All of it is only good for advice: a container can be made to look like
// anything.
func placeOf(root fs.FS, env func(string) string) place {
	read := func(name string) string {
		b, _ := fs.ReadFile(root, name)
		return strings.TrimSpace(string(b))
	}
	there := func(name string) bool {
		_, err := fs.Stat(root, name)
		return err == nil
	}
	var p place
	for _, line := range strings.Split(read("etc/os-release"), "\n") {
		name, value, _ := strings.Cut(line, "=")
		switch value = strings.Trim(value, `"'`); name {
		case "ID":
			p.System = value
		case "ID_LIKE":
			p.Like = value
		}
	}
	cgroup := read("proc/self/cgroup")
	switch {
	case env("FLY_MACHINE_ID") != "" || env("FLY_APP_NAME") != "":
		p.Container = "fly"
	case there("run/.containerenv") || strings.Contains(cgroup, "libpod"):
		p.Container = "podman"
	case there(".dockerenv") || strings.Contains(cgroup, "/docker/") || strings.Contains(cgroup, "/docker-"):
		p.Container = "docker"
	case there("run/systemd/container"):
		p.Container = read("run/systemd/container")
	case strings.Contains(cgroup, "kubepods"):
		p.Container = "container"
	}
	for _, line := range strings.Split(cgroup, "\n") {
		unit := path.Base(line)
		p.Service = p.Service || strings.HasSuffix(unit, ".service") && !strings.HasPrefix(unit, "user@")
	}
	return p
}

// remedies are the lines that put a cause right, by the place: the first row
// of the cause whose place fits counts. No row = the hint of the reason's own.
var remedies = []struct {
	code  reason.Code
	where string // of a place's words: a container, service, a system or one that it is like; empty = everywhere
	line  string
}{
	{reason.NoBwrap, "debian", "apt-get install bubblewrap"},
	{reason.NoBwrap, "ubuntu", "apt-get install bubblewrap"},
	{reason.NoBwrap, "fedora", "dnf install bubblewrap"},
	{reason.NoBwrap, "arch", "pacman -S bubblewrap"},
	{reason.NoBwrap, "alpine", "apk add bubblewrap"},
	{reason.BwrapTooOld, "debian", "apt-get install --only-upgrade bubblewrap   # Debian 12 and newer have it, with its security updates"},
	{reason.BwrapTooOld, "ubuntu", "apt-get install --only-upgrade bubblewrap   # Ubuntu 24.04 and newer have it, with its security updates"},
	{reason.BwrapTooOld, "fedora", "dnf upgrade bubblewrap"},
	{reason.BwrapTooOld, "arch", "pacman -Syu bubblewrap"},
	{reason.BwrapTooOld, "alpine", "apk add --upgrade bubblewrap"},
	{reason.BwrapSetuid, "arch", "pacman -S bubblewrap   # in place of bubblewrap-suid"},

	{reason.UsernsSysctl, "docker", "on the host: sysctl -w kernel.unprivileged_userns_clone=1"},
	{reason.UsernsSysctl, "podman", "on the host: sysctl -w kernel.unprivileged_userns_clone=1"},
	{reason.UsernsSysctl, "container", "on the host: sysctl -w kernel.unprivileged_userns_clone=1"},
	{reason.UsernsSysctl, "", "sysctl -w kernel.unprivileged_userns_clone=1   # to stay: the same without -w in /etc/sysctl.d/90-botbox.conf"},
	{reason.UsernsLimit, "docker", "on the host: sysctl -w user.max_user_namespaces=15000"},
	{reason.UsernsLimit, "podman", "on the host: sysctl -w user.max_user_namespaces=15000"},
	{reason.UsernsLimit, "container", "on the host: sysctl -w user.max_user_namespaces=15000"},
	{reason.UsernsLimit, "", "sysctl -w user.max_user_namespaces=15000   # to stay: the same without -w in /etc/sysctl.d/90-botbox.conf"},

	{reason.UsernsLSM, "docker", appArmorOnHost},
	{reason.UsernsLSM, "podman", appArmorOnHost},
	{reason.UsernsLSM, "container", appArmorOnHost},
	{reason.UsernsLSM, "", appArmorLine},

	{reason.UsernsSeccomp, "docker", "docker run " + dockerFlags + " …"},
	{reason.UsernsSeccomp, "podman", "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL …"},
	{reason.UsernsSeccomp, "service", "in the unit: RestrictNamespaces=no, and a SystemCallFilter, if any, that lets @mount through"},
	{reason.MountRefused, "docker", "docker run " + dockerFlags + " …   # with SELinux also --security-opt label=disable"},
	{reason.MountRefused, "podman", "podman run --security-opt label=disable --security-opt unmask=ALL …"},
	{reason.MountRefused, "lxc", "on the host: lxc config set NAME security.nesting true"},
	{reason.ProcMasked, "docker", "docker run " + dockerFlags + " …"},
	{reason.ProcMasked, "podman", "podman run --security-opt unmask=ALL …   # with hidepid for the machine: --cap-add SYS_ADMIN, too"},
	{reason.ProcMasked, "service", "in the unit: ProtectKernelTunables=no, ProtectKernelLogs=no, ProcSubset=all"},
	{reason.NetRefused, "docker", "docker run " + dockerFlags + " …"},
	{reason.NetRefused, "podman", "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL …"},
	{reason.NetRefused, "service", "in the unit: RestrictNamespaces=no, and AF_NETLINK in RestrictAddressFamilies"},
	{reason.ProbeTimeout, "", "see what holds it: time bwrap --version; time bwrap --unshare-user --ro-bind / / true"},
}

const (
	// dockerFlags: Docker's own filter ties clone, unshare and mount to
	// SYS_ADMIN, which our supervisor drops once it has used it, and has
	// pivot_root for nobody; its AppArmor profile refuses mount whatever the
	// capabilities are. Whoever has a checkout can name its filter instead of none.
	dockerFlags    = "--cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt systempaths=unconfined --security-opt apparmor=unconfined"
	appArmorLine   = "install -m 644 init/apparmor/bwrap /etc/apparmor.d/bwrap && apparmor_parser -r /etc/apparmor.d/bwrap"
	appArmorOnHost = "on the host: " + appArmorLine
)

// remedy gives what to do about a machine that cannot box, from the closest
// row to the place. A hint that is closer than the table's comes first.
func remedy(err error, where place) []string {
	e := reason.Of(err)
	var lines []string
	if e.Hint != "" {
		lines = append(lines, e.Hint)
	}
	for _, row := range remedies {
		if row.code == e.Code && where.fits(row.where) {
			return append(lines, row.line)
		}
	}
	if len(lines) == 0 {
		lines = append(lines, reason.FaultOf(err).Hint)
	}
	return lines
}

func (p place) fits(word string) bool {
	if word == "" || word == "service" && p.Service || word == p.Container || word == p.System {
		return true
	}
	if word == "container" && p.Container != "" {
		return p.Container != "fly" // a virtual machine, with a kernel of its own
	}
	return slices.Contains(strings.Fields(p.Like), word)
}
