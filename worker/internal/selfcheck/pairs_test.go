package selfcheck

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// drawn is how many pairs a run draws. Each takes as long as a self-check.
const drawn = 20

// Two protections fewer fail what the one and the other guard, and nothing
// else: which that is the run declares from the same rows as for each alone. A
// pair of which one undoes the other is refused by name. The pairs are others
// in every run; BOTBOX_PAIRS=SEED draws them again, and BOTBOX_PAIRS=all takes
// them all.
func TestPairsOfMutationsFailTheUnion(t *testing.T) {
	var pairs []string
	names := mutationNames()
	for i, a := range names {
		for _, b := range names[i+1:] {
			pairs = append(pairs, a+","+b)
		}
	}
	if wish := os.Getenv("BOTBOX_PAIRS"); wish != "all" {
		seed, err := strconv.ParseUint(wish, 10, 64)
		if err != nil {
			seed = uint64(time.Now().UnixNano())
		}
		t.Logf("BOTBOX_PAIRS=%d draws these pairs again", seed)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
		pairs = pairs[:min(drawn, len(pairs))]
	}
	rows, tried := probesTable(t), 0
	for _, pair := range pairs {
		r, code := checked(t, built(t), rig.Ordinary(t), "--mutate", pair, "--profile", "full")
		if code == 100 && strings.Contains(strings.Join(r.Warnings, ""), "cannot be in one box") {
			continue
		}
		tried++
		failed := slices.Sorted(slices.Values(r.Failed))
		if code != 1 || len(failed) == 0 || !slices.Equal(failed, r.Declared) {
			t.Errorf("%s: exit %d, failed %v, declared %v; %v", pair, code, failed, r.Declared, r.Warnings)
		}
		for _, id := range r.Declared {
			row := rows[slices.IndexFunc(rows, func(r row) bool { return r.ID == id })]
			if !slices.ContainsFunc(row.BrokenBy, func(name string) bool { return slices.Contains(strings.Split(pair, ","), name) }) {
				t.Errorf("%s: %s is declared, and broken by %v", pair, id, row.BrokenBy)
			}
		}
	}
	if tried < len(pairs)*3/4 {
		t.Errorf("only %d of %d pairs could be tried", tried, len(pairs))
	}
}

// probesTable is what boxprobe says of its checks.
func probesTable(t *testing.T) (rows []row) {
	t.Helper()
	out, err := exec.Command(filepath.Join(built(t), "boxprobe"), "--list").Output()
	if err == nil {
		err = json.Unmarshal(out, &rows)
	}
	if err != nil || len(rows) < 29 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	return rows
}
