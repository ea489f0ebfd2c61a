package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
)

// Decode reads and checks one spec. Every error has a code of the table.
func Decode(b []byte) (Spec, error) {
	var s Spec
	if len(b) > MaxBytes {
		return s, bad("it is longer than %d bytes", MaxBytes)
	}
	if err := checkKeys(b); err != nil {
		return s, bad("%v", err)
	}
	if err := strict(b, &s); err != nil {
		return s, bad("%s", describe(err))
	}
	s.fillDefaults()
	return s, s.check()
}

func bad(format string, args ...any) error {
	return reason.New(reason.BadSpec, "the spec is not usable: "+format, args...)
}

// strict decodes exactly one JSON value without unknown fields.
func strict(b []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows after its end")
	}
	return nil
}

// describe keeps values out of an error text: encoding/json quotes them.
func describe(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Sprintf("field %s is not of its kind (%s)", kind.Field, kind.Type)
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("it is not JSON (byte %d)", syntax.Offset)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// fieldName is how all our own fields are spelled. encoding/json matches names
// in any letter case and lets the last of two equal ones win; both would let a
// reader and the decoder see different specs.
//
// These are no regular expressions: compiling those took a third of
// the time in which `botbox run` starts.
const fieldBytes = "abcdefghijklmnopqrstuvwxyz0123456789_"

// made tells whether s is of 1 to max bytes, all of them among those.
func made(s, of string, max int) bool {
	return s != "" && len(s) <= max && strings.Trim(s, of) == ""
}

// freeNames are the objects whose keys are data.
var freeNames = map[string]bool{"env": true, "headers": true}

// maxDepth is that of the deepest field there is, and one more.
const maxDepth = 8

func checkKeys(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return checkValue(d, "", 0)
}

func checkValue(d *json.Decoder, name string, depth int) error {
	if depth > maxDepth {
		return errors.New("it is nested too deeply")
	}
	tok, err := d.Token()
	if err != nil {
		return errors.New("it is not JSON")
	}
	switch tok {
	case json.Delim('['):
		for d.More() {
			if err := checkValue(d, "", depth+1); err != nil {
				return err
			}
		}
		_, err = d.Token()
	case json.Delim('{'):
		err = checkObject(d, name, depth)
	}
	if err != nil && strings.HasPrefix(err.Error(), "invalid") {
		return errors.New("it is not JSON")
	}
	return err
}

func checkObject(d *json.Decoder, name string, depth int) error {
	seen := map[string]bool{}
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			return errors.New("it is not JSON")
		}
		key, _ := tok.(string)
		if !freeNames[name] && !made(key, fieldBytes, 32) {
			return fmt.Errorf("unknown field %q", key)
		}
		if seen[key] {
			return fmt.Errorf("field %q stands twice", key)
		}
		seen[key] = true
		if err := checkValue(d, key, depth+1); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return errors.New("it is not JSON")
	}
	return nil
}

func (s *Spec) fillDefaults() {
	def := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	def(&s.Kind, "turn")
	def(&s.Engine, "none")
	def(&s.Home.Mode, "private")
	def(&s.Net.Mode, "gated")
	def(&s.OnUnavailable, "refuse")
	def(&s.Net.Harness.Prefix, "/api/internal/")
	def(&s.Net.Egress.Profile, "public")
	def(&s.Profile.Work, "rw")
	def(&s.Profile.Keys, "broker")
	if s.V == 0 {
		s.V = 1
	}
}

// idBytes make every name that a driver gives: it ends up in logs, in the
// database and on screens.
const idBytes = fieldBytes + "ABCDEFGHIJKLMNOPQRSTUVWXYZ.:-"

func (s *Spec) check() error {
	if s.V != 1 {
		return bad("field v: version %d is unknown, this build knows 1", s.V)
	}
	for field, id := range map[string]string{"id": s.ID, "bot": s.Bot, "conversation": s.Conversation, "turn": s.Turn} {
		if id != "" && !made(id, idBytes, 128) {
			return bad("field %s: letters, digits and _ . : - only, at most 128", field)
		}
	}
	if err := s.checkCommand(); err != nil {
		return err
	}
	if err := s.checkChoices(); err != nil {
		return err
	}
	for _, k := range s.Broker.Keys {
		if !strings.HasPrefix(k.Secret, "ref:") || k.Env == "" || k.Provider == "" {
			return bad("field broker.keys: a key needs env, provider and secret (ref:NAME)")
		}
	}
	if s.LocalVM {
		return reason.New(reason.LocalVM, "this turn works in a Local VM, which is reached through the container runtime's socket")
	}
	if err := s.checkBrowser(); err != nil {
		return err
	}
	if err := s.checkEgress(); err != nil {
		return err
	}
	if err := s.checkMCP(); err != nil {
		return err
	}
	if err := s.checkInward(); err != nil {
		return err
	}
	if err := s.checkHosts(); err != nil {
		return err
	}
	if err := s.checkLogins(); err != nil {
		return err
	}
	return s.checkPaths()
}

func (s *Spec) checkCommand() error {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return bad("field argv: no command")
	}
	for i, arg := range s.Argv {
		if strings.ContainsRune(arg, 0) {
			return bad("field argv: argument %d holds a NUL byte", i)
		}
	}
	for name, v := range s.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(v.Text.Reveal(), 0) {
			return bad("field env: a name is empty, or a name or value holds a NUL byte")
		}
	}
	return nil
}

