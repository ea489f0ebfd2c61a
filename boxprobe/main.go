package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/openmausbot/botbox/shared/wire"
)

// The exit statuses of all our programs. A check that fails is no error of the
// probe's: it ends with 0 whenever it has printed its last line.
const (
	exitUsage  = 100
	exitSystem = 111
)

// line is what one check prints.
type line struct {
	ID      string  `json:"id"`
	Layer   string  `json:"layer"`
	Verdict Verdict `json:"verdict"`
	MS      int64   `json:"ms"`
	Why     string  `json:"why"`
}

// end is the last line; its absence means that the probe did not live to it.
type end struct {
	Done  bool   `json:"done"`
	Count int    `json:"count"`
	Build string `json:"build"`
}

func main() {
	// First, before anything of ours opens a file.
	inherited := openFDs()
	if len(os.Args) > 1 && os.Args[1] == "canary" {
		// What the probe must not find, started outside: the words that follow
		// are its mark, and it lives as long as whoever holds its stdin.
		io.Copy(io.Discard, os.Stdin)
		return
	}
	flags := flag.NewFlagSet("boxprobe", flag.ContinueOnError)
	list := flags.Bool("list", false, "print the table of checks and end")
	profile := flags.String("profile", seed, "seed or full")
	wrong := flags.Parse(os.Args[1:]) != nil
	if *list && !wrong {
		exitOn(json.NewEncoder(os.Stdout).Encode(table()))
		return
	}
	if wrong || flags.NArg() != 1 || (*profile != seed && *profile != full) {
		fmt.Fprintln(os.Stderr, "usage: boxprobe [--list] [--profile seed|full] FIXTURE")
		os.Exit(exitUsage)
	}
	f, err := readFixture(flags.Arg(0))
	exitOn(err)
	f.inherited = inherited
	exitOn(probe(os.Stdout, f, *profile))
}

// probe runs the checks of a profile and prints a line for each as soon as it
// is known, so that what ends the probe takes no earlier line with it.
func probe(w io.Writer, f *Fixture, profile string) error {
	out, count := json.NewEncoder(w), 0
	for _, c := range table() {
		if c.Profile == full && profile != full {
			continue
		}
		start := time.Now()
		r := run(c, f, timeout)
		count++
		if err := out.Encode(line{c.ID, c.Layer, r.Verdict, time.Since(start).Milliseconds(), r.Why}); err != nil {
			return err
		}
	}
	return out.Encode(end{true, count, wire.Build})
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "boxprobe:", err)
		os.Exit(exitSystem)
	}
}
