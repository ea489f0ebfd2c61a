package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	engineDir  = "/engine" // its disk
	engineKey  = "sk-proj-canary-4b1f0d7c92e8"
	engineTold = "/run/provider.log"
)

// engineTurn is a real engine's turn in a box, with a command in it, against
// the stand-in provider on this machine's loopback.
func engineTurn(b *bed) (string, error) {
	provider := exec.Command(programs+"/standin", "-listen", "127.0.0.1:8088", "-ready-file", "/run/provider", "-log", engineTold, "-key", engineKey,
		"-reply", "The turn is complete.", "-tool", "id -un; env | grep -c "+engineKey[:20]+"; echo the tool ran")
	if err := provider.Start(); err != nil {
		return "", err
	}
	defer func() { provider.Process.Kill(); provider.Wait() }()
	if err := eventually(10*time.Second, func() bool { return read("/run/provider") != "" }); err != nil {
		return "", err
	}
	begin := time.Now()
	r := b.command("", programs+"/botbox", "run", "--ro", engineDir, "--", engineDir+"/codex", "exec", "-m", "gpt-5",
		"--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "hello")
	r.Env = append(r.Env, "OPENAI_API_KEY="+engineKey, "OPENAI_BASE_URL=http://127.0.0.1:8088/v1")
	if err := r.startIn(b.part("botbox-worker")); err != nil {
		return "", err
	}
	out := r.end()
	took := time.Since(begin)
	if out.code != 0 || !strings.Contains(out.stdout, "The turn is complete.") {
		return out.String() + read(engineTold), fmt.Errorf("after %v the turn is not complete", took)
	}
	last, n, err := asked()
	if err != nil || n != 2 || !strings.Contains(last, `maus\n0\nthe tool ran`) {
		return last, errors.Join(err, fmt.Errorf("%d requests, or the command did not run without the key", n))
	}
	return fmt.Sprintf("%d requests in %v", n, took), nil
}

// asked reads what the provider was asked: how often, and at last. It refuses
// with 401 who does not show the key, so that a completed turn has shown it.
func asked() (last string, n int, err error) {
	text, err := os.ReadFile(engineTold)
	if err != nil {
		return "", 0, err
	}
	for line := range strings.Lines(string(text)) {
		var r struct {
			URI    string
			Header http.Header
			Body   string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return line, n, err
		}
		if all := fmt.Sprint(r.URI, r.Header); strings.Count(all, engineKey) != 1 || strings.Contains(all+r.Body, "omb_t0_") {
			return line, n, errors.New("the key did not take the token's place")
		}
		last, n = r.Body, n+1
	}
	return last, n, nil
}
