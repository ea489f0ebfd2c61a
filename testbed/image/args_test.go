package image

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	authority := cmp.Or(os.Getenv("NODE_EXTRA_CA_CERTS"), "/etc/ssl/certs/ca-certificates.crt")
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
	run := func(flags []string, command ...string) (out string, code int) {
		words := append(append([]string{"run", "--rm"}, always...), append(flags, built)...)
		said, err := b.podman(append(words, command...)...).Output()
		return string(said), rig.Code(err)
	}
	// What it calls its version is not the package's.
	if out, code := run(working, "grok", "--version"); code != 0 || !regexp.MustCompile(`^\d+\.\d+\.\d+\n$`).MatchString(out) {
		t.Errorf("the engine in a box: %q %d", out, code)
	}
	if out, _ := run(working, "sh", "-c", "tree --version | cut -c1-6; command -v npm"); out != "tree v\n" {
		t.Errorf("what is in a box: %q", out)
	}
	installed := "grep -c '\"version\": \"" + version + "\"' /usr/local/lib/node_modules/@vibe-kit/grok-cli/package.json; stat -c %U:%a /usr/local/lib/node_modules"
	if out, _ := run([]string{"--entrypoint", "/bin/sh"}, "-c", installed); out != "1\nroot:755\n" {
		t.Errorf("what was installed: %q", out)
	}
}
