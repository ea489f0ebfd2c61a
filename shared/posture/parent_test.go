package posture

import "testing"

func FuzzParentOf(f *testing.F) {
	f.Add("7 (a) b) S 6 7 7 0")
	f.Fuzz(func(t *testing.T, text string) { ParentOf(text) })
}

func TestParentOf(t *testing.T) {
	for text, want := range map[string]int{"7 (a) S 6 7": 6, "7 (a) S 5 (b) R 8 9": 8, "7 (a": 0, "": 0, "7 (a) S": 0} {
		if got, err := ParentOf(text); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d %v", text, got, err)
		}
	}
}
