package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

// The exit statuses of all our programs. A check that fails is no error of the
// probe's: it ends with 0 whenever it has printed its last line.
const (
	exitUsage  = 100
	exitSystem = 111
)

func main() {
	// First, before anything of ours opens a file.
	inherited := openFDs()
	if canary(os.Args[1:]) || asker(os.Args[1:]) {
		return
	}
	flags := flag.NewFlagSet("boxprobe", flag.ContinueOnError)
	list := flags.Bool("list", false, "print the table of checks and end")
	profile := flags.String("profile", seed, "seed or full")
	wrong := flags.Parse(os.Args[1:]) != nil
	if *list && !wrong {
		exitOn(json.NewEncoder(os.Stdout).Encode(listing()))
		return
	}
	if wrong || flags.NArg() != 1 || (*profile != seed && *profile != full) {
		fmt.Fprintln(os.Stderr, "usage: boxprobe [--list] [--profile seed|full] FIXTURE, or boxprobe canary MARK")
		os.Exit(exitUsage)
	}
	f, err := readFixture(flags.Arg(0))
	exitOn(err)
	f.inherited = inherited
	exitOn(probe(os.Stdout, f, *profile))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "boxprobe:", err)
		os.Exit(exitSystem)
	}
}
