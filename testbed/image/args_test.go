package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// TestBuildArguments: an engine by its name at npm and a package by its name at
// Debian's, over a base that knows where Debian's packages are. They are root's,
// the box has them, and the programs that brought them stay out of the image.
func TestBuildArguments(t *testing.T) {
	b := ready(t)
	script := exec.Command("/bin/sh", "make.sh", "trixie")
	script.Stderr = os.Stderr
	tar, err := script.Output()
	if err != nil {
		t.Fatalf("make.sh: %v", err)
	}
	b.must(t, b.podman("import", "--quiet", strings.TrimSpace(string(tar)), "localhost/networked"))
	text, err := os.ReadFile(filepath.Join(rig.Root(), "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), "\nFROM debian:trixie-slim") != 2 {
		t.Fatal("the Dockerfile has another base")
	}
	dir := t.TempDir()
	// npm as it is set up here: the authority that it trusts. The rest is its own.
	authority := "/etc/ssl/certs/ca-certificates.crt"
	for name, content := range map[string]string{
		"Dockerfile": strings.ReplaceAll(string(text), "\nFROM debian:trixie-slim", "\nFROM localhost/networked"),
		"npmrc":      "cafile=/authority.crt\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pins, err := os.ReadFile(filepath.Join(rig.Root(), "testbed/engines/package.json"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(pins), `"@vibe-kit/grok-cli": "`)
	version, _, _ := strings.Cut(rest, `"`)
	const built = "localhost/botbox:engines"
	argv := append(b.builder()[1:], "-v", authority+":/authority.crt:ro", "-v", dir+"/npmrc:/root/.npmrc:ro", "--layers=false",
		"--build-arg", "ENGINES=@vibe-kit/grok-cli@"+version, "--build-arg", "PACKAGES=tree", "-t", built, "-f", dir+"/Dockerfile", rig.Root())
	b.must(t, b.command(argv[0], argv[1:]...))
	run := func(command ...string) rig.Output {
		got := b.podman(append(append(append([]string{"run", "--rm"}, always...), working...), append([]string{built}, command...)...)...)
		out, err := got.Output()
		return rig.Output{Stdout: string(out), Code: rig.Code(err)}
	}
	if got := run("grok", "--version"); got.Code != 0 || strings.TrimSpace(got.Stdout) != version {
		t.Errorf("the engine in a box: %+v, want %s", got, version)
	}
	if got := run("sh", "-c", "tree --version | cut -c1-6; command -v npm; ls -ld $(readlink -f $(command -v grok)) | cut -d' ' -f3"); got.Stdout != "tree v\nroot\n" {
		t.Errorf("what is in a box: %+v", got)
	}
}
