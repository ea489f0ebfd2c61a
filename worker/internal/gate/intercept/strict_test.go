package intercept

import (
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Python 3.13 and others want what RFC 5280 §4.2.1.1 wants: a certificate names
// its issuer's key.
func TestStrictClientsTrustIt(t *testing.T) {
	id, err := NewIdentity([]string{"api.example.com"}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root, leaf := filepath.Join(dir, "root.pem"), filepath.Join(dir, "leaf.pem")
	for name, text := range map[string][]byte{root: id.Root, leaf: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: id.leaf.Certificate[0]})} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("openssl", "verify", "-x509_strict", "-CAfile", root, leaf).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
