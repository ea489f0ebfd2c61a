package selfcheck

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/report"
)

// row is a row of boxprobe's table.
type row struct {
	ID       string   `json:"id"`
	Layer    string   `json:"layer"`
	Profile  string   `json:"profile"`
	Tries    string   `json:"tries"`
	Expect   string   `json:"expect"`
	BrokenBy []string `json:"broken_by"`
	Control  string   `json:"control"`
	Outside  bool     `json:"outside"` // looked at from here, and reported by no probe
}

// Row is what a check of boxprobe's is about, as boxprobe says.
type Row = row

// ErrNoCheck says that boxprobe has no check of this name.
var ErrNoCheck = errors.New("there is no such check")

// Explain asks boxprobe what one of its checks is about.
func Explain(s *box.Spawner, probe box.Program, id string) (Row, error) {
	rows, err := readTable(s, probe, full)
	if err != nil {
		return Row{}, err
	}
	for _, r := range rows {
		if r.ID == id {
			return r, nil
		}
	}
	return Row{}, ErrNoCheck
}

// tableSize and outputSize bound what the probe may say.
const (
	tableSize  = 1 << 20
	lineSize   = 16 << 10
	outputSize = 1 << 20
)

// readTable asks boxprobe, outside every box, which checks a profile has.
func readTable(s *box.Spawner, probe box.Program, profile string) ([]row, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, reason.New(reason.System, "ask boxprobe for its table: %w", err)
	}
	defer r.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		w.Close()
		return nil, reason.New(reason.System, "ask boxprobe for its table: %w", err)
	}
	defer null.Close()
	child, err := s.Beside(probe.File, []string{"boxprobe", "--list"}, []string{}, null, w)
	w.Close()
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, tableSize))
	r.Close()
	child.Wait()
	var all, rows []row
	if err = errors.Join(err, json.Unmarshal(text, &all)); err != nil {
		return nil, reason.New(reason.Internal, "boxprobe's table cannot be read: %w", err)
	}
	for _, c := range all {
		if c.Profile == seed || profile == full {
			rows = append(rows, c)
		}
	}
	if len(rows) == 0 {
		return nil, reason.New(reason.Internal, "boxprobe's table has no checks")
	}
	return rows, nil
}

// output is what the probe reported.
type output struct {
	lines map[string]report.Result
	build string // of the last line; empty when there was none
}

var errOutput = errors.New("the probe's output is malformed")

// readOutput reads the probe's lines up to the last one. What it read before
// an error is of no use: somebody else may have written it.
func readOutput(from io.Reader, rows []row) (output, error) {
	out := output{lines: map[string]report.Result{}}
	lines := bufio.NewScanner(io.LimitReader(from, outputSize))
	lines.Buffer(nil, lineSize)
	for lines.Scan() {
		if out.build != "" {
			return out, errOutput // after the last line
		}
		if err := out.add(lines.Bytes(), rows); err != nil {
			return out, err
		}
	}
	if lines.Err() != nil {
		return out, errOutput
	}
	return out, nil
}

func (out *output) add(text []byte, rows []row) error {
	var line struct {
		report.Result
		Done  bool   `json:"done"`
		Count int    `json:"count"`
		Build string `json:"build"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if decoder.Decode(&line) != nil || decoder.More() {
		return errOutput
	}
	if line.Done {
		if line.Count != len(out.lines) || line.Build == "" {
			return errOutput
		}
		out.build = line.Build
		return nil
	}
	_, twice := out.lines[line.ID]
	layer, known := layerOf(rows, line.ID)
	if twice || !known || (line.Verdict != pass && line.Verdict != fail && line.Verdict != inconclusive) {
		return errOutput
	}
	line.Result.Layer, line.Result.Why = layer, clean(line.Why)
	out.lines[line.ID] = line.Result
	return nil
}

// layerOf knows the rows that a probe may report.
func layerOf(rows []row, id string) (string, bool) {
	for _, r := range rows {
		if r.ID == id && !r.Outside {
			return r.Layer, true
		}
	}
	return "", false
}

// clean makes words that come out of a box fit for a terminal and a report.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, text)
	const longest = 300
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

// checkBuild refuses a probe of another build.
func checkBuild(build string) error {
	if build != "" && build != wire.Build {
		return reason.New(reason.VersionSkew, "boxprobe is of build %s, this is %s", clean(build), wire.Build)
	}
	return nil
}
