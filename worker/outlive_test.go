package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/internet"
	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// supervise runs a supervisor with a driver that asks its worker for a box of
// that spec.
func (p *place) supervise(spec string) (log string) {
	p.t.Helper()
	log, _ = p.supervised("--plain", "--", filepath.Join(p.bin, "botbox"), "run", "--spec", spec)
	return log
}

// supervised runs a supervisor with these words in process and mount namespaces
// of its own, and waits until its worker listens. It gives its log, a file, and
// its parent.
func (p *place) supervised(words ...string) (log string, parent int) {
	p.t.Helper()
	top := rig.Dir(p.t) // of root's, which makes its own beside the two
	if err := errors.Join(os.Chown(top, 0, 0), os.Chmod(top, 0o755)); err != nil {
		p.t.Fatal(err)
	}
	p.run, p.state = filepath.Join(top, "run"), filepath.Join(top, "state")
	p.env = append(p.env, "OMB_RUN_DIR="+p.run, "OMB_STATE_DIR="+p.state)
	log = filepath.Join(top, "log")
	said, err := os.Create(log)
	if err != nil {
		p.t.Fatal(err)
	}
	defer said.Close()
	cmd := exec.Command("unshare", append([]string{"-pfm", "--mount-proc", "--kill-child", filepath.Join(p.bin, "botbox-supervisor")}, words...)...)
	cmd.Env = rig.Env(p.t, "/root", "OMB_RUN_DIR="+p.run, "OMB_STATE_DIR="+p.state, "OMB_LOG=text")
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if p.t.Failed() {
			b, _ := os.ReadFile(log)
			p.t.Logf("the supervisor said:\n%s", b)
		}
	})
	rig.Eventually(p.t, 10*time.Second, "the worker listens", p.listens)
	return log, cmd.Process.Pid
}

// killWorker kills the worker when it has been at work for a while, and waits
// for the next one.
func (p *place) killWorker() {
	p.t.Helper()
	rig.Eventually(p.t, 10*time.Second, "the worker listens", p.listens)
	time.Sleep(600 * time.Millisecond)
	procs, _ := filepath.Glob("/proc/[0-9]*/environ")
	killed := 0
	for _, proc := range procs {
		env, _ := os.ReadFile(proc)
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(proc), "cmdline"))
		if strings.HasPrefix(string(line), "botbox\x00serve\x00--control") && strings.Contains(string(env), "OMB_RUN_DIR="+p.run+"\x00") {
			var pid int
			fmt.Sscanf(proc, "/proc/%d/", &pid)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				p.t.Fatal(err)
			}
			killed++
		}
	}
	if killed == 0 {
		p.t.Fatal("no worker was found")
	}
}

// A box with declared hosts outlives its worker: the same certificate is
// served to it by the next one, its key goes out with the next request, and
// neither the key nor the certificate's lies anywhere in the clear.
func TestADeclaredHostOutlivesTheWorker(t *testing.T) {
	needsRoot(t)
	if !gatetest.Inside(t) {
		return
	}
	w := newWeb(t)
	vendor, other := &recorder{}, &recorder{}
	w.net.Handle("vendor", vendor)
	w.net.Handle("other", other)
	w.instead("/etc/ssl/certs/ca-certificates.crt", string(w.net.Root)) // trusted by the worker as by this machine
	script := `i=0; while :; do while [ ! -e go.$i ]; do sleep 0.02; done
		curl -sS -H "Authorization: Bearer $XAI_API_KEY" "$1/v1/$i" >out.$i 2>&1; curl -sS -H "Authorization: Bearer $XAI_API_KEY" "$2/$i" >>out.$i 2>&1; echo $? >done.$i; i=$((i+1)); done`
	file := filepath.Join(w.top, "spec.json")
	rig.Write(t, file, fmt.Sprintf(`{"id":"declared","argv":["sh","-c",%q,"sh","https://%s","https://other.%s"],"cwd":%q,"env":{"XAI_API_KEY":%q,"PATH":"/usr/bin:/bin"},"broker":{"hosts":[{"env":"XAI_API_KEY","hosts":[%q]}]}}`,
		script, vendorName, internet.Domain, w.work, vendorKey, vendorName))
	log := w.supervise(file)
	for i := range 4 {
		if i > 0 {
			w.killWorker()
		}
		rig.Write(t, fmt.Sprintf("%s/go.%d", w.work, i), "")
		rig.Eventually(t, 20*time.Second, fmt.Sprintf("request %d", i), func() bool {
			_, err := os.Stat(fmt.Sprintf("%s/done.%d", w.work, i))
			return err == nil
		})
		out, _ := os.ReadFile(fmt.Sprintf("%s/out.%d", w.work, i))
		if strings.Count(string(out), "hello from ") != 2 {
			t.Errorf("request %d: %s", i, out)
		}
		if seen := vendor.take(); len(seen) != 1 || strings.Count(seen[0], vendorKey) != 1 || strings.Contains(seen[0], "omb_") {
			t.Errorf("request %d came as %v", i, seen)
		}
		if seen := other.take(); len(seen) != 1 || strings.Contains(seen[0], vendorKey) { // control: no other host has it
			t.Errorf("request %d to another host came as %v", i, seen)
		}
	}
	if b, err := os.ReadFile(log); err != nil || strings.Contains(string(b), "will not outlive") || strings.Contains(string(b), vendorKey) {
		t.Errorf("the box was not kept, or the log holds the key: %v", err)
	}
	filepath.Walk(w.state, func(path string, info os.FileInfo, err error) error {
		if b, _ := os.ReadFile(path); strings.Contains(string(b), vendorKey) || strings.Contains(string(b), "PRIVATE KEY") {
			if !strings.Contains(filepath.Base(path), "report") { // the report's own key, which is another one
				t.Errorf("%s holds a key in the clear", path)
			}
		}
		return nil
	})
}
