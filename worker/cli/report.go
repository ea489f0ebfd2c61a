package cli

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/report"
	"github.com/openmausbot/botbox/worker/internal/secret"
)

// reportFlags say which form of the report is wanted.
type reportFlags struct {
	json, signed, publicKey bool
	verify, key, nonce      string
}

func reportVerb(c *call, args []string) (int, error) {
	var f reportFlags
	rest, err := c.parse("report", args, func(set *flag.FlagSet) {
		set.BoolVar(&f.json, "json", false, "print JSON")
		set.BoolVar(&f.signed, "signed", false, "print the signed report, to be kept or sent")
		set.BoolVar(&f.publicKey, "public-key", false, "print the key that verifies this machine's reports")
		set.StringVar(&f.verify, "verify", "", "verify the signed report in `FILE`, - is stdin")
		set.StringVar(&f.key, "key", "", "with --verify: the machine's public `KEY`; this machine's own if left out")
		set.StringVar(&f.nonce, "nonce", "", "with --signed: have `N` echoed; with --verify: it must have been")
	})
	if err == nil {
		err = noWords(rest)
	}
	if err == nil {
		err = f.check()
	}
	switch {
	case err != nil:
		return 0, err
	case f.verify != "":
		return 0, c.verifyReport(f)
	case f.signed, f.publicKey:
		return 0, c.signedReport(f)
	}
	var r report.Report
	if err := c.ask("GET", "/api/cloud/box", nil, &r); err != nil {
		return 0, err
	}
	if f.json {
		return 0, json.NewEncoder(c.stdout).Encode(r)
	}
	printReport(c.stdout, r)
	return 0, nil
}

// check refuses flags that do not belong together.
func (f reportFlags) check() error {
	forms := 0
	for _, asked := range []bool{f.signed, f.publicKey, f.verify != ""} {
		if asked {
			forms++
		}
	}
	switch {
	case forms > 1:
		return reason.New(reason.Usage, "--signed, --public-key and --verify are three different things")
	case f.key != "" && f.verify == "":
		return reason.New(reason.Usage, "--key is for --verify")
	case f.nonce != "" && f.verify == "" && !f.signed:
		return reason.New(reason.Usage, "--nonce is for --signed and --verify")
	case f.json && (f.signed || f.publicKey):
		return reason.New(reason.Usage, "--json is for the plain report and --verify; the signed one has one form only")
	}
	return report.CheckNonce(f.nonce)
}

func (c *call) signedReport(f reportFlags) error {
	path := report.Path
	if f.nonce != "" {
		path += "?nonce=" + url.QueryEscape(f.nonce)
	}
	var s report.Signed
	if err := c.ask("GET", path, nil, &s); err != nil {
		return err
	}
	if f.publicKey {
		fmt.Fprintln(c.stdout, s.Key)
		return nil
	}
	text, err := s.Encode()
	if err == nil {
		_, err = c.stdout.Write(text)
	}
	return err
}

// maxReport is longer than any report that a worker makes.
const maxReport = 16 << 20

func (c *call) verifyReport(f reportFlags) error {
	from := io.Reader(os.Stdin)
	if f.verify != "-" {
		file, err := os.Open(f.verify)
		if err != nil {
			return reason.New(reason.Usage, "open the report: %w", err)
		}
		defer file.Close()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, maxReport))
	if err != nil {
		return reason.New(reason.System, "read the report: %w", err)
	}
	known, err := c.known(f)
	if err != nil {
		return err
	}
	v, err := report.Verify(text, known)
	if err != nil {
		return err
	}
	if f.json {
		return json.NewEncoder(c.stdout).Encode(map[string]any{
			"verified_by": v.By, "not_checked": append([]string{}, v.Left...), "time": v.Time, "report": v.Report,
		})
	}
	fmt.Fprintf(c.stdout, "the report holds: it is what the machine signed %s (by %s)\n", ago(time.Since(v.Time)), strings.Join(v.By, " and "))
	if len(v.Left) > 0 {
		fmt.Fprintf(c.stdout, "not checked, for the key is not here: %s\n", strings.Join(v.Left, ", "))
	}
	if f.nonce == "" {
		fmt.Fprintln(c.stdout, "no nonce was asked for: somebody may have kept it and shown it again")
	}
	printReport(c.stdout, v.Report)
	return nil
}

