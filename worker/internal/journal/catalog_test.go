package journal

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the catalogue instead of comparing it")

const catalogFile = "../../../init/systemd/botbox.catalog"

func TestCatalog(t *testing.T) {
	if *update {
		if err := os.WriteFile(catalogFile, []byte(Catalog()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(catalogFile)
	if len(explanations) != len(Events()) || err != nil || string(got) != Catalog() {
		t.Errorf("init/systemd/botbox.catalog is not the table of events (%v); run this test with -update", err)
	}
	seen := map[string]string{}
	for _, e := range Events() {
		if seen[e.ID] != "" || len(e.ID) != 32 || explanations[e.Name] == "" {
			t.Errorf("%s: id %q, explanation %q, the same id as %q", e.Name, e.ID, explanations[e.Name], seen[e.ID])
		}
		seen[e.ID] = e.Name
	}
}

// The journal's own compiler takes the catalogue.
func TestCatalogCompiles(t *testing.T) {
	journalctl, err := exec.LookPath("journalctl")
	if err != nil {
		if os.Getenv("BOTBOX_MUST_RUN") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	root := t.TempDir()
	folder := filepath.Join(root, "usr/lib/systemd/catalog")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "botbox.catalog"), []byte(Catalog()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(journalctl, "--root="+root, "--update-catalog").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(journalctl, "--root="+root, "--list-catalog", BoxRefused.ID).CombinedOutput()
	if err != nil || !strings.Contains(string(out), BoxRefused.ID) || !strings.Contains(string(out), "botbox: A box was refused") {
		t.Errorf("%v: %s", err, out)
	}
}
