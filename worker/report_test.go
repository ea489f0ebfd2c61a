package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

const adminSecret = "c2lnbnMtcmVwb3J0cy1pbi1hLXRlc3Qtb25seS1ub3c"

// reporting is a worker with the Admin's secret, when its self-check is done.
func reporting(t *testing.T) *place {
	p := newPlace(t)
	secrets := filepath.Join(p.top, "secrets")
	if err := os.Mkdir(secrets, 0o700); err != nil {
		t.Fatal(err)
	}
	rig.Write(t, filepath.Join(secrets, "OMB_CLOUD_BOOTSTRAP_SECRET"), adminSecret+"\n")
	rig.Write(t, filepath.Join(secrets, "other"), "sk-ant-report-canary")
	rig.Give(t, secrets)
	for _, name := range []string{"OMB_CLOUD_BOOTSTRAP_SECRET", "other"} {
		rig.Give(t, filepath.Join(secrets, name))
	}
	p.env = append(p.env, "OMB_SECRETS_DIR="+secrets)
	p.serve()
	rig.Eventually(t, time.Minute, "the self-check is done", func() bool {
		return strings.Contains(rig.Run(t, p.botbox(nil, "report", "--json")).Stdout, `"results":[{"id":"D1","layer":"mounts","verdict":`)
	})
	return p
}

func TestASignedReport(t *testing.T) {
	p := reporting(t)
	const nonce = "the-callers-own-nonce_1"
	got := rig.Run(t, p.botbox(nil, "report", "--signed", "--nonce", nonce))
	key := strings.TrimSpace(rig.Run(t, p.botbox(nil, "report", "--public-key")).Stdout)
	if got.Code != 0 || len(key) != 43 || !strings.Contains(got.Stdout, `"nonce":"`+nonce+`"`) {
		t.Fatalf("%+v, key %q", got, key)
	}
	file := filepath.Join(p.top, "report.json")
	rig.Write(t, file, got.Stdout)
	if !strings.Contains(got.Stdout, `\"checks\":\"29/29\"`) {
		t.Fatalf("the self-check did not hold here: %s", got.Stdout)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	// Somebody else's programs, which know nothing of ours.
	script, err := os.ReadFile(filepath.Join(rig.Root(), "worker/internal/report/testdata/verify.sh"))
	if err != nil {
		t.Fatal(err)
	}
	verify := rig.Command(t, p.top, append(p.env, "PATH="+os.Getenv("PATH")), "sh", "-s", file, key, adminSecret)
	verify.Stdin = bytes.NewReader(script) // it may lie in a folder that is closed to the account
	if out := rig.Run(t, verify); out.Code != 0 {
		t.Errorf("openssl and python3: %+v", out)
	}
	var content map[string]json.RawMessage
	var signed struct{ Body string }
	if json.Unmarshal([]byte(got.Stdout), &signed) != nil || json.Unmarshal([]byte(signed.Body), &content) != nil {
		t.Fatalf("no report: %s", got.Stdout)
	}
	for _, name := range []string{"box", "reason", "checks", "failed", "boxed", "refused", "broker", "results", "steps", "build", "kernel", "bwrap", "age_s", "time", "signed", "layers"} {
		if content[name] == nil {
			t.Errorf("the body has no %s", name)
		}
	}
	for _, c := range []struct {
		args []string
		env  string
		code int
		says string
	}{
		{[]string{"--verify", file, "--key", key}, "", 0, "by ed25519 and hmac"},
		{[]string{"--verify", file, "--key", key}, "OMB_SECRETS_DIR=" + filepath.Join(p.top, "none"), 0, "not checked, for the key is not here: hmac"},
		{[]string{"--verify", file}, "", 0, "by hmac"},
		{[]string{"--verify", file}, "OMB_SECRETS_DIR=", 0, "by ed25519"}, // this machine's own
		{[]string{"--verify", file, "--nonce", nonce, "--json"}, "", 0, `"verified_by":["hmac"]`},
		{[]string{"--verify", file, "--nonce", nonce + "2"}, "", 111, "reason: report-forged"},
		{[]string{"--verify", file, "--key", "A" + key[1:]}, "", 111, "reason: report-forged"},
		{[]string{"--verify", file, "--key", "short"}, "", 100, "reason: usage"},
		{[]string{"--verify", filepath.Join(p.top, "none")}, "", 100, "reason: usage"},
		{[]string{"--verify", file, "--signed"}, "", 100, "reason: usage"},
		{[]string{"--signed", "--nonce", "short"}, "", 100, "reason: usage"},
		{[]string{"--nonce", nonce}, "", 100, "reason: usage"},
	} {
		out := rig.Run(t, p.botbox([]string{c.env}, append([]string{"report"}, c.args...)...))
		if out.Code != c.code || !strings.Contains(out.Stdout+out.Stderr, c.says) || (c.code != 0 && out.Stdout != "") {
			t.Errorf("report %v with %q: %+v", c.args, c.env, out)
		}
	}
	rig.Write(t, file, strings.Replace(got.Stdout, `\"checks\":\"29/29\"`, `\"checks\":\"30/30\"`, 1))
	if out := rig.Run(t, p.botbox(nil, "report", "--verify", file, "--key", key)); out.Code != 111 || !strings.Contains(out.Stderr, "reason: report-forged") || out.Stdout != "" {
		t.Errorf("a changed body: %+v", out)
	}
}

// What signs and what boxes are given stays out of every form of the report,
// and the secret that signs stays out of every box.
func TestTheReportHoldsNoSecret(t *testing.T) {
	p := reporting(t)
	pem, err := os.ReadFile(filepath.Join(p.state, "report.key"))
	st, err2 := os.Stat(filepath.Join(p.state, "report.key"))
	if err != nil || err2 != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v %v", err, err2, st)
	}
	private := strings.Split(string(pem), "\n")[1]
	spec := func(ref string) rig.Output {
		cmd := p.botbox(nil, "run", "--spec", "-")
		cmd.Stdin = strings.NewReader(`{"v":1,"argv":["sh","-c","test \"$MINE\" = sk-ant-report-canary && echo it came"],"cwd":"` + p.work +
			`","env":{"MINE":{"secret":"ref:` + ref + `"}},"env_extra_names":["MINE"]}`)
		return rig.Run(t, cmd)
	}
	if out := spec("other"); out.Code != 0 || out.Stdout != "it came\n" {
		t.Fatalf("positive control, another secret: %+v", out)
	}
	for _, ref := range []string{"OMB_CLOUD_BOOTSTRAP_SECRET", "./OMB_CLOUD_BOOTSTRAP_SECRET", "x/../OMB_CLOUD_BOOTSTRAP_SECRET"} {
		if out := spec(ref); out.Code != 100 || !strings.Contains(out.Stderr, "reason: bad_spec") {
			t.Errorf("the secret of reports in a box, as %s: %+v", ref, out)
		}
	}
	for _, args := range [][]string{{"report"}, {"report", "--json"}, {"report", "--signed"}, {"report", "--public-key"}} {
		out := rig.Run(t, p.botbox(nil, args...))
		if out.Code != 0 || out.Stdout == "" {
			t.Errorf("%v: %+v", args, out)
		}
		for what, text := range map[string]string{"the Admin's secret": adminSecret, "a secret of a box": "sk-ant-report-canary", "the private key": private} {
			if strings.Contains(out.Stdout+out.Stderr, text) {
				t.Errorf("%v shows %s", args, what)
			}
		}
	}
}

