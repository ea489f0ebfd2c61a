package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// tool is something that an engine has to be able to do in its box. What it
// prints is computed, so that a tool that only starts does not pass.
type tool struct {
	name   string
	needs  string // the programs that it takes
	script string
	want   string // all of stdout
}

// tools are what agents use, and what filters of system calls are known to
// break: clone3 (moby#42680), AF_UNIX (claude-code#44180, codex PR#26625),
// netlink, ptrace, io_uring (go-microvm PR#76).
var tools = []tool{
	{"node", "node", `node -e '
		const { Worker } = require("worker_threads"), { execFileSync, spawn } = require("child_process")
		const names = Object.keys(require("os").networkInterfaces())
		const shell = execFileSync("/bin/sh", ["-c", "echo $((6 * 7))"]).toString().trim()
		new Worker("require(\"worker_threads\").parentPort.postMessage(6 * 9)", { eval: true }).on("message", (sum) =>
			spawn("/bin/cat", { stdio: ["pipe", "pipe", "inherit"] }).on("close", (code) =>
				console.log(names.join(), shell, sum, code)).stdin.end("x"))'`,
		"lo 42 54 0\n"},
	{"npm", "npm node", `npm init -y >/dev/null && npm pkg set scripts.sum='node -p 20+22' && npm run --silent sum`, "42\n"},
	{"git", "git", `
		git init -q -b main . && git config user.email a@example.com && git config user.name A
		echo one >file && git add file && git commit -qm first && git worktree add -q tree -b side
		cd tree && echo two >>file && git commit -qam second && git log --format=%s && git -C .. diff --stat main side | tail -1`,
		"second\nfirst\n 1 file changed, 1 insertion(+)\n"},
	{"python", "python3", `python3 -c '
import asyncio, multiprocessing, sys

def add(lock, total):
    for _ in range(100):
        with lock:
            total.value += 1

async def double(n):
    child = await asyncio.create_subprocess_exec("/bin/sh", "-c", f"echo $(({n} * 2))", stdout=asyncio.subprocess.PIPE)
    return int((await child.communicate())[0])

lock, total = multiprocessing.Semaphore(1), multiprocessing.Value("i", 0, lock=False)
children = [multiprocessing.Process(target=add, args=(lock, total)) for _ in range(4)]
[c.start() for c in children]
[c.join() for c in children]
print(total.value, asyncio.run(double(21)), sys.version_info.major)
'`, "400 42 3\n"},
	{"sqlite", "python3", `python3 -c '
import sqlite3
db = sqlite3.connect("x.db")
db.execute("pragma journal_mode=wal")
db.execute("create table t (n)")
db.executemany("insert into t values (?)", [(n,) for n in range(10)])
db.commit()
print(sqlite3.connect("x.db").execute("select sum(n) from t").fetchone()[0])
'`, "45\n"},
	{"unix sockets", "python3", `python3 -c '
import os, socket, threading
a, b = socket.socketpair()
a.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
b.sendmsg([b"pair"])
listener = socket.socket(socket.AF_UNIX)
listener.bind("/tmp/s")
listener.listen()
threading.Thread(target=lambda: listener.accept()[0].sendall(b"path")).start()
client = socket.socket(socket.AF_UNIX)
client.connect("/tmp/s")
print(a.recv(9).decode(), client.recv(9).decode())
'`, "pair path\n"},
	{"go", "go", `
		printf 'module x\n\ngo 1.21\n' >go.mod
		printf 'package main\n\nimport "os"\n\nfunc main() { os.Stdout.WriteString(os.Args[1] + "\\n") }\n' >main.go
		export GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off CGO_ENABLED=0
		go build -o prog . && ./prog built && go run . ran`, "built\nran\n"},
	{"gcc, with threads", "gcc", cProgram + `gcc -pthread -o prog prog.c && ./prog; echo $?`, "42\n"},
	{"gdb", "gdb gcc", cProgram + `gcc -g -pthread -o prog prog.c &&
		gdb -q -nx -batch -ex 'break work' -ex run -ex 'print *(int *)arg' -ex bt ./prog 2>/dev/null | grep -o -e '^\$1 = .*' -e '^#0 *work'`,
		"$1 = 40\n#0  work\n"},
	{"strace", "strace", `strace -f -qq -e trace=execve -o log sh -c '/bin/true; /bin/true' && grep -c 'execve("/bin/true"' log`, "2\n"},
	{"java", "java javac", `
		printf 'class A { public static void main(String[] a) throws Exception { int[] n = {0}; Thread t = new Thread(() -> n[0] = 42); t.start(); t.join(); System.out.println(n[0]); } }' >A.java
		javac A.java && java -Xmx64m A && java -version 2>&1 | grep -c -i 'vm'`, "42\n1\n"},
	{"perl", "perl", `perl -e 'pipe(R, W); if (fork) { close W; print scalar <R>; wait; print $? >> 8, "\n" } else { print W 6 * 7, "\n"; exit 3 }'`, "42\n3\n"},
	{"tar", "tar gzip", `mkdir d && echo x >d/f && ln -s f d/l && tar -czf d.tgz d && rm -r d && tar -xzf d.tgz && cat d/l`, "x\n"},
	{"flock", "flock", `flock lock sh -c 'flock -n lock true; echo $?' && flock -n lock echo free`, "1\nfree\n"},
	// An engine's own sandbox cannot start in a box of kind engine, and hears so
	// at once, in the words that it looks for.
	{"nested sandbox", "unshare", `unshare -Ur true 2>&1; echo $?`, "unshare: unshare failed: Operation not permitted\n1\n"},
}

