package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/provider"
	"github.com/openmausbot/botbox/testbed/rig"
)

const (
	keyHalfA = "sk-ant-canary-"
	keyHalfB = "3f9c1d7a5e2b8046"
)

// install gives the folder and the program of an engine, installed from the
// npm registry by its name, in a place that the account can read.
func install(t *testing.T, name string) (dir, bin string) {
	t.Helper()
	cmd := exec.Command("sh", filepath.Join(rig.Root(), "testbed/engines.sh"), name)
	cmd.Env = os.Environ()
	if os.Geteuid() == 0 && os.Getenv("BOTBOX_ENGINES_DIR") == "" {
		cmd.Env = append(cmd.Env, "BOTBOX_ENGINES_DIR=/var/cache/botbox-engines")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		rig.Missing(t, "%s cannot be installed: %v", name, err)
	}
	bin = strings.TrimSpace(string(out))
	dir, _, _ = strings.Cut(bin, "/node_modules/")
	return dir, bin
}

// A real engine's turn, with a tool call, and no key in its box.
func TestClaudeCodeCompletesATurn(t *testing.T) {
	engine, claude := install(t, "claude")
	ways(t, func(t *testing.T, p *place, run []string) {
		sweeper := filepath.Join(p.top, "sweeper")
		if err := rig.Compile(sweeper, "./testbed/sweeper", "rig"); err != nil {
			t.Fatal(err)
		}
		model := provider.New(provider.Options{
			Key:   keyHalfA + keyHalfB,
			Tool:  fmt.Sprintf("%s %s %s /etc /run /tmp /dev/shm; echo the tool ran", sweeper, keyHalfA, keyHalfB),
			Reply: "The turn is complete.",
		})
		upstream := httptest.NewServer(model)
		defer upstream.Close()
		out := rig.Run(t, p.botbox([]string{
			"ANTHROPIC_API_KEY=" + keyHalfA + keyHalfB, "ANTHROPIC_BASE_URL=" + upstream.URL, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		}, with(run, "--ro", engine, "--ro", sweeper, "--", claude, "-p", "hello", "--dangerously-skip-permissions")...))
		if out.Code != 0 || !strings.Contains(out.Stdout, "The turn is complete.") {
			t.Fatalf("the turn did not complete: %+v", out)
		}
		requests := model.Requests()
		if len(requests) < 2 {
			t.Fatalf("%d requests: the tool's result never came back", len(requests))
		}
		swept := requests[len(requests)-1].Body
		if !strings.Contains(swept, "the tool ran") || !strings.Contains(swept, "swept") {
			t.Fatalf("the sweep did not run in the box: %s", swept)
		}
		if strings.Contains(swept, "found in") {
			t.Errorf("the key is in the box: %s", swept)
		}
		for _, r := range requests {
			checkCredential(t, r)
		}
	})
}

// checkCredential wants the real key once, in its own header, and no token.
func checkCredential(t *testing.T, r provider.Request) {
	t.Helper()
	all := fmt.Sprint(r.URI, r.Header, r.Body)
	if n := strings.Count(fmt.Sprint(r.URI, r.Header), keyHalfA+keyHalfB); n != 1 || r.Header.Get("X-Api-Key") != keyHalfA+keyHalfB {
		t.Errorf("%s %s: the key stands %d times", r.Method, r.URI, n)
	}
	if strings.Contains(all, "omb_t0_") {
		t.Errorf("%s %s: a token reached the upstream", r.Method, r.URI)
	}
}

// The sweep finds a key where there is one: the control of the test above.
func TestTheSweepFindsAKey(t *testing.T) {
	p := newPlace(t)
	sweeper := filepath.Join(p.top, "sweeper")
	if err := rig.Compile(sweeper, "./testbed/sweeper", "rig"); err != nil {
		t.Fatal(err)
	}
	rig.Write(t, filepath.Join(p.work, "file"), "x"+keyHalfA+keyHalfB)
	out := rig.Run(t, p.botbox(nil, "run", "--standalone", "--ro", sweeper, "--env", "PLANTED="+keyHalfA+keyHalfB, "--",
		"sh", "-c", sweeper+" "+keyHalfA+" "+keyHalfB+" .; true"))
	for _, want := range []string{"found in file", "/environ", "found in the memory of"} {
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("no %q in %+v", want, out)
		}
	}
}
