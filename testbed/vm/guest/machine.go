package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// environ is what the machine's first process gives the others.
var environ = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "OMB_BOT_BOX=1", "OMB_LOG=text"}

// work is maus's work folder.
const work = "/home/maus/work"

// startedFile says when the supervisor was started, by uptime.
const startedFile = "/run/started"

// machine is what a machine's init does before it starts anything.
func machine() error {
	for _, m := range []mount{
		{"devtmpfs", "/dev", "devtmpfs", 0, ""}, {"devpts", "/dev/pts", "devpts", 0, "mode=620,ptmxmode=666"},
		{"shm", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, ""},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", "sysfs", 0, ""}, {"cgroup2", "/sys/fs/cgroup", "cgroup2", 0, "nsdelegate"},
		{"securityfs", "/sys/kernel/security", "securityfs", 0, ""},
		{"run", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"}, {"tmp", "/tmp", "tmpfs", 0, "mode=1777"},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
	if err := loadModules("/opt/modules"); err != nil {
		return err
	}
	if err := loopback(); err != nil {
		return err
	}
	// What a Fly machine has, open to everybody, and a work folder.
	for dir, mode := range map[string]os.FileMode{"/.fly": 0o777, work: 0o755} {
		if err := os.Mkdir(dir, mode); err != nil {
			return err
		}
		os.Chmod(dir, mode)
	}
	if err := os.WriteFile("/.fly/api", nil, 0o666); err != nil {
		return err
	}
	uid, gid := account()
	if err := os.Chown(work, uid, gid); err != nil {
		return err
	}
	return begin()
}

// begin runs the course that the kernel's command line names.
func begin() error {
	text, _ := os.ReadFile("/proc/cmdline")
	if slices.Contains(strings.Fields(string(text)), "course=child") {
		childCourse()
		powerOff()
	}
	driver := exec.Command(self, "drive")
	driver.Env, driver.Stdout, driver.Stderr = environ, os.Stdout, os.Stderr
	if err := driver.Start(); err != nil {
		return err
	}
	// From here on the supervisor is the machine's first process, and ours is
	// its child that it has never heard of.
	supervisor := programs + "/botbox-supervisor"
	if err := os.WriteFile(startedFile, []byte(uptime().String()), 0o644); err != nil {
		return err
	}
	env := append([]string{fmt.Sprintf("OMB_VSOCK_PORT=%d", reportPort)}, environ...)
	return unix.Exec(supervisor, []string{supervisor, "--plain", "--", self, "command"}, env)
}

// loopback brings the machine's own up.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// account is maus, as the machine's passwd file has it.
func account() (uid, gid int) {
	text, _ := os.ReadFile("/etc/passwd")
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(line, ":"); f[0] == "maus" {
			fmt.Sscan(f[2], &uid)
			fmt.Sscan(f[3], &gid)
		}
	}
	return uid, gid
}

func asMaus() *syscall.SysProcAttr {
	uid, gid := account()
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
