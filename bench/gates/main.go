package main

import (
	"fmt"
	"os"
)

const rounds = 5

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
	for round := range rounds {
		for i := range all {
			// Nobody always comes first.
			c := all[(i+round)%len(all)]
			if err := p.turn(c); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	print(all)
	return nil
}
