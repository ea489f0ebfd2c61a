package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// read tells whether there is such a secret, or the code of the refusal.
func read(from secretReader, name string) string {
	text, err := from(name)
	if err != nil {
		return string(reason.Of(err).Code)
	}
	if text.Empty() {
		return "empty"
	}
	return "given"
}

func secretsFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"claude": "sk-canary\n", "mcp/notes": "n", "empty": "", "long": strings.Repeat("x", maxSecret+1)} {
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o700)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	os.Symlink("claude", filepath.Join(dir, "link"))
	os.Symlink("mcp", filepath.Join(dir, "linked"))
	unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600)
	return dir
}

func TestSecretsOfAFolder(t *testing.T) {
	dir := secretsFolder(t)
	opened, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(opened.Fd()))
	opened.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for what, s := range map[string]Settings{
		"a folder": {SecretsDir: dir}, "systemd's": {Credentials: dir}, "an open one": {SecretsDir: "fd:" + strconv.Itoa(fd)},
	} {
		from, err := s.openSecrets()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for name, want := range map[string]string{
			"claude": "given", "mcp/notes": "given", "empty": "bad_spec", "long": "bad_spec", "link": "bad_spec", "linked/notes": "bad_spec",
			"fifo": "bad_spec", "none": "bad_spec", "../" + filepath.Base(dir) + "/claude": "bad_spec", "/etc/hostname": "bad_spec", "": "bad_spec", "mcp": "bad_spec",
		} {
			if got := read(from, name); got != want {
				t.Errorf("%s, %q: %s, want %s", what, name, got, want)
			}
		}
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Error("an inherited descriptor would go on into boxes")
	}
	// Others can look into it: not ours to read keys from. systemd's own is.
	os.Chmod(dir, 0o750)
	for what, c := range map[string]struct {
		s    Settings
		want string
	}{"a folder": {Settings{SecretsDir: dir}, "not-yours"}, "systemd's": {Settings{Credentials: dir}, "given"}} {
		from, err := c.s.openSecrets()
		if err != nil {
			t.Fatal(err)
		}
		if got := read(from, "claude"); got != c.want {
			t.Errorf("open to others, %s: %s", what, got)
		}
	}
	if _, err := (&Settings{SecretsDir: "fd:" + strconv.Itoa(fd)}).openSecrets(); err == nil || reason.Of(err).Code != reason.NotYours {
		t.Errorf("open to others, an open one: %v", err)
	}
}

func TestSecretsOfAPipe(t *testing.T) {
	for text, good := range map[string]bool{
		"claude=sk-canary\x00gpt=a=b\n\x00": true, "": true,
		"claude=sk-canary": false, "claude\x00": false, "=x\x00": false, "a=\x00": false, "a=1\x00a=2\x00": false, "\x00": false,
	} {
		var fds [2]int
		if err := unix.Pipe(fds[:]); err != nil {
			t.Fatal(err)
		}
		unix.Write(fds[1], []byte(text))
		unix.Close(fds[1])
		from, err := (&Settings{SecretsDir: "fd:" + strconv.Itoa(fds[0])}).openSecrets()
		if (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil && (reason.Of(err).Code != reason.BadSetting || strings.Contains(err.Error(), "canary")) {
			t.Errorf("%q: %v", text, err)
		}
		if good && text != "" && (read(from, "claude") != "given" || read(from, "gpt") != "given" || read(from, "other") != "bad_spec") {
			t.Errorf("%q is not read as it should be", text)
		}
		if unix.Close(fds[0]) == nil {
			t.Errorf("%q: the descriptor stays open", text)
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	defer unix.Close(pair[0])
	for _, dir := range []string{"fd:" + strconv.Itoa(pair[0]), "fd:", "fd:x", "fd:-1", "fd:0", "fd:2", "fd:9999"} {
		if _, err := (&Settings{SecretsDir: dir}).openSecrets(); err == nil || reason.Of(err).Code != reason.BadSetting {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func FuzzSecretSet(f *testing.F) {
	f.Add([]byte("a=1\x00b=2\x00"))
	f.Add([]byte("a=1\x00a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, ok := secretSet(data)
		if ok && len(set) != bytes.Count(data, []byte{0}) {
			t.Fatalf("%q gives %d secrets", data, len(set))
		}
		for name, text := range set {
			if name == "" || text.Empty() || strings.Contains(name, "=") {
				t.Fatalf("%q has a secret without a name or a value", data)
			}
		}
	})
}

// The Admin's secret is a file among the secrets, or what the container was
// started with; a spec gets neither.
func TestTheAdminsSecret(t *testing.T) {
	const good, other = "c2lnbnMtcmVwb3J0cy1pbi1hLXRlc3Qtb25seS1ub3c", "b3RoZXItcmVwb3J0cy1pbi1hLXRlc3Qtb25seS1ub3c"
	none := func(name string) (secret.Text, error) { return noSecret(name, nil) }
	file := func(string) (secret.Text, error) { return secret.New(good), nil }
	broken := func(name string) (secret.Text, error) { return noSecret(name, os.ErrPermission) }
	for name, c := range map[string]struct {
		read secretReader
		env  []string
		want string
		code reason.Code
	}{
		"none":                 {none, []string{"A=b"}, "", ""},
		"a file":               {file, nil, good, ""},
		"a variable":           {none, []string{"A=b", "OMB_CLOUD_BOOTSTRAP_SECRET=" + other}, other, ""},
		"the file comes first": {file, []string{"OMB_CLOUD_BOOTSTRAP_SECRET=" + other}, good, ""},
		"malformed":            {none, []string{"OMB_CLOUD_BOOTSTRAP_SECRET=short"}, "short", reason.BadSetting},
		"not readable":         {broken, nil, "", reason.BadSetting},
	} {
		got, err := adminSecret(c.read, c.env)
		if got.Reveal() != c.want || (err == nil) != (c.code == "") || (err != nil && reason.Of(err).Code != c.code) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "short") {
			t.Errorf("%s: the error shows the value: %v", name, err)
		}
	}
	for _, name := range []string{"OMB_CLOUD_BOOTSTRAP_SECRET", "./OMB_CLOUD_BOOTSTRAP_SECRET", "a/../OMB_CLOUD_BOOTSTRAP_SECRET"} {
		if text, err := forSpecs(file)(name); err == nil || !text.Empty() {
			t.Errorf("a spec gets %s", name)
		}
	}
	if text, err := forSpecs(file)("other"); err != nil || text.Reveal() != good {
		t.Errorf("control: another secret: %v", err)
	}
}
