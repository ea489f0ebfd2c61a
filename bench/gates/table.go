package main

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"testing"
	"text/tabwriter"

	"github.com/openmausbot/botbox/shared/addrpolicy"
)

// columns are the figures of a row, in their order. What an idle tunnel holds
// shows the first time only: later ones get what the earlier ones have left.
var columns = []struct {
	head, figure, form string
	of                 func([]float64) float64
}{
	{"CONNECT µs", "connect", "%.0f", median}, {"c16 /s", "connects/s", "%.0f", median}, {"CPU µs", "cpu", "%.0f", median},
	{"down MB/s", "down", "%.0f", median}, {"up", "up", "%.0f", median}, {"CPU ms/GB", "down cpu", "%.0f", median},
	{"down +512", "down +512", "%.0f", median}, {"up +512", "up +512", "%.0f", median}, {"CPU ms/GB", "down cpu +512", "%.0f", median},
	{"KiB/idle", "KiB a tunnel", "%.1f", slices.Max[[]float64]}, {"fds/idle", "fds a tunnel", "%.2f", slices.Max[[]float64]}, {"refusal µs", "refusal", "%.0f", median},
}

func print(all []*contender) {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "\nmedians of %d and %d rounds in turn", connectRounds, bulkRounds)
	for _, col := range columns {
		fmt.Fprintf(w, "\t%s", col.head)
	}
	fmt.Fprintln(w)
	for _, c := range all {
		fmt.Fprint(w, c.name)
		for _, col := range columns {
			if list := c.figures[col.figure]; list != nil {
				fmt.Fprintf(w, "\t"+col.form, col.of(list))
			} else {
				fmt.Fprint(w, "\t-")
			}
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	promises(all)
}

// ratio is the median over the rounds of a figure of one contender over one of
// another, or of the same, in the same round.
func ratio(a *contender, figureA string, b *contender, figureB string) float64 {
	var list []float64
	for i, v := range a.figures[figureA] {
		list = append(list, v/b.figures[figureB][i])
	}
	return median(list)
}

// of is a ratio of medians, for what each round shows a sample of only.
func of(figure string, a, b *contender) float64 {
	return median(a.figures[figure]) / median(b.figures[figure])
}

// promises prints DESIGN §12's rows of the gate and issue 4's.
func promises(all []*contender) {
	bare, ours, smokescreen, peers := all[0], all[1], all[2], all[2:]
	say := func(what string, got float64, most float64) {
		verdict := "holds"
		if got > most {
			verdict = "DOES NOT HOLD"
		}
		fmt.Printf("%-13s  %.2f (at most %.2f)  %s\n", verdict, got, most, what)
	}
	least := func(what string, got float64, least float64) {
		verdict := "holds"
		if got < least {
			verdict = "DOES NOT HOLD"
		}
		fmt.Printf("%-13s  %.2f (at least %.2f)  %s\n", verdict, got, least, what)
	}
	fmt.Println()
	say("CONNECT, median over the bare relay's", of("connect", ours, bare), 1.05)
	say("CPU per CONNECT over smokescreen's", of("cpu", ours, smokescreen), 0.6)
	say("fds of an idle tunnel", slices.Max(ours.figures["fds a tunnel"]), 2.05)
	say("KiB of an idle tunnel", slices.Max(ours.figures["KiB a tunnel"]), 16)
	for _, way := range []string{"down", "up"} {
		least("bulk "+way+" with 512 idle tunnels over without", ratio(ours, way+" +512", ours, way), 0.9)
	}
	say("refusal, µs at the median", median(ours.figures["refusal"]), 300)
	say("connections begun for refusals", median(ours.figures["opens"]), 0)
	policy(say)
	for _, p := range peers {
		say("CPU per CONNECT over "+p.name+"'s", of("cpu", ours, p), 1)
		say("KiB of an idle tunnel over "+p.name+"'s", slices.Max(ours.figures["KiB a tunnel"])/slices.Max(p.figures["KiB a tunnel"]), 1)
		for _, way := range []string{"down", "up", "down +512", "up +512"} {
			least("bulk "+way+" over "+p.name+"'s", ratio(ours, way, p, way), 1)
		}
	}
}

// policy measures the address policy at its dearest: the last row of a table,
// and what no row covers.
func policy(say func(string, float64, float64)) {
	for _, text := range []string{"8.8.8.8", "240.0.0.1", "2606:4700::1111", "ff0e::1"} {
		a := netip.MustParseAddr(text)
		best, allocs := math.Inf(1), int64(0)
		for range 3 { // the function itself, not what else the machine does
			r := testing.Benchmark(func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					addrpolicy.Classify(a) // Loop keeps it from being left out
				}
			})
			best, allocs = min(best, float64(r.T.Nanoseconds())/float64(r.N)), r.AllocsPerOp()
		}
		say("policy of "+text+", ns", best, 60)
		say("policy of "+text+", allocations", float64(allocs), 0)
	}
}
