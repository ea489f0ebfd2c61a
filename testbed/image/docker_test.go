package image

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// dockerWorking are the flags that the README names for Docker.
var dockerWorking = []string{"--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=init/docker-seccomp.json",
	"--security-opt", "systempaths=unconfined", "--security-opt", "apparmor=unconfined"}

// dockers writes Docker's own filter of system calls, and gives it beside ours,
// which is that and one call more (testbed/schema holds it to that).
func dockers(t *testing.T) (default_, ours string) {
	t.Helper()
	ours = filepath.Join(rig.Root(), "init/docker-seccomp.json")
	text, err := os.ReadFile(ours)
	if err != nil {
		t.Fatal(err)
	}
	const more = ",\n\t\t\t\t\"pivot_root\""
	if strings.Count(string(text), more) != 1 {
		t.Fatalf("%s has not one pivot_root at the end of a list", ours)
	}
	default_ = filepath.Join(t.TempDir(), "default.json")
	if err := os.WriteFile(default_, []byte(strings.Replace(string(text), more, "", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	return default_, ours
}

// TestDockersFilter: podman's default filter lets bubblewrap work, Docker's does
// not. With it there is no box, and what is said has the flag that brings one.
func TestDockersFilter(t *testing.T) {
	b := ready(t)
	default_, ours := dockers(t)
	const (
		fix = "hint: start the container with --security-opt seccomp=unconfined, or with --cap-add SYS_ADMIN and, in Docker, --security-opt seccomp=init/docker-seccomp.json (Kubernetes: seccompProfile Unconfined); " +
			"the service with RestrictNamespaces=no\nreason: userns-seccomp\n"
	)
	for _, c := range []struct{ what, flags, refused string }{
		{"nothing given", "--security-opt systempaths=unconfined --security-opt seccomp=" + default_, fix},
		{"SYS_ADMIN and Docker's own", "--cap-add SYS_ADMIN --security-opt systempaths=unconfined --security-opt seccomp=" + default_, fix},
		{"SYS_ADMIN and ours", "--cap-add SYS_ADMIN --security-opt systempaths=unconfined --security-opt seccomp=" + ours, ""},
		{"SYS_ADMIN and none", "--cap-add SYS_ADMIN --security-opt systempaths=unconfined --security-opt seccomp=unconfined", ""},
		{"ours without SYS_ADMIN", "--security-opt systempaths=unconfined --security-opt seccomp=" + ours, fix},
		{"none without SYS_ADMIN", "--security-opt systempaths=unconfined --security-opt seccomp=unconfined", ""},
	} {
		got := b.run(t, "", strings.Fields(c.flags), "sh", "-c", "id -un; exit 7")
		if want := cmp.Or(c.refused, "7"); c.refused == "" && (got.Code != 7 || got.Stdout != "maus\n") ||
			c.refused != "" && (got.Code != 125 || got.Stdout != "" || !strings.Contains(got.Stderr, c.refused)) {
			t.Errorf("%s: not %q but %d %q\n%s", c.what, want, got.Code, got.Stdout, got.Stderr)
		}
	}
	// Which call it is, for whoever asks.
	flags := []string{"--cap-add", "SYS_ADMIN", "--security-opt", "systempaths=unconfined", "--security-opt", "seccomp=" + default_, "--entrypoint", "/bin/setpriv"}
	if got := b.run(t, "", flags, "--reuid", "maus", "--regid", "maus", "--clear-groups", "env", "HOME=/tmp", "botbox", "doctor"); got.Code == 0 ||
		!strings.Contains(got.Stdout, "a filter around this process refuses pivot_root") || !strings.Contains(got.Stdout, "seccomp=unconfined") {
		t.Errorf("doctor: %+v", got)
	}
}
