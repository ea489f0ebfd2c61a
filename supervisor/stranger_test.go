package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// A process of bot A's that is in no box tries everything on those of bot B, on
// the worker and on the supervisor, with processes hidden and without: the
// kernel refuses it each time. Root and the owner get in by every way.
func TestABotOutsideItsBoxGetsAtNobody(t *testing.T) {
	tools := rig.Dir(t)
	if err := os.Chmod(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	stranger := tools + "/stranger"
	if err := rig.Compile(stranger, "./testbed/stranger", rig.Build); err != nil {
		t.Fatal(err)
	}
	const alice, bob = "300000", "300001"
	for _, harden := range []string{"0", "1"} {
		r := usersWorld(t, "OMB_CLOUD_HARDEN="+harden)
		for i, bot := range []string{"alice", "bob"} { // so that they have their numbers
			if out, err := r.box(t, bot, "--", "true").CombinedOutput(); err != nil {
				t.Fatalf("%d %v %s", i, err, out)
			}
		}
		box := r.box(t, "bob", "--", "sh", "-c", "echo up; exec sleep 4715")
		out := &output{}
		box.Stdout, box.Stderr = out, out
		if err := box.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { box.Process.Kill(); box.Wait() }()
		r.await(t, "the box", func() bool { return strings.Contains(out.String(), "up\n") })
		free := map[string]string{}
		for _, id := range []string{alice, bob} {
			sleep := r.as(t, id, "sleep", "4716")
			if err := sleep.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { sleep.Process.Kill(); sleep.Wait() }()
			r.await(t, "the sleep", func() bool { return pidOf(sleep.Process.Pid) != 0 })
			free[id] = innerPid(pidOf(sleep.Process.Pid))
		}
		seen := func(text string) string { // in the supervisor's namespace
			for _, pid := range descendants(r.Process.Pid) {
				if line := read(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(line, text) && !strings.HasPrefix(line, "sh\x00") {
					return innerPid(pid)
				}
			}
			t.Fatalf("no process with %q", text)
			return ""
		}
		status := strings.Fields(section(r.inBox(t, box.Process.Pid), "NSpid:"))
		engine := status[len(status)-2]
		// how many ways led in, of how many
		try := func(id, pid string) (in, all int, said string) {
			who := []string{"--reuid", id, "--regid", id, "--clear-groups"}
			ns := fmt.Sprint(descendants(r.Process.Pid)[0])
			cmd := exec.Command("nsenter", append(append([]string{"-t", ns, "-m", "-p", "setpriv"}, who...), stranger, pid)...)
			text, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v %s", err, text)
			}
			in = strings.Count(string(text), ": in\n")
			if refused := strings.Count(string(text), ": refused\n"); in+refused != strings.Count(string(text), "\n") {
				t.Errorf("it neither worked nor was it refused: %s", text)
			}
			return in, strings.Count(string(text), "\n"), string(text)
		}
		for who, pid := range map[string]string{"bob's process": free[bob], "bob's engine": engine, "the worker": seen(theWorker), "the supervisor": seen("botbox-supervisor\x00--resume")} {
			if in, all, said := try(alice, pid); in != 0 || all < 20 {
				t.Errorf("hidden %s, alice on %s: %d of %d:\n%s", harden, who, in, all, said)
			}
			// Of another user's limits root needs CAP_SYS_RESOURCE, which it may lack.
			if in, all, said := try("0", pid); in != all && !(in == all-1 && strings.Contains(said, "limits: refused\n")) {
				t.Errorf("control: root on %s: %d of %d:\n%s", who, in, all, said)
			}
		}
		if in, all, said := try(alice, free[alice]); in != all {
			t.Errorf("control: alice on a process of her own: %d of %d:\n%s", in, all, said)
		}
	}
}

// Whatever a box makes, and however, is its bot's on the machine.
func TestABoxsFilesAreItsBots(t *testing.T) {
	r, data := dataWorld(t)
	ws := data + "/workspaces/bob"
	for _, bot := range []string{"alice", "bob"} {
		if out, err := r.bot(t, "adopt", bot); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	script := `set -e; echo a >file; mkdir -p d/e; mkfifo d/fifo; ln -s /etc/passwd d/link; ln file d/hard; cp -p /etc/passwd d/copy; install -m 4755 /bin/true d/suid 2>/dev/null || :
		tar -cf - -C /etc hostname | tar -xf - -C d/e; git init -q g; umask 0; touch open; mv notes moved; perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "d/socket", Listen => 1) or die'`
	if out, err := r.as(t, "", rig.Programs(t)+"/botbox", "run", "--bot", "bob", "--cwd", ws, "--", "sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	entries := 0
	err := filepath.WalkDir(ws, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		entries++
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			return err
		}
		if uid := ownerOf(t, path); uid != "300001" {
			t.Errorf("%s belongs to %s", path, uid)
		}
		return nil
	})
	if err != nil || entries < 20 {
		t.Errorf("%d entries, %v", entries, err)
	}
	if uid := ownerOf(t, data+"/workspaces/alice/notes"); uid != "300000" {
		t.Errorf("control: alice's file belongs to %s", uid)
	}
}
