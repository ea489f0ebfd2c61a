package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Where the programs are in the machine, and what we ourselves are there.
const (
	programs = "/opt/botbox"
	self     = programs + "/guest"
)

func main() {
	switch name := filepath.Base(os.Args[0]); {
	case len(os.Args) > 1 && os.Args[1] == "command":
		command()
	case len(os.Args) > 1 && os.Args[1] == "drive":
		drive()
	case os.Getpid() != 1:
		fmt.Fprintln(os.Stderr, name+": this is the first process of a test's virtual machine")
		os.Exit(2)
	case name == "init":
		must(enterRoot())
	default:
		must(machine())
	}
}

// must ends the machine, and so the test, with a line that says why.
func must(err error) {
	if err != nil {
		fmt.Println("CHK machine FAIL", err)
		powerOff()
	}
}

func powerOff() {
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

// enterRoot leaves the initramfs: bubblewrap needs a root file system that
// pivot_root can leave, and the kernel's first one is none.
func enterRoot() error {
	for _, m := range []mount{{"devtmpfs", "/dev", "devtmpfs", 0, ""}, {"proc", "/proc", "proc", 0, ""}} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := loadModules("/modules/boot"); err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat("/dev/vda"); err == nil {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("there is no disk")
		}
	}
	for _, m := range []mount{{"/dev/vda", "/root", "ext4", 0, ""}, {"opt", "/root/opt", "tmpfs", unix.MS_NODEV, "mode=755"}} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if _, err := os.Stat("/dev/vdb"); err == nil { // of the course that has an engine
		if err := (mount{"/dev/vdb", "/root" + engineDir, "ext4", unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV, ""}).do(); err != nil {
			return err
		}
	}
	for from, to := range map[string]string{"/programs": "/root" + programs, "/modules/later": "/root/opt/modules"} {
		if err := copyFiles(from, to); err != nil {
			return err
		}
	}
	if err := unix.Chdir("/root"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Exec(self, []string{self}, nil)
}

type mount struct {
	what, where, kind string
	flags             uintptr
	data              string
}

func (m mount) do() error {
	if err := os.MkdirAll(m.where, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.what, m.where, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s: %w", m.where, err)
	}
	return nil
}

// loadModules loads what is in a folder, in the order of the names.
func loadModules(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		flags := 0
		if !strings.HasSuffix(e.Name(), ".ko") {
			flags = unix.MODULE_INIT_COMPRESSED_FILE
		}
		err = unix.FinitModule(int(f.Fd()), "", flags)
		f.Close()
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("load %s: %w", e.Name(), err)
		}
	}
	return nil
}

func copyFiles(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		if e.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
		if err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
		return out.Close()
	})
}
