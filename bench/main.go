package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"
)

const rounds = 200

func main() {
	do := run
	if len(os.Args) == 4 && os.Args[1] == child {
		do = func() error { return timeCalls(os.Args[2], os.Args[3]) }
	}
	if len(os.Args) == 3 && os.Args[1] == callerMode {
		do = func() error { return caller(os.Args[2]) }
	}
	if len(os.Args) == 4 && os.Args[1] == relayMode {
		do = func() error { return relay(os.Args[2], os.Args[3]) }
	}
	if len(os.Args) > 1 && os.Args[1] == "broker" {
		do = func() error { return runBroker(os.Args[2:]) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	p, err := newPlace("bin")
	if err != nil {
		return err
	}
	defer p.close()
	contenders, err := p.contenders()
	if err != nil {
		return err
	}
	if err := measure(contenders); err != nil {
		return err
	}
	printStarts(contenders)
	if err := p.printWeight(); err != nil {
		return err
	}
	if err := p.printBroker(nil); err != nil {
		return err
	}
	return printFilter()
}

// runBroker prints the broker's rows alone, beside the programs of other
// folders: what a change was worth, in one run.
func runBroker(folders []string) error {
	var places []*place
	for _, folder := range append([]string{"bin"}, folders...) {
		p, err := newPlace(folder)
		if err != nil {
			return err
		}
		defer p.close()
		places = append(places, p)
	}
	return places[0].printBroker(places[1:])
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }

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
