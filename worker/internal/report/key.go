package report

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// KeyName is the file of the key in the state folder: PKCS #8 in PEM, which
// openssl reads.
const KeyName = "report.key"

const (
	pemType = "PRIVATE KEY"
	maxKey  = 4 << 10
)

// OpenKey reads the key that signs this machine's reports, or makes it the
// first time. A file that is there and is no such key is an error, never
// replaced: whoever knows the old key would take the new one for a forger's.
func OpenKey(dir string) (ed25519.PrivateKey, error) {
	path := filepath.Join(dir, KeyName)
	key, err := readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := makeKey(dir, path); err != nil {
		return nil, reason.New(reason.System, "make the report's key: %w", err)
	}
	return readKey(path) // another worker's, if that was first
}

// PublicKey gives the public half of a key that is there.
func PublicKey(dir string) (ed25519.PublicKey, error) {
	key, err := readKey(filepath.Join(dir, KeyName))
	if err != nil {
		return nil, err
	}
	return key.Public().(ed25519.PublicKey), nil
}

func readKey(path string) (ed25519.PrivateKey, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, reason.New(reason.ReportKey, "open the report's key: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return nil, reason.New(reason.ReportKey, "%s is not a file of ours that is closed to others (0600)", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKey))
	if err != nil {
		return nil, reason.New(reason.ReportKey, "read the report's key: %w", err)
	}
	defer clear(text)
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemType {
		return nil, reason.New(reason.ReportKey, "%s holds no private key", path)
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := any.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, reason.New(reason.ReportKey, "%s holds no Ed25519 key", path)
	}
	return key, nil
}

// makeKey writes a key beside its place and links it there, whole or not at
// all.
func makeKey(dir, path string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, KeyName+".*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = errors.Join(pem.Encode(f, &pem.Block{Type: pemType, Bytes: der}), f.Sync(), f.Close())
	if err == nil {
		err = os.Link(f.Name(), path)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
