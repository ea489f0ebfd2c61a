package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func socketRows() []Check {
	return []Check{
		{"F15", mounts, full, "look for a socket in every folder that is mounted, in the system's three levels deep", "none but our own",
			[]string{"bind-data", "bind-run"}, "inside: a socket of our own is found", noSockets},
		{"F16", mounts, full, "connect to where container engines, D-Bus, agents and displays listen", "ENOENT", []string{"bind-run"},
			"inside: a socket of our own is connected to; outside: what stands in for one answers", noServices},
		{"F17", mounts, full, "look for devices other than null, zero, full, random, urandom, tty and ptmx, and for anybody's terminal; make one",
			"none; EPERM", []string{"dev-host"}, "inside: those six are found", onlySixDevices},
	}
}

// ownSocket listens for as long as a check runs.
func ownSocket() (net.Listener, error) {
	return net.Listen("unix", "/tmp/boxprobe-"+strconv.Itoa(os.Getpid())+".sock")
}

func noSockets(*Fixture) Result {
	all, err := readMounts()
	if err != nil || len(all) == 0 {
		return unclear("read the list of mounts: %v", errno(err))
	}
	own, err := ownSocket()
	if err != nil {
		return unclear("make a socket of our own: %v", errno(err))
	}
	defer own.Close()
	found, seen := false, 0
	points := map[string]bool{}
	for _, m := range all {
		points[m.point] = true
	}
	for _, m := range all {
		if m.fstype == "proc" || within(m.point, "/dev") && m.point != "/dev/shm" {
			continue // F17 looks at the devices
		}
		for _, socket := range socketsBelow(m.point, points, &seen) {
			if socket != own.Addr().String() {
				return fail("%s can be seen", socket)
			}
			found = true
		}
	}
	if !found {
		return unclear("not even our own socket was found")
	}
	return pass("none among %d names", seen)
}

// socketsBelow walks one mount and no other. Of the system's own folders, which
// are read-only and hold a hundred thousand names, it reads the upper levels.
func socketsBelow(point string, points map[string]bool, seen *int) (sockets []string) {
	deepest := 64
	if slices.Contains([]string{"/usr", "/etc", "/opt", "/nix"}, point) {
		deepest = 3
	}
	filepath.WalkDir(point, func(path string, entry fs.DirEntry, err error) error {
		*seen++
		switch {
		case err != nil:
			return fs.SkipDir
		case entry.Type() == fs.ModeSocket:
			sockets = append(sockets, path)
		case entry.IsDir() && (path != point && points[path] || strings.Count(strings.TrimPrefix(path, point), "/") >= deepest):
			return fs.SkipDir
		}
		return nil
	})
	return sockets
}

// services are where what reaches beyond a box listens on usual machines.
var services = []string{
	"/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock",
	"/run/buildkit/buildkitd.sock", "/run/libvirt/libvirt-sock", "/run/lxd/unix.socket", "/run/snapd.socket",
	"/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/journal/socket",
	"/run/user/UID/bus", "/run/user/UID/podman/podman.sock", "/run/user/UID/docker.sock", "/run/user/UID/gnupg/S.gpg-agent",
	"/run/user/UID/gnupg/S.gpg-agent.ssh", "/run/user/UID/ssh-agent.socket", "/run/user/UID/wayland-0", "/tmp/.X11-unix/X0",
}

func noServices(*Fixture) Result {
	own, err := ownSocket()
	if err != nil {
		return unclear("make a socket of our own: %v", errno(err))
	}
	defer own.Close()
	if err := knock(own.Addr().String()); err != nil {
		return unclear("our own socket does not answer: %v", errno(err))
	}
	for _, path := range services {
		path = strings.ReplaceAll(path, "UID", strconv.Itoa(os.Getuid()))
		switch err := knock(path); {
		case err == nil:
			return fail("%s answers", path)
		case !errors.Is(err, unix.ENOENT):
			return fail("%s is there, and only %v keeps it closed", path, errno(err))
		}
	}
	return pass("none of %d is there", len(services))
}

func knock(path string) error {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
	}
	return err
}

// onlySixDevices allows the numbers of the six and of ptmx, by which a device
// is known whatever its name. A box that has opened no terminal has none.
func onlySixDevices(*Fixture) Result {
	allowed := map[uint64]bool{}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		var st unix.Stat_t
		if err := unix.Stat("/dev/"+name, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
			return unclear("/dev/%s is not there: %v", name, err)
		}
		allowed[st.Rdev] = true
	}
	allowed[unix.Mkdev(5, 2)] = true
	var other string
	filepath.WalkDir("/dev", func(path string, entry fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err != nil || entry.Type()&fs.ModeDevice == 0 || unix.Lstat(path, &st) != nil {
			return nil
		}
		if other == "" && (!allowed[st.Rdev] || st.Mode&unix.S_IFMT == unix.S_IFBLK) {
			other = path
		}
		return nil
	})
	if other != "" {
		return fail("%s is there", other)
	}
	made := "/tmp/boxprobe-device"
	if err := unix.Mknod(made, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != unix.EPERM && err != unix.EACCES {
		unix.Unlink(made)
		return fail("a device can be made: %v", err)
	}
	return pass("no other, and none can be made")
}
