package report

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

var update = flag.Bool("update", false, "write the test vectors anew")

// The keys of the vectors are published: nothing else may use them.
const vectorSecret = "dGVzdC12ZWN0b3Itb25seS1uby1yZWFsLXNlY3JldCE"

func vectorKey() ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	for i := range seed {
		seed[i] = byte(i)
	}
	return ed25519.NewKeyFromSeed(seed)
}

var vectorTime = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)

// vectorBody is fixed, so that a report with another field makes no other
// vectors.
const vectorBody = `{"box":"bwrap","reason":null,"checks":"1/1","failed":[],"results":[{"id":"D1","layer":"mounts","verdict":"pass","ms":3,"why":"hidden"}],` +
	`"age_s":60,"warnings":[%s],"time":"2026-11-30T00:00:00Z","signed":[%s]}`

// vectors are the published reports, by the name of their file.
func vectors(t testing.TB) map[string][]byte {
	t.Helper()
	odd := "\"a \\\"quoted\\\" <word> & a line\u2028separator, ü, 漢字, \U0001F42D, \\\\ and a tab\\t\""
	both, alone := Signer{vectorKey(), secret.New(vectorSecret)}, Signer{Key: vectorKey()}
	made := map[string][]byte{}
	for name, c := range map[string]struct {
		by                      Signer
		warnings, signed, nonce string
	}{
		"both.json":    {both, "", `"ed25519","hmac"`, "AAAAAAAAAAAAAAAA"},
		"odd.json":     {both, odd, `"ed25519","hmac"`, strings.Repeat("-_9z", 32)},
		"ed25519.json": {alone, "", `"ed25519"`, "AAAAAAAAAAAAAAAA"},
	} {
		s := c.by.seal(fmt.Sprintf(vectorBody, c.warnings, c.signed), c.nonce, vectorTime.Unix())
		var err error
		if made[name], err = s.Encode(); err != nil {
			t.Fatal(err)
		}
	}
	made["key.pub"] = []byte(KeyText(vectorKey().Public().(ed25519.PublicKey)) + "\n")
	made["secret"] = []byte(vectorSecret + "\n")
	return made
}

func known() Known {
	return Known{Key: vectorKey().Public().(ed25519.PublicKey), Secret: secret.New(vectorSecret)}
}