// known gathers the keys that a report can be verified with.
func (c *call) known(f reportFlags) (report.Known, error) {
	known := report.Known{Nonce: f.nonce}
	var err error
	if f.key != "" {
		if known.Key, err = report.ParseKey(f.key); err != nil {
			return known, err
		}
	}
	if known.Key != nil && c.settings.SecretsDir == "" && c.settings.Credentials == "" {
		return known, nil
	}
	a, err := c.leaveRoot() // what is kept here is the worker's
	if err != nil {
		return known, err
	}
	if c.secrets, err = c.settings.openSecrets(); err != nil {
		return known, err
	}
	if known.Secret, err = adminSecret(c.secrets, nil); err != nil || known.Key != nil || !known.Secret.Empty() {
		return known, err
	}
	if known.Key, err = report.PublicKey(c.settings.stateDir(a.home)); errors.Is(err, fs.ErrNotExist) {
		err = nil // Verify says what is missing
	}
	return known, err
}

// adminSecret is the secret of the Admin's signed requests: a file among the
// secrets, or a variable that the container was started with. It may be
// missing.
func adminSecret(secrets secretReader, env []string) (secret.Text, error) {
	text, err := secrets(report.SecretName)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return text, reason.New(reason.BadSetting, "the secret %s cannot be read: %w", report.SecretName, err)
		}
		text = secret.Text{}
		for _, entry := range env {
			if value, ok := strings.CutPrefix(entry, report.SecretName+"="); ok {
				text = secret.New(value)
			}
		}
	}
	return text, report.CheckSecret(text)
}

// forSpecs keeps our own secret from specs: it signs for the whole machine.
func forSpecs(secrets secretReader) secretReader {
	return func(name string) (secret.Text, error) {
		if filepath.Clean(name) == report.SecretName {
			return secret.Text{}, reason.New(reason.BadSpec, "the spec is not usable: the secret %q is for reports, and enters no box", report.SecretName)
		}
		return secrets(name)
	}
}

// openKeys takes what signs the reports.
func (s *state) openKeys() (err error) {
	settings := s.w.call.settings
	if s.signer.Key, err = report.OpenKey(settings.stateDir(s.w.account.home)); err != nil {
		return err
	}
	s.signer.Secret, err = adminSecret(s.w.call.secrets, s.w.handover.Env)
	return err
}

// signed is the body of GET /v1/report.
func (s *state) signed(nonce string) (report.Signed, error) {
	return s.signer.Sign(s.report(), nonce, time.Now())
}

func ago(d time.Duration) string {
	if d < 0 {
		return "in the future, by this clock"
	}
	return d.Truncate(time.Second).String() + " ago"
}

func printReport(w io.Writer, r report.Report) {
	why := ""
	if r.Reason != nil {
		why = " (" + *r.Reason + ")"
	}
	fmt.Fprintf(w, "box      %s%s\n", r.Box, why)
	if r.AgeS == nil {
		fmt.Fprintln(w, "checks   not run yet")
	} else {
		fmt.Fprintf(w, "checks   %s, %d s ago\n", r.Checks, *r.AgeS)
	}
	if r.Stale != "" {
		fmt.Fprintf(w, "         stale: %s\n", r.Stale)
	}
	for _, res := range r.Results {
		if res.Verdict != "pass" {
			fmt.Fprintf(w, "         %s %s: %s\n", res.ID, res.Verdict, res.Why)
		}
	}
	fmt.Fprintf(w, "boxes    %d open, %d since the database was made, %d refused\n", r.Open, r.Boxed, r.Refused)
	if b := r.Broker; b.Requests > 0 {
		fmt.Fprintf(w, "broker   %d requests, %d refused, %d over a limit, %d answers with a key overwritten, %d stolen tokens\n",
			b.Requests, b.Refused, b.Limited, b.Redacted, b.Stolen)
	}
	for _, name := range r.Broker.Unbrokered {
		fmt.Fprintf(w, "raw key  %s\n", name)
	}
	for _, host := range r.Broker.Intercepted {
		fmt.Fprintf(w, "opened   the TLS to %s, for a box that declares it\n", host)
	}
	for _, s := range r.Steps {
		fmt.Fprintf(w, "step     %-10s %s: %s\n", s.State, s.Name, s.Evidence)
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(w, "warning  %s\n", text)
	}
	fmt.Fprintf(w, "build    %s, bubblewrap %s, Linux %s\n", r.Build, r.Bwrap, r.Kernel)
}