const cProgram = `cat >prog.c <<'END'
#include <pthread.h>
static void *work(void *arg) { *(int *)arg += 2; return 0; }
int main(void) { int n = 40; pthread_t t; pthread_create(&t, 0, work, &n); pthread_join(t, 0); return n; }
END
`

func TestToolsWorkInABox(t *testing.T) {
	p := newPlace(t)
	goroot, path := goTree(t)
	for _, c := range tools {
		t.Run(c.name, func(t *testing.T) {
			for _, program := range strings.Fields(c.needs) {
				if !installed(program, path) {
					rig.Missing(t, "%s is not there (testbed/setup.sh test installs it)", program)
				}
			}
			work, err := os.MkdirTemp(p.work, "t")
			if err != nil {
				t.Fatal(err)
			}
			rig.Give(t, work)
			out := rig.Run(t, p.botbox([]string{"PATH=" + path}, with([]string{"run", "--standalone", "--cwd", work}, append(goroot, "--", "sh", "-c", c.script)...)...))
			if out.Code != 0 || out.Stdout != c.want {
				t.Errorf("%+v, want %q", out, c.want)
			}
		})
	}
}

// goTree gives the flags that let the Go tree into a box, where it is not in
// one anyway, and a PATH with it.
func goTree(t *testing.T) (flags []string, path string) {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(out))
	if !strings.HasPrefix(root, "/usr/") && !strings.HasPrefix(root, "/opt/") {
		flags = []string{"--ro", root}
	}
	return flags, "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:" + filepath.Join(root, "bin")
}

func installed(program, path string) bool {
	for _, dir := range filepath.SplitList(path) {
		if st, err := os.Stat(filepath.Join(dir, program)); err == nil && st.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

// A download goes through the egress gate, and no other way.
func TestADownloadThroughTheGate(t *testing.T) {
	server := newFixture(t)
	big := strings.Repeat("0123456789abcdef", 1<<16)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(big)) })
	p := newPlace(t)
	out := rig.Run(t, p.botbox([]string{"OMB_EGRESS_EXCEPT=127.0.0.1:" + server.port()}, "run", "--standalone", "--", "sh", "-c",
		`curl -sS --noproxy '' -o got "$1" && wc -c <got && curl -s --noproxy '*' -m 5 "$1"; echo $?`, "sh", server.URL))
	if got, _ := os.ReadFile(filepath.Join(p.work, "got")); out.Stdout != "1048576\n7\n" || string(got) != big {
		t.Errorf("%+v; %d bytes came", out, len(got))
	}
}