// Whoever wrote a verifier from the published vectors must go on being right.
func TestTheVectorsAreThePublishedOnes(t *testing.T) {
	for name, want := range vectors(t) {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
}

// python3 and openssl come to the same answer, in both directions.
func TestAnotherImplementationAgrees(t *testing.T) {
	for _, program := range []string{"python3", "openssl"} {
		if _, err := exec.LookPath(program); err != nil {
			rig.Missing(t, "%v", err)
		}
	}
	ask := func(file, key, secret string) (string, error) {
		out, err := exec.Command("sh", "testdata/verify.sh", file, key, secret).CombinedOutput()
		return string(out), err
	}
	key := KeyText(known().Key)
	for _, name := range []string{"both.json", "odd.json"} {
		if out, err := ask(filepath.Join("testdata", name), key, vectorSecret); err != nil {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
	other := KeyText(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey))
	if out, err := ask("testdata/both.json", other, vectorSecret); err == nil {
		t.Errorf("another key: %s", out)
	}
	if out, err := ask("testdata/both.json", key, "x"+vectorSecret[1:]); err == nil {
		t.Errorf("another secret: %s", out)
	}
	forged := filepath.Join(t.TempDir(), "forged")
	b, _ := os.ReadFile("testdata/both.json")
	rig.Write(t, forged, strings.Replace(string(b), "1/1", "2/2", 1))
	if out, err := ask(forged, key, vectorSecret); err == nil {
		t.Errorf("another body: %s", out)
	}
}

func TestVerify(t *testing.T) {
	k := known()
	for name, c := range map[string]struct {
		known    Known
		by, left []string
	}{
		"both.json":    {k, []string{"ed25519", "hmac"}, nil},
		"odd.json":     {Known{Key: k.Key}, []string{"ed25519"}, []string{"hmac"}},
		"ed25519.json": {Known{Key: k.Key, Nonce: "AAAAAAAAAAAAAAAA"}, []string{"ed25519"}, nil},
	} {
		v, err := Verify(vectors(t)[name], c.known)
		if err != nil || !slices.Equal(v.By, c.by) || !slices.Equal(v.Left, c.left) || v.Report.Checks != "1/1" || !v.Time.Equal(vectorTime) {
			t.Errorf("%s: %v %+v", name, err, v)
		}
	}
	if v, err := Verify(vectors(t)["both.json"], Known{Secret: k.Secret}); err != nil || !slices.Equal(v.By, []string{"hmac"}) {
		t.Errorf("the Admin's way: %v %+v", err, v)
	}
	if _, err := Verify(vectors(t)["both.json"], Known{}); reason.Of(err).Code != reason.Usage {
		t.Errorf("without a key: %v", err)
	}
}

// Every other byte makes another report, whatever bit it differs in. What
// only the secret's owner can check, the others do not vouch for.
func TestEveryChangedByteIsSeen(t *testing.T) {
	b := bytes.TrimSuffix(vectors(t)["both.json"], []byte("\n"))
	if _, err := Verify(b, known()); err != nil {
		t.Fatal(err)
	}
	start := bytes.Index(b, []byte(`"hmac":"`)) + len(`"hmac":"`)
	end := start + bytes.IndexByte(b[start:], '"')
	for i := range b {
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			if _, err := Verify(bad, known()); reason.Of(err).Code != reason.ReportForged {
				t.Fatalf("byte %d, bit %d: %v\n%s", i, bit, err, bad)
			}
			if i >= start && i < end {
				continue
			}
			if _, err := Verify(bad, Known{Key: known().Key}); err == nil {
				t.Fatalf("byte %d, bit %d, without the secret\n%s", i, bit, bad)
			}
		}
	}
	for n := range b {
		if _, err := Verify(b[:n], known()); err == nil {
			t.Fatalf("cut after %d bytes", n)
		}
	}
}

func TestForgedReports(t *testing.T) {
	good := string(vectors(t)["both.json"])
	other := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	own, err := Signer{other, secret.New(vectorSecret)}.Sign(Report{Box: "bwrap"}, "", vectorTime)
	if err != nil {
		t.Fatal(err)
	}
	selfNamed, _ := own.Encode()
	elsewhere := Signed{V: "v1", Timestamp: "1", Nonce: "AAAAAAAAAAAAAAAA", Path: "/api/other", Body: "{}", Key: KeyText(known().Key)}
	elsewhere.Ed25519 = b64.EncodeToString(ed25519.Sign(vectorKey(), elsewhere.canonical()))
	request, _ := elsewhere.Encode()
	elsewhere.Path, elsewhere.Body = Path, `{"signed":[],"time":"1970-01-01T00:00:01Z"}`
	elsewhere.Ed25519 = b64.EncodeToString(ed25519.Sign(vectorKey(), elsewhere.canonical()))
	unnamed, _ := elsewhere.Encode()
	from, to := strings.Index(good, `"hmac":"`)+8, strings.Index(good, `","ed25519"`)
	for name, c := range map[string]struct {
		file string
		says string
	}{
		"another machine's key, named by itself":  {string(selfNamed), "not by the key"},
		"the HMAC taken away":                     {good[:from] + good[to:], "taken away"},
		"another use of the same form":            {string(request), "another use"},
		"a signature that the body does not name": {string(unnamed), "does not name"},
		"spaces":           {strings.Replace(good, `,"nonce"`, `, "nonce"`, 1), "spelled"},
		"a field twice":    {strings.Replace(good, `{"v"`, `{"v":"v1","v"`, 1), "spelled"},
		"another field":    {strings.Replace(good, `{"v"`, `{"x":1,"v"`, 1), "spelled"},
		"more behind it":   {good + good, "not a signed report"},
		"nothing":          {"", "not a signed report"},
		"no JSON":          {"box bwrap\n", "not a signed report"},
		"the bare report":  {`{"box":"bwrap"}`, "spelled"},
		"null":             {"null", "spelled"},
		"a two-line nonce": {strings.Replace(good, "AAAAAAAAAAAAAAAA", `AAAA\nAAAAAAAAAAAA`, 1), "malformed"},
	} {
		_, err := Verify([]byte(c.file), Known{Key: known().Key})
		if reason.Of(err).Code != reason.ReportForged || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Verify([]byte(good), Known{Key: known().Key, Nonce: "BBBBBBBBBBBBBBBB"}); err == nil {
		t.Error("another nonce holds")
	}
}

func TestNonceAndSecret(t *testing.T) {
	for nonce, fine := range map[string]bool{"": true, strings.Repeat("a", 16): true, strings.Repeat("_", 128): true,
		strings.Repeat("a", 15): false, strings.Repeat("a", 129): false, "aaaaaaaaaaaaaaa\n": false, "aaaaaaaaaaaaaaa=": false} {
		if err := CheckNonce(nonce); (err == nil) != fine {
			t.Errorf("%q: %v", nonce, err)
		}
		if _, err := (Signer{Key: vectorKey()}).Sign(Report{}, nonce, vectorTime); (err == nil) != fine {
			t.Errorf("sign with %q: %v", nonce, err)
		}
	}
	for text, fine := range map[string]bool{"": true, vectorSecret: true, vectorSecret + "\n": false, vectorSecret[1:]: false, "a secret that is none of the Admin's at all": false} {
		if err := CheckSecret(secret.New(text)); (err == nil) != fine {
			t.Errorf("%q: %v", text, err)
		}
	}
	one, _ := Signer{Key: vectorKey()}.Sign(Report{}, "", vectorTime)
	two, _ := Signer{Key: vectorKey()}.Sign(Report{}, "", vectorTime)
	if one.Nonce == two.Nonce || CheckNonce(one.Nonce) != nil || one.Nonce == "" {
		t.Errorf("nonces of ours: %q, %q", one.Nonce, two.Nonce)
	}
}

func TestTheKeyIsMadeOnceAndKept(t *testing.T) {
	dir := t.TempDir()
	keys := make(chan string, 8)
	for range cap(keys) {
		go func() {
			key, err := OpenKey(dir)
			keys <- fmt.Sprint(err, KeyText(key.Public().(ed25519.PublicKey)))
		}()
	}
	first := <-keys
	for range cap(keys) - 1 {
		if again := <-keys; again != first || !strings.HasPrefix(again, "<nil>") {
			t.Errorf("%s, then %s", first, again)
		}
	}
	path := filepath.Join(dir, KeyName)
	st, err := os.Stat(path)
	entries, _ := os.ReadDir(dir)
	if err != nil || st.Mode().Perm() != 0o600 || len(entries) != 1 {
		t.Errorf("%v %v, %d files", err, st, len(entries))
	}
	good, _ := os.ReadFile(path)
	for name, spoil := range map[string]func() error{
		"open to others": func() error { return os.Chmod(path, 0o640) },
		"cut":            func() error { return os.WriteFile(path, good[:len(good)/2], 0o600) },
		"empty":          func() error { return os.WriteFile(path, nil, 0o600) },
		"a link": func() error {
			return errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path))
		},
		"a folder": func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		os.RemoveAll(path)
		if err := errors.Join(os.WriteFile(path, good, 0o600), spoil()); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenKey(dir); reason.Of(err).Code != reason.ReportKey {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	for _, name := range []string{"both.json", "odd.json", "ed25519.json"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		v, err := Verify(file, known())
		if err == nil && (len(v.By) != 2 || v.Report.Checks != "1/1") {
			t.Errorf("%+v holds: %s", v, file)
		}
	})
}
