package main

import (
	"fmt"
	"os"
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
