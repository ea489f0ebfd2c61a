package layers

import (
	"slices"
	"strings"
)

// Row is one layer.
type Row struct {
	ID    string `json:"id"` // of a layer that boxprobe checks: its name there
	Name  string `json:"name"`
	Where string `json:"where"`
	Stops string `json:"stops"`
	Not   []Gap  `json:"does_not_stop"`

	Checks []string `json:"checks"` // boxprobe's, all of this layer
	Shown  []string `json:"shown"`  // by "step NAME" of the boot, or by "FOLDER.TEST"

	Means string `json:"means,omitempty"` // when a check of it has failed
	Do    string `json:"do,omitempty"`    // about that
}

// Gap is something that a layer does not stop.
type Gap struct {
	What  string `json:"what"`
	Shown string `json:"shown"` // FOLDER.TEST that it is real; empty = unproved
}

// Unproved tells whether nothing shows that the gap is real.
func (g Gap) Unproved() bool { return g.Shown == "" }

// MaxUnproved is how many gaps may be.
const MaxUnproved = 3

// All gives the table, from the box outwards.
func All() []Row { return slices.Clone(table) }

// Of finds the layer of one of boxprobe's checks.
func Of(layer string) (Row, bool) {
	i := slices.IndexFunc(table, func(r Row) bool { return r.ID == layer })
	if i < 0 {
		return Row{}, false
	}
	return table[i], true
}

// Markdown is the table as SECURITY.md shows it.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| layer | where | stops | does not stop | shown by |\n|---|---|---|---|---|\n")
	for _, r := range table {
		b.WriteString("| " + strings.Join([]string{r.Name, r.Where, r.Stops, r.gaps(), r.shown()}, " | ") + " |\n")
	}
	return b.String()
}

func (r Row) gaps() string {
	var all []string
	for _, g := range r.Not {
		by := "unproved"
		if !g.Unproved() {
			by = "`" + test(g.Shown) + "`"
		}
		all = append(all, g.What+" ("+by+")")
	}
	return strings.Join(all, "; ")
}

func (r Row) shown() string {
	all := slices.Clone(r.Checks)
	for _, s := range r.Shown {
		if step, ok := strings.CutPrefix(s, "step "); ok {
			all = append(all, "boot step `"+step+"`")
		} else {
			all = append(all, "`"+test(s)+"`")
		}
	}
	return strings.Join(all, ", ")
}

// test is a test's name without its folder.
func test(shown string) string { return shown[strings.LastIndex(shown, ".")+1:] }
