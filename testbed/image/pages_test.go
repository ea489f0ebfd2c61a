package image

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// page runs a page's blocks in the checkout, with a program of the page's that
// is not here replaced by a script.
func (b *bed) page(t *testing.T, page string, blocks []rig.Block, program, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := b.command("sh", "-c", rig.Script(blocks))
	cmd.Dir = rig.Root()
	cmd.Env = append(cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v\n%s", page, err, errs.String())
	}
	rig.Printed(t, page, blocks, out.String())
}

// TestDockerPage: podman in Docker's place, and buildah in its builder's.
func TestDockerPage(t *testing.T) {
	b := ready(t)
	podman := b.podman().Args
	b.page(t, "docs/docker.md", rig.Page(t, "docs/docker.md", "docker"), "docker", `case $1 in
build) shift; exec unshare `+quoted(b.builder())+` "$@" ;;
run) shift; exec `+quoted(append(append(podman, "run"), always...))+` "$@" ;;
*) exec `+quoted(podman)+` "$@" ;;
esac`)
}

// TestFlyPage: the image as Fly starts it, by the settings of init/fly.toml.
func TestFlyPage(t *testing.T) {
	b := ready(t)
	text, err := os.ReadFile("testdata/fly.json")
	if err != nil {
		t.Fatal(err)
	}
	var fly struct {
		KillSignal, KillTimeout string
		Env                     map[string]string
		Mounts                  struct{ Destination string }
	}
	if err := json.Unmarshal(text, &fly); err != nil {
		t.Fatal(err)
	}
	// What Fly's own first process has there: a socket that everybody reaches.
	socket, err := os.MkdirTemp(b.dir, "fly")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(socket, 0o755); err != nil {
		t.Fatal(err)
	}
	api, err := net.Listen("unix", filepath.Join(socket, "api"))
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	if err := os.Chmod(filepath.Join(socket, "api"), 0o777); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--init", "--cap-add", "ALL", "--security-opt", "unmask=ALL", "--security-opt", "seccomp=unconfined",
		"--volume", socket + ":/.fly", "--volume", "botbox_state:" + fly.Mounts.Destination}
	for name, value := range fly.Env {
		flags = append(flags, "--env", name+"="+value)
	}
	id := b.start(t, flags)
	b.said(t, id, "event=worker-started", 1)
	if got := b.exec(id, "sh", "-c", "tr '\\0' ' ' </proc/1/cmdline"); strings.Contains(strings.Fields(got.Stdout)[0], "botbox") {
		t.Errorf("the supervisor is the first process: %+v", got)
	}
	b.page(t, "docs/fly.md", rig.Page(t, "docs/fly.md", "machine"), "fly",
		`[ "$1 $2 $3" = "ssh console --command" ] || exit 1; exec `+quoted(b.podman("exec", id, "sh", "-c").Args)+` "$4"`)
	reach := "setpriv --reuid maus --regid maus --clear-groups ls /.fly/api"
	if got := b.exec(id, "sh", "-c", reach); got.Code == 0 || !strings.Contains(got.Stderr, "Permission denied") {
		t.Errorf("the platform's socket can be reached: %+v", got)
	}
	limit, err := time.ParseDuration(fly.KillTimeout)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	b.must(t, b.podman("kill", "--signal", fly.KillSignal, id))
	if code := b.must(t, b.podman("wait", id)); code != "0" || time.Since(begin) > limit {
		t.Errorf("status %s after %v", code, time.Since(begin))
	}
}
