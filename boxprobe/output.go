package main

import (
	"encoding/json"
	"io"
	"time"

	"github.com/openmausbot/botbox/shared/wire"
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

// probe runs the checks of a profile and prints a line for each as soon as it
// is known, so that what ends the probe takes no earlier line with it.
func probe(w io.Writer, f *Fixture, profile string) error {
	out, count, late := json.NewEncoder(w), 0, ""
	for _, c := range table() {
		if c.Do == nil || c.Profile == full && profile != full {
			continue
		}
		start := time.Now()
		r := beside(late, run(c, f, timeout))
		if r.late {
			late = c.ID
		}
		count++
		if err := out.Encode(line{c.ID, c.Layer, r.Verdict, time.Since(start).Milliseconds(), r.Why}); err != nil {
			return err
		}
	}
	return out.Encode(end{true, count, wire.Build})
}
