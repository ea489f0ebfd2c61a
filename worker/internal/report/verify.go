package report

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// Known is what a verifier knows of the machine before it reads: one of the
// two keys at least.
type Known struct {
	Key    ed25519.PublicKey
	Secret secret.Text
	Nonce  string // that the report must echo; empty = any
}

// Verified is what a report that holds has told.
type Verified struct {
	Report Report
	Time   time.Time
	By     []string // the signatures that were checked, and hold
	Left   []string // those that nobody here can check
}

func forged(format string, args ...any) error {
	return reason.New(reason.ReportForged, "the report does not hold: "+format, args...)
}

// Verify checks a signed report against what is known. Every signature that
// can be checked has to hold, and one has to be among those that the body
// names.
func Verify(file []byte, known Known) (Verified, error) {
	var v Verified
	if known.Key == nil && known.Secret.Empty() {
		return v, reason.New(reason.Usage, "there is no key to verify a report with").
			WithHint("give the machine's public key with --key, which botbox report --public-key prints there")
	}
	s, err := parse(file)
	if err != nil {
		return v, err
	}
	if known.Key != nil {
		sig, err := b64.DecodeString(s.Ed25519)
		if err != nil || !ed25519.Verify(known.Key, s.canonical(), sig) {
			return v, forged("the Ed25519 signature is not by the key that is known")
		}
		if s.Key != KeyText(known.Key) {
			return v, forged("it names another key than the one that signed it")
		}
		v.By = append(v.By, byEd25519)
	}
	if !known.Secret.Empty() {
		sum, err := b64.DecodeString(s.HMAC)
		if err != nil || !hmac.Equal(sum, mac(known.Secret, s.canonical())) {
			return v, forged("the HMAC is not by the secret that is known")
		}
		v.By = append(v.By, byHMAC)
	}
	// Only now is the body more than a stranger's words.
	var content body
	if err := json.Unmarshal([]byte(s.Body), &content); err != nil {
		return v, forged("its body is no report: %v", err)
	}
	v.Report, v.Time = content.Report, content.Time
	return v, v.agree(s, content, known)
}

// agree holds the body to what stands around it.
func (v *Verified) agree(s Signed, content body, known Known) error {
	for _, by := range v.By {
		if !slices.Contains(content.Signed, by) {
			return forged("its body does not name the signature %s", by)
		}
	}
	for _, by := range content.Signed {
		if (by == byHMAC && s.HMAC == "") || (by == byEd25519 && s.Ed25519 == "") {
			return forged("the signature %s was taken away", by)
		}
		if !slices.Contains(v.By, by) {
			v.Left = append(v.Left, by)
		}
	}
	if known.Nonce != "" && s.Nonce != known.Nonce {
		return forged("its nonce is not the one that was asked with")
	}
	if strconv.FormatInt(content.Time.Unix(), 10) != s.Timestamp {
		return forged("its two times differ")
	}
	return nil
}

// parse reads the one spelling that there is: a file that says the same in
// other bytes is not what the machine wrote.
func parse(file []byte) (Signed, error) {
	var s Signed
	if err := json.Unmarshal(file, &s); err != nil {
		return s, forged("the file is not a signed report: %v", err)
	}
	again, err := s.Encode()
	if err != nil || !bytes.Equal(bytes.TrimSuffix(again, []byte("\n")), bytes.TrimSuffix(file, []byte("\n"))) {
		return s, forged("the file is not spelled as the worker spells it")
	}
	switch {
	case s.V != formVersion:
		return s, forged("its form %.8q is none that we know", s.V)
	case s.Path != Path:
		return s, forged("it is signed for another use")
	case !noncePattern().MatchString(s.Nonce), !timePattern().MatchString(s.Timestamp):
		return s, forged("its nonce or its timestamp is malformed")
	}
	return s, nil
}
