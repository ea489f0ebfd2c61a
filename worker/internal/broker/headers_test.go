package broker

import (
	"strings"
	"testing"
)

// Every rule holds for every spelling that an upstream may fold to its name,
// and for no other name.
func TestHeaderSpellings(t *testing.T) {
	for _, set := range []headerSet{overrides, requestDrops, responseDrops, ownHeaders, hostDrops, hostCredentials, hostResponseDrops} {
		for _, r := range set.rules {
			name, wild := strings.CutSuffix(r.name, "*")
			if len(name) > 64 || name != strings.ToLower(name) {
				t.Errorf("%q would not be found", r.name)
			}
			names := []string{name}
			if wild {
				names = []string{name, name + "x", name + strings.Repeat("x", 100)}
			}
			for _, n := range names {
				under := strings.ReplaceAll(n, "-", "_")
				for _, spelling := range []string{n, strings.ToUpper(n), under, strings.ToUpper(under)} {
					if !set.has(spelling) {
						t.Errorf("%q passes rule %q", spelling, r.name)
					}
				}
			}
		}
		for _, other := range []string{"", "accept", "x", strings.Repeat("authorization", 6), "authorization" + strings.Repeat("-", 60)} {
			if set.has(other) {
				t.Errorf("%q is dropped", other)
			}
		}
	}
}
