package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
)

// detection is what `detect --json` prints.
type detection struct {
	Box    string  `json:"box"`    // what the seed's rule and this machine come to
	Reason *string `json:"reason"` // why it is off
	Able   bool    `json:"able"`   // whether this machine can build a box
	Fix    string  `json:"fix"`
	Bwrap  string  `json:"bwrap"`
	Tools  tools   `json:"tools"`
	Kernel string  `json:"kernel"`
}

type tools struct {
	Bwrap string `json:"bwrap"` // version
}

// detectVerb answers whether boxes are on here. It exits 0 when this machine
// can build a box, wanted or not.
func detectVerb(c *call, args []string) (int, error) {
	var asJSON bool
	rest, err := c.parse("detect", args, func(set *flag.FlagSet) {
		set.BoolVar(&asJSON, "json", false, "print JSON")
	})
	if err == nil {
		err = noWords(rest)
	}
	if err != nil {
		return 0, err
	}
	_, programs, err := c.enter("boxentry")
	if err != nil {
		return 0, err
	}
	found := box.NewSpawner().Detect(os.Getenv("PATH"), programs[0])
	wanted := box.Wanted(c.settings.BotBox, c.settings.CloudRole)
	d := describe(found, wanted)
	if asJSON {
		json.NewEncoder(c.stdout).Encode(d)
	} else {
		c.printDetection(d, found, wanted)
	}
	if found.Err != nil {
		return reason.Exit(found.Err), nil
	}
	return 0, nil
}

// describe keeps the seed's order: a box that nobody wants is not looked for.
func describe(found box.Finding, wanted error) detection {
	d := detection{Box: "bwrap", Able: found.Err == nil, Bwrap: found.Bwrap, Tools: tools{found.Version}, Kernel: kernelRelease()}
	why := wanted
	if why == nil {
		why = found.Err
	}
	if why != nil {
		f := reason.FaultOf(why)
		d.Box, d.Reason, d.Fix = "off", &f.Code, f.Hint
	}
	return d
}

func (c *call) printDetection(d detection, found box.Finding, wanted error) {
	fmt.Fprintf(c.stdout, "box: %s\n", d.Box)
	for _, why := range []error{wanted, found.Err} {
		if why != nil {
			f := reason.FaultOf(why)
			fmt.Fprintf(c.stdout, "why: %s\nfix: %s\nreason: %s\n", f.Message, f.Hint, f.Code)
		}
	}
	if found.Err == nil {
		fmt.Fprintf(c.stdout, "this machine can box: %s (bubblewrap %s), Linux %s\n", found.Bwrap, found.Version, d.Kernel)
	}
}

// kernelRelease is what uname -r prints.
func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
