package main

import (
	"fmt"
	"slices"
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
