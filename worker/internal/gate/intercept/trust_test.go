package intercept

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func certificates(t *testing.T, b []byte) (n int) {
	t.Helper()
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			return n
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil || block.Type != "CERTIFICATE" {
			t.Errorf("%s: %v", block.Type, err)
		}
		n++
	}
}

// A box trusts what its machine trusts, and one root more. Nothing else of a
// file gets into it.
func TestBundle(t *testing.T) {
	one, err := NewIdentity([]string{"a.example"}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	two, err := NewIdentity([]string{"b.example"}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	first, second := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("canary")})
	os.WriteFile(second, bytes.Join([][]byte{[]byte("# canary"), secret, two.Root, two.Root}, []byte("\n")), 0o600)
	got, err := bundle([]string{first, second}, one.Root)
	if err != nil || certificates(t, got) != 3 || !bytes.HasSuffix(got, one.Root) || bytes.Contains(got, []byte("canary")) || bytes.Contains(got, []byte("PRIVATE")) {
		t.Errorf("%s %v", got, err)
	}
	os.WriteFile(first, []byte("nothing"), 0o600)
	for name, paths := range map[string][]string{"none": {filepath.Join(dir, "x")}, "no certificate": {first, second}, "a folder": {dir}} {
		if got, err := bundle(paths, one.Root); err == nil || len(got) != 0 {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	if got, err := Bundle("", one.Root); err != nil || certificates(t, got) < 20 {
		t.Errorf("this machine's: %d certificates, %v", certificates(t, got), err)
	}
	if got, err := Bundle(second, one.Root); err != nil || certificates(t, got) != 3 {
		t.Errorf("the operator's own: %v", err)
	}
}

func TestTrustRows(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range trust {
		if row.why == "" || seen[row.name] || row.name != strings.ToUpper(row.name) {
			t.Errorf("%+v", row)
		}
		seen[row.name] = true
	}
	if len(TrustNames()) != len(trust) {
		t.Error(TrustNames())
	}
}
