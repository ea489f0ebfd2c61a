package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/openmausbot/botbox/shared/boxenv"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/selfcheck"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// whyPath makes the plans that `botbox run` would make in this folder, and
// tells what they do with a path.
func (c *call) whyPath(text string) error {
	a, _, err := c.enter()
	if err != nil {
		return err
	}
	path, err := filepath.Abs(text)
	if err != nil {
		return reason.New(reason.Usage, "%s is no path: %w", text, err)
	}
	plan := func(change func(*spec.Spec)) (*box.Plan, error) { return c.planHere(a, change) }
	here := "in a box of this folder"
	var cwd string
	if cwd, err = workFolder(""); err == nil {
		_, err = plan(func(s *spec.Spec) { s.Cwd = cwd })
	}
	if err != nil {
		cwd, here = "", "in a box without a work folder, for this one can be none"
	}
	p, err := plan(func(s *spec.Spec) { s.Cwd = cwd })
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s: %s\n", here, sight(p, path))
	for _, way := range []struct {
		flag string
		ask  func(*spec.Spec)
	}{
		{"--ro", func(s *spec.Spec) { s.Paths.RO = []string{path} }},
		{"--rw", func(s *spec.Spec) { s.Paths.RW = []string{path} }},
	} {
		p, err := plan(func(s *spec.Spec) { s.Cwd = cwd; way.ask(s) })
		if err == nil {
			err = p.Enters(path)
		}
		if err == nil {
			fmt.Fprintf(c.stdout, "%s: allowed\n", way.flag)
			continue
		}
		fmt.Fprintf(c.stdout, "%s: refused: %v\n", way.flag, err)
	}
	return nil
}

// planHere makes the plan of a box with everything at its default, but for
// what change asks.
func (c *call) planHere(a account, change func(*spec.Spec)) (*box.Plan, error) {
	s := spec.Spec{
		V: 1, Kind: "turn", Engine: "none", Argv: []string{"true"},
		Home: spec.Home{Mode: "private"}, Net: spec.Net{Mode: "gated"},
	}
	change(&s)
	return box.NewPlan(s, c.machine(a).For(s, boxenv.Fixed(0)["PATH"]), turn.DefaultPorts(int(c.settings.Port)))
}

// sight says how a path is seen in a box.
func sight(p *box.Plan, path string) string {
	m, there := p.At(path)
	switch {
	case there && m.Dest == path:
		return fmt.Sprintf("%s (%s)", m.Kind, m.Reason)
	case there:
		return fmt.Sprintf("in %s, which is %s (%s)", m.Dest, m.Kind, m.Reason)
	case p.LeadsTo(path):
		return "read-only, and nothing in it but what is let in below it"
	}
	return "not there: a box has only what it was given"
}

// whyCheck prints a row of the probe's own table.
func (c *call) whyCheck(id string) error {
	_, programs, err := c.enter("boxprobe")
	if err != nil {
		return err
	}
	row, err := selfcheck.Explain(box.NewSpawner(), programs[0], id)
	if errors.Is(err, selfcheck.ErrNoCheck) {
		return reason.New(reason.Usage, "there is no check %q", id).WithHint("botbox check --profile full runs all of them")
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s, of the layer %s (--profile %s)\ntries to: %s\nexpects: %s\ncontrol: %s\n", row.ID, row.Layer, row.Profile, row.Tries, row.Expect, row.Control)
	for _, name := range row.BrokenBy {
		fmt.Fprintf(c.stdout, "must fail under: --mutate %s\n", name)
	}
	return nil
}
