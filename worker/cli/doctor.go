package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
)

// diagnosis is what `doctor --json` prints.
type diagnosis struct {
	Able   bool     `json:"able"`   // whether this machine can build a box
	Reason *string  `json:"reason"` // why not
	Why    string   `json:"why"`
	Fix    []string `json:"fix"` // what to do, a line each; command lines are to be typed as root
	Place  place    `json:"place"`
	Kernel string   `json:"kernel"`
	Layers []layer  `json:"layers"`
	Note   string   `json:"note"` // why the server's own turns have no box, though this machine can
	Next   string   `json:"next"` // what to type then
}

type layer struct {
	Layer   string  `json:"layer"`
	Verdict string  `json:"verdict"` // holds, fails, not-tried
	Ms      float64 `json:"ms"`
}

// doctorVerb tries each layer of a box by itself, and says what is missing and
// how to put it right here. It exits 0 when this machine can build a box.
func doctorVerb(c *call, args []string) (int, error) {
	asJSON, err := c.jsonFlag("doctor", args)
	if err != nil {
		return 0, err
	}
	_, programs, err := c.enter("boxentry")
	if err != nil {
		return 0, err
	}
	found := box.NewSpawner().Examine(os.Getenv("PATH"), programs[0])
	d := diagnose(found, box.Wanted(c.settings.BotBox, c.settings.CloudRole), placeOf(os.DirFS("/"), os.Getenv))
	if asJSON {
		json.NewEncoder(c.stdout).Encode(d)
	} else {
		d.print(c.stdout)
	}
	return reason.Exit(found.Err), nil
}

func diagnose(found box.Finding, wanted error, where place) diagnosis {
	d := diagnosis{Able: found.Err == nil, Place: where, Kernel: kernelRelease(), Fix: []string{}, Next: "botbox check"}
	for _, l := range found.Layers {
		verdict := "holds"
		if !l.Tried {
			verdict = "not-tried"
		} else if !l.Holds {
			verdict = "fails"
		}
		d.Layers = append(d.Layers, layer{l.Name, verdict, float64(l.Took.Microseconds()) / 1000})
	}
	if found.Err != nil {
		f := reason.FaultOf(found.Err)
		d.Reason, d.Why, d.Fix, d.Next = &f.Code, f.Message, remedy(found.Err, where), "botbox doctor"
	} else if wanted != nil {
		f := reason.FaultOf(wanted)
		d.Note = fmt.Sprintf("botbox run boxes; the server's own turns are not boxed (%s): %s", f.Code, f.Hint)
	}
	return d
}

func (d diagnosis) print(w io.Writer) {
	fmt.Fprintf(w, "here: Linux %s, %s\n", d.Kernel, d.Place)
	for _, l := range d.Layers {
		sign, took := "✓", time.Duration(l.Ms*float64(time.Millisecond)).Round(100*time.Microsecond).String()
		switch l.Verdict {
		case "fails":
			sign = "✗"
		case "not-tried":
			sign, took = "-", "not tried"
		}
		fmt.Fprintf(w, "  %s %-42s %s\n", sign, l.Layer, took)
	}
	if !d.Able {
		fmt.Fprintf(w, "why: %s\n", d.Why)
		for _, line := range d.Fix {
			fmt.Fprintf(w, "fix: %s\n", line)
		}
		fmt.Fprintf(w, "reason: %s\n", *d.Reason)
	} else {
		fmt.Fprintln(w, "this machine can box")
	}
	if d.Note != "" {
		fmt.Fprintf(w, "note: %s\n", d.Note)
	}
	fmt.Fprintf(w, "next: %s\n", d.Next)
}
