package main

import (
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// contender is one way to start /bin/true in a box.
type contender struct {
	name  string
	start func() error
	took  []time.Duration
}

// measure lets the contenders take turns, so that what else the machine does
// meets all of them alike.
func measure(all []*contender) error {
	for round := range rounds + 10 {
		for _, c := range all {
			// The kernel takes a network namespace apart after its box has
			// ended; whoever comes next must not pay for the one before.
			time.Sleep(25 * time.Millisecond)
			begin := time.Now()
			if err := c.start(); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round >= 10 { // the first ones warm the caches
				c.took = append(c.took, time.Since(begin))
			}
		}
	}
	for _, c := range all {
		c.sort()
	}
	return nil
}

func (c *contender) sort() { slices.Sort(c.took) }

func (c *contender) min() time.Duration    { return c.took[0] }
func (c *contender) median() time.Duration { return c.took[len(c.took)/2] }

// printStarts compares each contender with the first.
func printStarts(all []*contender) {
	bare := all[0]
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "start of /bin/true, %d rounds in turn\tmin ms\tmedian ms\tmin over bare\tratio of medians\n", rounds)
	for _, c := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%+.2f\t%.2f\n", c.name, ms(c.min()), ms(c.median()),
			float64(c.min()-bare.min())/float64(time.Millisecond), float64(c.median())/float64(bare.median()))
	}
	w.Flush()
	fmt.Println("promise: through a worker ≤ +3 ms at the minimum, ratio of medians ≤ 1.5, below bwrap with socat bridges")
}
