package box

import (
	"bytes"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// SocketRule says which sockets keep a folder out of a box. A socket is a way
// out, read-only or not: a mount's flags do not stop connect(2).
type SocketRule int

const (
	AnySocket   SocketRule = iota + 1 // what the box cannot write, it did not make
	KnownSocket                       // bots make sockets of their own where they can write
)

// socketNames are sockets of servers, container runtimes and agents: a name of
// the folder's own, maybe a pattern, or a place below it.
var socketNames = []struct{ name, reason string }{
	{"docker.sock", "Docker's socket makes whoever reaches it root"},
	{"docker/docker.sock", "Docker's socket makes whoever reaches it root"},
	{".docker/run/docker.sock", "Docker's socket reaches every file of this user"},
	{".docker/desktop/docker.sock", "Docker's socket reaches every file of this user"},
	{".colima/default/docker.sock", "Docker's socket reaches every file of this user"},
	{".rd/docker.sock", "Docker's socket reaches every file of this user"},
	{"podman.sock", "Podman's socket reaches every file of its user"},
	{"podman/podman.sock", "Podman's socket reaches every file of its user"},
	{".local/share/containers/podman/machine/podman.sock", "Podman's socket reaches every file of its user"},
	{"containerd*.sock", "containerd's socket makes whoever reaches it root"},
	{"containerd/containerd.sock", "containerd's socket makes whoever reaches it root"},
	{"crio.sock", "CRI-O's socket makes whoever reaches it root"},
	{"crio/crio.sock", "CRI-O's socket makes whoever reaches it root"},
	{"buildkitd.sock", "BuildKit's socket mounts what it is told to"},
	{"buildkit/buildkitd.sock", "BuildKit's socket mounts what it is told to"},
	{"unix.socket", "the socket of LXD or Incus makes whoever reaches it root"},
	{"libvirt*-sock*", "libvirt's socket starts machines with any disk"},
	{"virt*-sock*", "libvirt's socket starts machines with any disk"},
	{"libvirt/libvirt-sock", "libvirt's socket starts machines with any disk"},
	{"bus", "D-Bus starts programs outside the box"},
	{"system_bus_socket", "D-Bus starts programs outside the box"},
	{"dbus/system_bus_socket", "D-Bus starts programs outside the box"},
	{"agent.[0-9]*", "an ssh-agent signs with the user's keys"},
	{"*agent*.sock", "an agent signs with the user's keys"},
	{".ssh/agent.sock", "an ssh-agent signs with the user's keys"},
	{".1password/agent.sock", "1Password's agent signs with the user's keys"},
	{"S.gpg-agent*", "a gpg-agent signs with the user's keys"},
	{".gnupg/S.gpg-agent", "a gpg-agent signs with the user's keys"},
	{".gnupg/S.gpg-agent.ssh", "a gpg-agent signs with the user's keys"},
	{"S.scdaemon", "a smart card signs with the user's keys"},
	{"X[0-9]*", "an X server gives every client the others' keyboard"},
	{".X11-unix/X0", "an X server gives every client the others' keyboard"},
	{"wayland-[0-9]*", "a Wayland compositor shows and types for its user"},
	{"perm-*.sock", "another process's permission socket"},
	{"lease.sock", "the worker's socket makes boxes"},
	{"api.sock", "the worker's socket rules over boxes"},
}

// checkSockets looks into a folder that a spec names: at a fixed list of
// places, and at one buffer of its own names. What that costs does not depend
// on how large the folder is.
func checkSockets(folder *os.File, m Mount) error {
	for _, row := range socketNames {
		if !strings.ContainsAny(row.name, "*[") && isSocket(folder, row.name) {
			return refuseSocket(m, row.name, row.reason)
		}
	}
	names, err := someNames(folder)
	if Exhausted(err) {
		return reason.New(reason.System, "look into %s: %w", m.Source, err)
	}
	if err != nil {
		return reason.New(reason.PathRefused, "%s cannot enter the box: look into it: %w", m.Source, err)
	}
	for _, name := range names {
		if !isSocket(folder, name) {
			continue
		}
		for _, row := range socketNames {
			if ok, _ := path.Match(row.name, name); ok {
				return refuseSocket(m, name, row.reason)
			}
		}
		if m.Sockets == AnySocket {
			return refuseSocket(m, name, "whoever listens on a socket can be reached through it, read-only or not")
		}
	}
	return nil
}

func refuseSocket(m Mount, name, why string) error {
	return reason.New(reason.PathRefused, "%s may not enter the box: it holds the socket %s; %s", m.Source, name, why)
}

// isSocket does not follow a link at the end: where that leads is not in the
// box, unless another mount brings it there, which is looked at itself.
func isSocket(folder *os.File, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(int(folder.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// someNames gives the names of a folder that may be sockets, out of its first
// buffer. A folder that this user cannot list shows a box nothing either.
func someNames(folder *os.File) ([]string, error) {
	fd, err := unix.Openat(int(folder.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.EACCES {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 32<<10)
	n, err := unix.Getdents(fd, b)
	if err != nil {
		return nil, err
	}
	return socketEntries(b[:n]), nil
}

// socketEntries reads linux_dirent64 records: inode and offset, 8 bytes each,
// the record's length in 2, the type in 1, the name up to a NUL.
func socketEntries(b []byte) (names []string) {
	const header = 19
	for len(b) > header {
		size := int(b[16]) | int(b[17])<<8
		if size <= header || size > len(b) {
			return names
		}
		name, _, _ := bytes.Cut(b[header:size], []byte{0})
		if kind := b[18]; kind == unix.DT_SOCK || kind == unix.DT_UNKNOWN {
			names = append(names, string(name))
		}
		b = b[size:]
	}
	return names
}
