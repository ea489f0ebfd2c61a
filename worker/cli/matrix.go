package cli

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/layers"
	"github.com/openmausbot/botbox/worker/internal/report"
)

// onTerminal tells whether somebody looks at what is written there.
func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// paint gives words their colour, or leaves them alone.
type paint bool

func (p paint) as(verdict, word string) string {
	codes := map[string]string{"pass": "32", "fail": "1;31", "inconclusive": "33"}
	if !p {
		return word
	}
	return "\x1b[" + codes[verdict] + "m" + word + "\x1b[m"
}

// signs say without a colour what a colour says.
var signs = map[string]string{"pass": "", "fail": "✗", "inconclusive": "?"}

// printChecks shows a matrix by layer, and of each check that did not pass
// what it means and what to do.
func printChecks(w io.Writer, p paint, checks report.Checks) {
	for _, l := range byLayer(checks.Results) {
		sign, verdict := "✓", "pass"
		if l.passed < len(l.results) {
			sign, verdict = "✗", "fail"
		}
		var words []string
		for _, r := range l.results {
			words = append(words, p.as(r.Verdict, r.ID+signs[r.Verdict]))
		}
		fmt.Fprintf(w, "%s %-18s %2d/%-3d %s\n", p.as(verdict, sign), l.name, l.passed, len(l.results), strings.Join(words, " "))
	}
	for _, r := range checks.Results {
		if r.Verdict == "pass" {
			continue
		}
		word := map[string]string{"fail": "did not hold", "inconclusive": "could not be tried, which counts as failed"}[r.Verdict]
		fmt.Fprintf(w, "\n%s %s: %s\n", p.as(r.Verdict, r.ID), word, r.Why)
		if row, ok := layers.Of(r.Layer); ok {
			fmt.Fprintf(w, "   means: %s\n   do:    %s\n   see:   botbox why check %s\n", meaning(r, row), row.Do, r.ID)
		}
	}
	if len(checks.Declared) > 0 {
		fmt.Fprintf(w, "\ndeclared to fail: %s\n", strings.Join(checks.Declared, " "))
	}
	verdict := "pass"
	if len(checks.Failed()) > 0 {
		verdict = "fail"
	}
	fmt.Fprintf(w, "\n%s\n", p.as(verdict, fmt.Sprintf("%d/%d checks passed", checks.Passed(), len(checks.Results))))
}

// meaning does not claim of a check that could not be tried that it failed.
func meaning(r report.Result, row layers.Row) string {
	if r.Verdict == "inconclusive" {
		return "nobody knows; if it does not hold, " + row.Means
	}
	return row.Means
}

// group is the results of one layer, in the order of the checks.
type group struct {
	name    string
	passed  int
	results []report.Result
}

func byLayer(results []report.Result) []group {
	var all []group
	for _, r := range results {
		at := slices.IndexFunc(all, func(g group) bool { return g.name == r.Layer })
		if at < 0 {
			at, all = len(all), append(all, group{name: r.Layer})
		}
		all[at].results = append(all[at].results, r)
		if r.Verdict == "pass" {
			all[at].passed++
		}
	}
	return all
}

// The elements of JUnit's XML that CI systems read.
type junitSuite struct {
	XMLName  xml.Name        `xml:"testsuite"`
	Name     string          `xml:"name,attr"`
	Tests    int             `xml:"tests,attr"`
	Failures int             `xml:"failures,attr"`
	Errors   int             `xml:"errors,attr"`
	Time     string          `xml:"time,attr"`
	At       string          `xml:"timestamp,attr"`
	About    []junitProperty `xml:"properties>property"`
	Cases    []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Layer   string      `xml:"classname,attr"`
	ID      string      `xml:"name,attr"`
	Time    string      `xml:"time,attr"`
	Failure *junitFault `xml:"failure"`
	Error   *junitFault `xml:"error"`
}

type junitFault struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// writeJUnit writes a run for a CI system: what did not hold is a failure,
// what could not be tried an error.
func writeJUnit(w io.Writer, r report.Report, at time.Time, took time.Duration) error {
	suite := junitSuite{Name: "botbox check " + r.Profile, Tests: len(r.Results), Time: seconds(took), At: at.UTC().Format("2006-01-02T15:04:05"),
		About: []junitProperty{{"build", r.Build}, {"bubblewrap", r.Bwrap}, {"kernel", r.Kernel}}}
	for _, res := range r.Results {
		one := junitCase{Layer: res.Layer, ID: res.ID, Time: seconds(time.Duration(res.MS) * time.Millisecond)}
		row, _ := layers.Of(res.Layer)
		fault := &junitFault{res.Why, "means: " + meaning(res, row) + "\ndo: " + row.Do}
		switch res.Verdict {
		case "pass":
		case "fail":
			one.Failure = fault
			suite.Failures++
		default:
			one.Error = fault
			suite.Errors++
		}
		suite.Cases = append(suite.Cases, one)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
