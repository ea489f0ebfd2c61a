package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image/png"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// pipe drives a browser over --remote-debugging-pipe: JSON, each message with
// a NUL behind it.
type pipe struct {
	t       *testing.T
	to      *os.File
	answers *bufio.Reader
	session string
	n       int
}

// drive starts a browser whose descriptors 3 and 4 are the test's.
func drive(t *testing.T, cmd *exec.Cmd) *pipe {
	t.Helper()
	commands, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, answers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.ExtraFiles, cmd.Stderr = []*os.File{commands, answers}, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	commands.Close()
	answers.Close()
	late := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		to.Close()
		cmd.Wait()
		late.Stop()
		from.Close()
		if t.Failed() {
			t.Logf("the browser said:\n%s", &errs)
		}
	})
	return &pipe{t: t, to: to, answers: bufio.NewReader(from)}
}

// do sends one command and gives the result; events in between are passed over.
func (p *pipe) do(method string, params map[string]any, result any) {
	p.t.Helper()
	p.n++
	b, err := json.Marshal(struct {
		ID      int            `json:"id"`
		Method  string         `json:"method"`
		Params  map[string]any `json:"params"`
		Session string         `json:"sessionId,omitempty"`
	}{p.n, method, params, p.session})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.to.Write(append(b, 0)); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
	for {
		message, err := p.answers.ReadBytes(0)
		if err != nil {
			p.t.Fatalf("%s: %v", method, err)
		}
		var answer struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  *struct{ Message string }
		}
		if err := json.Unmarshal(message[:len(message)-1], &answer); err != nil {
			p.t.Fatal(err)
		}
		if answer.ID != p.n {
			continue
		}
		if answer.Error != nil {
			p.t.Fatalf("%s: %s", method, answer.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(answer.Result, result); err != nil {
				p.t.Fatal(err)
			}
		}
		return
	}
}

// open makes a page the one that further commands go to.
func (p *pipe) open(url string) {
	p.t.Helper()
	var target struct{ TargetID string }
	p.do("Target.createTarget", map[string]any{"url": url}, &target)
	var attached struct{ SessionID string }
	p.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p.session = attached.SessionID
}

// eval gives the value of an expression, or of the promise that it is.
func (p *pipe) eval(expression string, value any) {
	p.t.Helper()
	var result struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails any
	}
	p.do("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &result)
	if result.ExceptionDetails != nil {
		p.t.Fatalf("%s: %v", expression, result.ExceptionDetails)
	}
	if err := json.Unmarshal(result.Result.Value, value); err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
}

func screenshot(t *testing.T, chrome *pipe) {
	t.Helper()
	var shot struct{ Data string }
	chrome.do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	picture, err := png.Decode(base64.NewDecoder(base64.StdEncoding, strings.NewReader(shot.Data)))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[any]bool{}
	for x := range 200 {
		for y := range 60 {
			seen[picture.At(x, y)] = true
		}
	}
	if len(seen) < 3 {
		t.Errorf("the screenshot shows %d colours where the text should be", len(seen))
	}
}