// choices are the fields with a closed set of values. `later` values are in
// the contract but not in this build.
var choices = []struct {
	field string
	get   func(*Spec) string
	known []string
	later []string
}{
	{"kind", func(s *Spec) string { return s.Kind }, []string{"turn", "selfcheck", "browser"}, []string{"mcp-test"}},
	{"home.mode", func(s *Spec) string { return s.Home.Mode }, []string{"private", "engine", "server"}, nil},
	{"net.mode", func(s *Spec) string { return s.Net.Mode }, []string{"gated", "none", "shared"}, nil},
	{"net.egress.profile", func(s *Spec) string { return s.Net.Egress.Profile }, []string{"public"}, nil},
	{"net.harness.prefix", func(s *Spec) string { return s.Net.Harness.Prefix }, []string{"/api/internal/"}, nil},
	{"profile.work", func(s *Spec) string { return s.Profile.Work }, []string{"rw", "ro"}, nil},
	{"profile.keys", func(s *Spec) string { return s.Profile.Keys }, []string{"broker", "none"}, nil},
	{"user.mode", func(s *Spec) string { return cmp.Or(s.User.Mode, "maus") }, []string{"maus", "per-bot"}, nil},
	{"on_unavailable", func(s *Spec) string { return s.OnUnavailable }, []string{"refuse"}, []string{"run-unboxed"}},
}

func (s *Spec) checkChoices() error {
	for _, c := range choices {
		switch value := c.get(s); {
		case slices.Contains(c.known, value):
		case slices.Contains(c.later, value):
			return bad("field %s: %q is not in this build", c.field, value)
		default:
			return bad("field %s: %q is none of %s", c.field, value, strings.Join(c.known, ", "))
		}
	}
	if !slices.Contains(Engines, s.Engine) && !strings.HasPrefix(s.Engine, "acp:") {
		return bad("field engine: %q is none of %s, acp:NAME", s.Engine, strings.Join(Engines, ", "))
	}
	l := s.Limits
	if min(l.Pids, l.MemoryMB, l.TmpMB, l.Nofile, l.WallS, l.IdleS, l.FileMB, l.DiskFreeMB, s.Broker.TTLS) < 0 || l.CPU < 0 {
		return bad("field limits: a limit is negative")
	}
	if l.MemoryMB > MaxMemoryMB || l.CPU > MaxCPU || (l.CPU > 0 && l.CPU < MinCPU) || l.WallS > MaxWallS {
		return bad("field limits: memory_mb up to %d, cpu from %g to %d, wall_s up to %d", MaxMemoryMB, MinCPU, MaxCPU, MaxWallS)
	}
	if l.IdleS > MaxWallS || l.FileMB > MaxMemoryMB || l.DiskFreeMB > MaxMemoryMB {
		return bad("field limits: idle_s up to %d, file_mb and disk_free_mb up to %d", MaxWallS, MaxMemoryMB)
	}
	if b := s.Broker.Limits; b.Concurrent < 0 || b.Concurrent > MaxConcurrent || b.RequestsPerMin < 0 || b.Bytes < 0 || b.Tokens < 0 {
		return bad("field broker.limits: a limit is negative, or concurrent is over %d", MaxConcurrent)
	}
	return s.refuseLater()
}

// What a limit may be: more is a slip of the pen, and less than the kernel's
// own granularity is no limit.
const (
	MaxMemoryMB = 1 << 24 // 16 TiB
	MinCPU      = 0.01    // 1 ms in each period of 100, the least that the kernel takes
	MaxCPU      = 4096
	MaxWallS    = 7 * 24 * 3600

	MaxConcurrent = 256 // as many connections as a box has to its broker
)

// refuseLater names what the contract has and this build has not.
func (s *Spec) refuseLater() error {
	for field, asked := range map[string]bool{
		"browser.launcher": s.Browser.Launcher,
	} {
		if asked {
			return bad("field %s is not in this build, and is not ignored", field)
		}
	}
	return nil
}

// checkPaths wants every path absolute and clean, as it will stand in the box.
func (s *Spec) checkPaths() error {
	if (s.Home.Mode == "engine") != (s.Home.Path != "") {
		return bad("field home.path belongs to home.mode engine, and to no other")
	}
	if err := s.Home.checkSignin(); err != nil {
		return err
	}
	if err := s.checkProfile(); err != nil {
		return err
	}
	all := map[string][]string{
		"cwd": {s.Cwd}, "data_dir": {s.DataDir}, "home.path": {s.Home.Path},
		"paths.rw": s.Paths.RW, "paths.ro": s.Paths.RO, "paths.argv_files": s.Paths.ArgvFiles,
		"paths.perm_socket_dir": {s.Paths.PermSocketDir},
	}
	for field, paths := range all {
		for _, p := range paths {
			optional := p == "" && !strings.HasPrefix(field, "paths.r") && field != "paths.argv_files"
			if !optional && !isCleanPath(p) {
				return bad("field %s: %q is not an absolute path without . .. // and NUL", field, p)
			}
		}
	}
	return nil
}

func isCleanPath(p string) bool {
	return filepath.IsAbs(p) && filepath.Clean(p) == p && !strings.ContainsRune(p, 0) && len(p) < 4096
}

// Engines are the engines that we know by name.
var Engines = []string{"claude", "codex", "gemini", "opencode", "grok", "antigravity", "none"}
