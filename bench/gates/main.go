package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "origin":
			return serveOrigin(os.Args[2])
		case "relay":
			return serveRelay(os.Args[2])
		case "inside":
			return measure(os.Args[2], os.Args[3])
		}
		return fmt.Errorf("%s is no part of this", os.Args[1])
	}
	top, err := prepare()
	if err != nil {
		return err
	}
	defer os.RemoveAll(top)
	return enter(top)
}

// measure is the run in the network namespace. outer is the one that the
// caller is in.
func measure(top, outer string) error {
	p, err := newPlace(top, outer)
	if err != nil {
		return err
	}
	defer p.close()
	all := contenders(top)
	defer p.stop(all)
	for _, c := range all {
		if err := p.start(c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if _, err := c.connects(warm); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if err := inTurn(all, connectRounds, (*contender).connecting); err != nil {
		return err
	}
	if err := inTurn(all, bulkRounds, (*contender).moving); err != nil {
		return err
	}
	print(all)
	return nil
}

// inTurn lets all do something once a round. Nobody always comes first.
func inTurn(all []*contender, rounds int, do func(*contender) error) error {
	for round := range rounds {
		for i := range all {
			c := all[(i+round)%len(all)]
			if err := do(c); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return nil
}
