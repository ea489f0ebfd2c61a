package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// MCP servers of npx and uvx are run out of HOME and caches.
func TestBug_heym394_reyn2976_ExecutableFolders(t *testing.T) {
	ways(t, func(t *testing.T, p *place, run []string) {
		out := rig.Run(t, p.botbox(nil, with(run, "--", "sh", "-c", `
			for d in "$HOME" "$HOME/.cache/uv" "$HOME/.npm" /tmp /var/tmp . ; do
				mkdir -p "$d" && cp /bin/true "$d/t" && "$d/t" || echo "nothing can be run in $d"
			done; echo done`)...))
		if out.Stdout != "done\n" {
			t.Errorf("%+v", out)
		}
	})
}

// On many machines the resolver's file is a link into /run, which a box has
// for itself. There is nothing to resolve in a box, and it starts all the same.
func TestBug_greywall81_aijail93_DanglingResolvConf(t *testing.T) {
	p := newPlace(t)
	out := p.mounted(`mount -t tmpfs t `+p.top+`/run && mkdir `+p.top+`/run/u `+p.top+`/run/w &&
		mount -t overlay o -o lowerdir=/etc,upperdir=`+p.top+`/run/u,workdir=`+p.top+`/run/w /etc &&
		ln -sf /run/systemd/resolve/stub-resolv.conf /etc/resolv.conf`,
		filepath.Join(p.bin, "botbox")+` run --standalone -- sh -c 'readlink /etc/resolv.conf; cat /etc/resolv.conf 2>/dev/null; id -un'`)
	if out.Stdout != "/run/systemd/resolve/stub-resolv.conf\nmaus\n" {
		t.Errorf("%+v", out)
	}
}

// mounted runs a command as the account in a namespace of mounts, after root
// has changed some there.
func (p *place) mounted(mounts, command string) rig.Output {
	p.t.Helper()
	if os.Geteuid() != 0 {
		rig.Missing(p.t, "root, to mount something in a namespace of its own")
	}
	cmd := exec.Command("unshare", "-m", "sh", "-c", "mount --make-rprivate / && "+mounts+" && cd "+p.work+
		" && exec setpriv --reuid maus --regid maus --clear-groups "+command)
	cmd.Env = append(p.env, "OMB_RUN_DIR="+p.top+"/none")
	return rig.Run(p.t, cmd)
}

// traced runs a box under strace and gives the calls that it made.
func (p *place) traced(calls string, run ...string) string {
	p.t.Helper()
	needs(p.t, "strace")
	log := filepath.Join(p.top, "strace")
	cmd := p.botbox(nil, run...)
	cmd.Args = append([]string{"strace", "-f", "-qq", "-o", log, "-e", "trace=" + calls, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/usr/bin/strace"
	if err := os.Remove(log); err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	rig.Write(p.t, log, "")
	if out := rig.Run(p.t, cmd); out.Code != 0 {
		p.t.Fatalf("under strace: %+v", out)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// Ubuntu's profile for bubblewrap takes all capabilities from what that starts.
// Our first program in a box makes no call that would need one.
func TestBug_sandboxruntime429_claudecode81799_EntryNeedsNoCapability(t *testing.T) {
	p := newPlace(t)
	const privileged = "mount,umount2,pivot_root,chroot,unshare,setns,setgroups,setuid,setgid,setreuid,setregid,setresuid,setresgid," +
		"setfsuid,setfsgid,capset,sethostname,mknod,mknodat,chown,fchown,fchownat,lchown"
	trace := p.traced("execve,"+privileged, "run", "--standalone", "--", "/bin/true")
	entry := regexp.MustCompile(`(?m)^(\d+) +execve\("/run/botbox/boxentry"`).FindStringSubmatchIndex(trace)
	if entry == nil {
		t.Fatalf("boxentry is not seen:\n%s", trace)
	}
	before, pid, after := trace[:entry[0]], trace[entry[2]:entry[3]], trace[entry[1]:]
	if !strings.Contains(before, " mount(") || !strings.Contains(before, " pivot_root(") {
		t.Errorf("positive control: bubblewrap's own calls are not seen:\n%s", before)
	}
	if !regexp.MustCompile(`(?m)^` + pid + ` +execve\("/bin/true"`).MatchString(after) {
		t.Errorf("positive control: the engine is not seen:\n%s", after)
	}
	for line := range strings.Lines(after) {
		who, call, _ := strings.Cut(line, " ")
		name, _, isCall := strings.Cut(strings.TrimSpace(call), "(")
		if who == pid && isCall && name != "execve" && !strings.HasPrefix(name, "---") {
			t.Errorf("boxentry, or the engine: %s", line)
		}
	}
}

// A box starts as fast in a large tree as in an empty one: nothing walks it.
func TestBug_claudecode84681_68587_LargeTrees(t *testing.T) {
	p := newPlace(t)
	looks := func() int {
		return strings.Count(p.traced("getdents64,openat,openat2", "run", "--standalone", "--", "/bin/true"), "\n")
	}
	names := 0
	fill := func(upTo int) {
		for ; names < upTo; names++ {
			dir := filepath.Join(p.work, "t", strconv.Itoa(names/100), "node_modules")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("../..", filepath.Join(dir, strconv.Itoa(names))); err != nil { // a loop
				t.Fatal(err)
			}
		}
	}
	fill(2000) // more than the look for sockets takes in
	small := looks()
	fill(8000)
	large := looks()
	if small < 20 {
		t.Errorf("control: only %d calls are seen", small)
	}
	if large > small+50 {
		t.Errorf("%d calls that look at files in a tree of 2,000 names, %d in one of 8,000", small, large)
	}
}
