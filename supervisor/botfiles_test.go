package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// dataWorld is usersWorld with the data folder of a server, which has a
// workspace for each of two bots.
func dataWorld(t *testing.T) (r *running, data string) {
	t.Helper()
	dir := rig.Dir(t)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, 0, 0)); err != nil {
		t.Fatal(err)
	}
	data = filepath.Join(dir, "data")
	for _, bot := range []string{"alice", "bob"} {
		ws := filepath.Join(data, "workspaces", bot)
		if err := os.MkdirAll(filepath.Join(ws, "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, mode := range map[string]os.FileMode{"notes": 0o600, "sub/run.sh": 0o750} {
			if err := errors.Join(os.WriteFile(filepath.Join(ws, name), []byte("#!/bin/sh\necho of "+bot+"\n"), mode), os.Chmod(filepath.Join(ws, name), mode)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.Link(ws+"/notes", ws+"/sub/again"), os.Symlink("/etc/passwd", ws+"/link")); err != nil {
			t.Fatal(err)
		}
	}
	own(t, data)
	return usersWorld(t, "OMB_DATA_DIR="+data), data
}

// own gives a tree to the account.
func own(t *testing.T, dir string) {
	t.Helper()
	maus := rig.Account(t)
	if out, err := exec.Command("chown", "-hR", maus.Uid+":"+maus.Gid, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func (r *running) bot(t *testing.T, words ...string) ([]byte, error) {
	return r.as(t, "", append([]string{rig.Programs(t) + "/botbox", "bot"}, words...)...).CombinedOutput()
}

// listing tells owner, mode and lists of all of a tree.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			return err
		}
		access, _ := syscall.Getxattr(path, "system.posix_acl_access", nil)
		inherited, _ := syscall.Getxattr(path, "system.posix_acl_default", nil)
		if st.Mode&syscall.S_IFMT == syscall.S_IFLNK {
			access, inherited = 0, 0
		}
		fmt.Fprintf(&b, "%s %d:%d %o %d %d\n", strings.TrimPrefix(path, dir), st.Uid, st.Gid, st.Mode, access, inherited)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func ownerOf(t *testing.T, path string) string {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(int(st.Uid))
}

// A workspace is the bot's own, the server works in it as before, and all of
// that can be undone to the last bit.
func TestAWorkspaceChangesHands(t *testing.T) {
	r, data := dataWorld(t)
	ws := data + "/workspaces/alice"
	before := listing(t, data)
	turn := func(script string) ([]byte, error) {
		return r.as(t, "", rig.Programs(t)+"/botbox", "run", "--bot", "alice", "--cwd", ws, "--", "sh", "-c", script).CombinedOutput()
	}
	if out, err := turn("true"); err == nil || !strings.Contains(string(out), "reason: bot-user-path") || !strings.Contains(string(out), "botbox bot adopt") {
		t.Errorf("a workspace of another user's: %v %s", err, out)
	}
	if out, err := r.bot(t, "adopt", "alice"); err != nil || !strings.HasPrefix(string(out), "5 files and folders") {
		t.Fatalf("adopt: %v %s", err, out)
	}
	if out, err := r.bot(t, "adopt", "alice"); err != nil || !strings.HasPrefix(string(out), "0 files and folders") {
		t.Errorf("adopt again: %v %s", err, out)
	}
	out, err := turn("cat notes; sub/run.sh; echo new >made; mkdir dir; echo deep >dir/deep; git init -q . && git status --short | head -1; stat -c %U . notes")
	if err != nil || strings.Count(string(out), "of alice") != 2 || !strings.Contains(string(out), "maus\nmaus\n") || !strings.Contains(string(out), "??") {
		t.Errorf("in the box: %v %s", err, out)
	}
	for _, name := range []string{"", "/notes", "/sub/run.sh", "/made", "/dir/deep", "/link", "/.git/config"} {
		if uid := ownerOf(t, ws+name); uid != "300000" {
			t.Errorf("%s belongs to %s", name, uid)
		}
	}
	// The server reads and writes, and the bot what the server made.
	server := r.as(t, "", "sh", "-c", "cat "+ws+"/made "+ws+"/dir/deep "+ws+"/notes && echo more >>"+ws+"/made && (umask 077; echo hers >"+ws+"/dir/upload; mkdir "+ws+"/up) && rm "+ws+"/dir/deep")
	if out, err := server.CombinedOutput(); err != nil {
		t.Errorf("the server: %v %s", err, out)
	}
	if out, err := turn("cat made dir/upload && echo mine >>dir/upload && echo x >up/y"); err != nil || !strings.Contains(string(out), "more\nhers") {
		t.Errorf("what the server made: %v %s", err, out)
	}
	if out, err := r.bot(t, "release", "alice"); err != nil {
		t.Fatalf("release: %v %s", err, out)
	}
	if out, err := r.as(t, "", "sh", "-c", "cd "+ws+" && rm -r made dir up .git").CombinedOutput(); err != nil {
		t.Errorf("%v %s", err, out)
	}
	if after := listing(t, data); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func TestAWorkspaceThatCannotChangeHands(t *testing.T) {
	r, data := dataWorld(t)
	ws := data + "/workspaces/alice"
	for what, c := range map[string]struct{ plant, says string }{
		"another's file":    {"echo x >$WS/x; chown 12345 $WS/x", "bot-user-tree"},
		"another's group":   {"echo x >$WS/x; chown $ME $WS/x; chgrp 12345 $WS/x", "bot-user-tree"},
		"a name outside":    {"echo x >$WS/x; chown $ME $WS/x; ln $WS/x $WS/../y", "bot-user-tree"},
		"a device":          {"mknod $WS/x c 1 3; chown $ME $WS/x", "bot-user-tree"},
		"a list of its own": {"", "bot-user-tree"},
	} {
		maus := rig.Account(t)
		undo := "rm -f $WS/x $WS/../y"
		sh := func(script string) {
			cmd := exec.Command("sh", "-ec", script)
			cmd.Env = []string{"WS=" + ws, "ME=" + maus.Uid + ":" + maus.Gid, "PATH=/usr/bin:/bin"}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v %s", what, err, out)
			}
		}
		sh(c.plant)
		if c.plant == "" { // u::rwx u:7:rwx g::- m::rwx o::-
			list := []byte{2, 0, 0, 0}
			for _, e := range [][3]byte{{1, 7, 0xff}, {2, 7, 7}, {4, 0, 0xff}, {16, 7, 0xff}, {32, 0, 0xff}} {
				high := byte(0)
				if e[2] == 0xff {
					high = 0xff
				}
				list = append(list, e[0], 0, e[1], 0, e[2], high, high, high)
			}
			if err := syscall.Setxattr(ws+"/sub", "system.posix_acl_default", list, 0); err != nil {
				t.Fatal(err)
			}
		}
		before := listing(t, data)
		if out, err := r.bot(t, "adopt", "alice"); err == nil || !strings.Contains(string(out), "reason: "+c.says) {
			t.Errorf("%s: %v %s", what, err, out)
		}
		if after := listing(t, data); after != before {
			t.Errorf("%s: half done\n%s", what, after)
		}
		sh(undo)
		if c.plant == "" {
			syscall.Removexattr(ws+"/sub", "system.posix_acl_default")
		}
	}
	for _, folder := range []string{"/", "/etc/x", "/home", data, data + "/workspaces", data + "/messages", r.out + "/run"} {
		if out, err := r.bot(t, "adopt", "alice", folder); err == nil || !strings.Contains(string(out), "reason: path_refused") {
			t.Errorf("%s: %v %s", folder, err, out)
		}
	}
	if err := os.Symlink("bob", data+"/workspaces/carol"); err != nil {
		t.Fatal(err)
	}
	if out, err := r.bot(t, "adopt", "carol"); err == nil || !strings.Contains(string(out), "reason: work-folder") {
		t.Errorf("a link: %v %s", err, out)
	}
	if out, err := r.bot(t, "adopt", "alice"); err != nil {
		t.Errorf("control: %v %s", err, out)
	}
	if out, err := r.bot(t, "adopt", "dave"); err != nil || !strings.HasPrefix(string(out), "1 files") { // a new one
		t.Errorf("a new workspace: %v %s", err, out)
	}
	if out, err := r.as(t, "", rig.Programs(t)+"/botbox", "run", "--bot", "dave", "--cwd", data+"/workspaces/dave", "--", "touch", "x").CombinedOutput(); err != nil || ownerOf(t, data+"/workspaces/dave/x") == ownerOf(t, data) {
		t.Errorf("in it: %v %s", err, out)
	}
	// And not under a running box's feet.
	cmd := r.as(t, "", rig.Programs(t)+"/botbox", "run", "--bot", "alice", "--cwd", ws, "--", "sh", "-c", "echo up; sleep 60")
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	r.await(t, "the box", func() bool { return strings.Contains(out.String(), "up\n") })
	if out, err := r.bot(t, "release", "alice"); err == nil || !strings.Contains(string(out), "reason: bot-user-busy") {
		t.Errorf("busy: %v %s", err, out)
	}
}

// A bot that is out of every box, with its own user's rights, is still a
// stranger to the other bot, to the worker and to the supervisor.
func TestABotIsAStrangerToAllOthers(t *testing.T) {
	r, data := dataWorld(t)
	for _, bot := range []string{"alice", "bob"} {
		if out, err := r.bot(t, "adopt", bot); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	cmd := r.as(t, "", rig.Programs(t)+"/botbox", "run", "--bot", "bob", "--cwd", data+"/workspaces/bob", "--", "sh", "-c", "echo up; sleep 61")
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	r.await(t, "the box", func() bool { return strings.Contains(out.String(), "up\n") })
	status := r.inBox(t, cmd.Process.Pid)
	inner := strings.Fields(section(status, "NSpid:"))
	bob := inner[len(inner)-2] // in the supervisor's namespace, above the box's
	pid := func(text string) string {
		for _, p := range descendants(r.Process.Pid) {
			if s := read(fmt.Sprintf("/proc/%d/status", p)); strings.Contains(read(fmt.Sprintf("/proc/%d/cmdline", p)), text) {
				ids := strings.Fields(section(s, "NSpid:"))
				return ids[len(ids)-1]
			}
		}
		t.Fatalf("no process with %q", text)
		return ""
	}
	const alices, bobs = "300000", "300001"
	// gdb and strace may be absent: dd of mem is ptrace's check as well.
	try := func(id, script string) bool { return r.as(t, id, "sh", "-c", script).Run() == nil }
	// A process of bob's that is out of every box, too: the kernel keeps an
	// engine, which is in a user namespace, even from its own user outside.
	free := r.as(t, bobs, "sleep", "62")
	if err := free.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { free.Process.Kill(); free.Wait() }()
	r.await(t, "bob's sleep", func() bool { return pidOf(free.Process.Pid) != 0 })
	loose := innerPid(pidOf(free.Process.Pid))
	for who, p := range map[string]string{"bob's process": loose, "bob's engine": bob, "the worker": pid("serve\x00--control"), "the supervisor": pid("botbox-supervisor\x00--resume")} {
		for what, script := range map[string]string{
			"signal": "kill -0 " + p, "environ": "head -c1 /proc/" + p + "/environ", "memory": "head -c0 /proc/" + p + "/mem",
			"root": "ls /proc/" + p + "/root/", "see": "test -d /proc/" + p,
		} {
			if try(alices, script) {
				t.Errorf("alice: %s of %s", what, who)
			}
			if (who == "bob's process" || who == "bob's engine" && what == "signal") && !try(bobs, script) {
				t.Errorf("control: bob: %s of %s", what, who)
			}
		}
	}
	for what, script := range map[string]string{
		"notes": "cat " + data + "/workspaces/%s/notes", "list": "ls " + data + "/workspaces/%s", "write": "echo x >" + data + "/workspaces/%s/x", "plant": "mkdir " + data + "/workspaces/%s/d",
	} {
		if try(alices, fmt.Sprintf(script, "bob")) {
			t.Errorf("alice: %s of bob's workspace", what)
		}
		if !try(bobs, fmt.Sprintf(script, "bob")) {
			t.Errorf("control: bob: %s", what)
		}
	}
	for what, script := range map[string]string{
		"the data folder": "ls " + data, "all workspaces": "ls " + data + "/workspaces", "the worker's folder": "ls " + r.out + "/state",
		"the lease socket": "test -S " + r.out + "/run/lease.sock", "the table": "cat " + r.out + "/state.ctl/bot-users",
	} {
		if try(alices, script) {
			t.Errorf("alice: %s", what)
		}
	}
}

// pidOf is the sleep that a command has become: itself, or a child of the
// nsenter that stays in front of it.
func pidOf(pid int) int {
	for _, p := range append([]int{pid}, descendants(pid)...) {
		if strings.HasPrefix(read(fmt.Sprintf("/proc/%d/cmdline", p)), "sleep\x00") {
			return p
		}
	}
	return 0
}

// innerPid is a process's number in the innermost namespace that it is in.
func innerPid(pid int) string {
	ids := strings.Fields(section(read(fmt.Sprintf("/proc/%d/status", pid)), "NSpid:"))
	return ids[len(ids)-1]
}