// A report of tomorrow is verified with the key of today.
func TestTheReportsKeyIsKept(t *testing.T) {
	p := newPlace(t)
	public := func() string {
		worker := p.serve()
		key := rig.Run(t, p.botbox(nil, "report", "--public-key")).Stdout
		worker.Process.Signal(syscall.SIGTERM)
		worker.Wait()
		return key
	}
	first := public()
	if second := public(); len(first) != 44 || second != first {
		t.Errorf("%q, then %q", first, second)
	}
	refused := func(what, code string, env ...string) {
		t.Helper()
		if out := rig.Run(t, p.botbox(env, "serve")); out.Code != 100 || !strings.Contains(out.Stderr, "reason: "+code) {
			t.Errorf("%s: %+v", what, out)
		}
	}
	key := filepath.Join(p.state, "report.key")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	refused("a key that others can read", "report-key")
	if err := os.Truncate(key, 40); err != nil {
		t.Fatal(err)
	}
	os.Chmod(key, 0o600)
	refused("half a key", "report-key")
	os.Remove(key)
	secrets := rig.Dir(t)
	rig.Write(t, filepath.Join(secrets, "OMB_CLOUD_BOOTSTRAP_SECRET"), "none of the Admin's")
	os.Chmod(secrets, 0o700)
	rig.Give(t, filepath.Join(secrets, "OMB_CLOUD_BOOTSTRAP_SECRET"))
	rig.Give(t, secrets)
	refused("a secret of another kind", "bad-setting", "OMB_SECRETS_DIR="+secrets)
}
