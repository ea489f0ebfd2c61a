package report

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openmausbot/botbox/shared/layers"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

const (
	formVersion = "v1"
	// Path is where the worker serves the signed report.
	Path = "/v1/report"
	// SecretName is the secret of the Admin's signed requests, as the boot
	// contract of a Cloud home names it.
	SecretName = "OMB_CLOUD_BOOTSTRAP_SECRET"
)

// The signatures that a body can name.
const (
	byEd25519 = "ed25519"
	byHMAC    = "hmac"
)

// b64 refuses stray bits at the end: two spellings of one signature would let
// a byte be changed that nobody notices.
var b64 = base64.RawURLEncoding.Strict()

// Compiled when they are first used: this package is linked into every start
// of a box, and three patterns cost it a quarter of a millisecond.
var (
	noncePattern  = pattern(`^[A-Za-z0-9_-]{16,128}$`)
	secretPattern = pattern(`^[A-Za-z0-9_-]{43}$`)
	timePattern   = pattern(`^[0-9]{1,12}$`)
)

func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// Signed is a report with its signatures. See the package's documentation.
type Signed struct {
	V         string `json:"v"`
	Timestamp string `json:"timestamp"`
	Nonce     string `json:"nonce"`
	Path      string `json:"path"`
	Body      string `json:"body"`
	HMAC      string `json:"hmac"`
	Ed25519   string `json:"ed25519"`
	Key       string `json:"key"`
}

// body is what is signed: the report, and what there is to know of its making.
type body struct {
	Report
	Time   time.Time    `json:"time"`
	Signed []string     `json:"signed"`
	Layers []layers.Row `json:"layers"` // what each layer stops, and what not
}

// Signer signs this machine's reports.
type Signer struct {
	Key    ed25519.PrivateKey
	Secret secret.Text // of the Admin's; may be empty
}

// CheckNonce refuses what cannot be echoed. Empty is fine: then we make one.
func CheckNonce(nonce string) error {
	if nonce != "" && !noncePattern().MatchString(nonce) {
		return reason.New(reason.Usage, "the nonce is not 16 to 128 characters of base64url")
	}
	return nil
}

// CheckSecret refuses a secret that is none of the Admin's: 256 bits in
// base64url. Empty is fine.
func CheckSecret(s secret.Text) error {
	if !s.Empty() && !secretPattern().MatchString(s.Reveal()) {
		return reason.New(reason.BadSetting, "%s is not 43 characters of base64url", SecretName)
	}
	return nil
}

// Sign makes the signed form of a report.
func (s Signer) Sign(r Report, nonce string, now time.Time) (Signed, error) {
	content := body{Report: r, Time: now.UTC().Truncate(time.Second), Signed: []string{byEd25519}, Layers: layers.All()}
	if !s.Secret.Empty() {
		content.Signed = append(content.Signed, byHMAC)
	}
	text, err := json.Marshal(content)
	if err != nil {
		return Signed{}, reason.New(reason.Internal, "encode the report: %w", err)
	}
	if nonce == "" {
		var b [16]byte
		rand.Read(b[:])
		nonce = b64.EncodeToString(b[:])
	}
	if err := CheckNonce(nonce); err != nil {
		return Signed{}, err
	}
	return s.seal(string(text), nonce, now.Unix()), nil
}

// seal signs a body.
func (s Signer) seal(text, nonce string, seconds int64) Signed {
	out := Signed{
		V: formVersion, Timestamp: strconv.FormatInt(seconds, 10), Nonce: nonce, Path: Path, Body: text,
		Key: KeyText(s.Key.Public().(ed25519.PublicKey)),
	}
	out.Ed25519 = b64.EncodeToString(ed25519.Sign(s.Key, out.canonical()))
	if !s.Secret.Empty() {
		out.HMAC = b64.EncodeToString(mac(s.Secret, out.canonical()))
	}
	return out
}

// canonical is the text that is signed.
func (s Signed) canonical() []byte {
	sum := sha256.Sum256([]byte(s.Body))
	return []byte(strings.Join([]string{s.V, s.Timestamp, s.Nonce, "POST", s.Path, b64.EncodeToString(sum[:])}, "\n"))
}

func mac(key secret.Text, text []byte) []byte {
	h := hmac.New(sha256.New, []byte(key.Reveal()))
	h.Write(text)
	return h.Sum(nil)
}

// Encode is the one spelling of a signed report, with a newline at its end.
func (s Signed) Encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(s)
	return b.Bytes(), err
}

// KeyText is how a public key is written.
func KeyText(key ed25519.PublicKey) string { return b64.EncodeToString(key) }

// ParseKey reads a public key as KeyText writes it.
func ParseKey(text string) (ed25519.PublicKey, error) {
	key, err := b64.DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, reason.New(reason.Usage, "the public key is not 43 characters of base64url")
	}
	return key, nil
}
