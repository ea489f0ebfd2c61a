package hostport

import (
	"slices"
	"strings"
	"testing"
)

func hosts(t testing.TB, text string) (all []Host) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		h, err := Parse(word)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	return all
}

func patterns(t testing.TB, text string) (all []Pattern) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		p, err := ParsePattern(word)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func spell(list []Pattern) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = p.String()
	}
	return strings.Join(words, " ")
}

func TestCover(t *testing.T) {
	for _, c := range []struct{ hosts, known, want string }{
		{"", "", ""},
		{"", "*.example.com", ""},
		{"b.example:443 a.example:443", "", "a.example:443 b.example:443"},
		{"a.example:443 a.example:443", "", "a.example:443"},
		{"a.example:80 a.example:443", "", "a.example:443 a.example:80"},
		{"a.example:443 b.c.example:80", "*.c.example", "*.c.example a.example:443"},
		{"c.example:80", "*.c.example", "c.example:80"},
		{"a.c.example:80 b.c.example:80", "*.c.example a.c.example", "*.c.example"},
		{"a.c.example:80", "*.c.example a.c.example a.c.example:80", "a.c.example:80"},
		{"x.b.c.example:80", "*.c.example *.b.c.example", "*.b.c.example"},
		{"a.example:80 a.example:81", "a.example:80 a.example", "a.example"},
		{"a.example:80", "a.example a.example", "a.example"},
		{"A.Example.:80", "", "a.example:80"},
		{"[2600::1]:443 8.8.8.8:53 [::ffff:8.8.8.8]:53", "8.8.8.8", "8.8.8.8 [2600::1]:443"},
	} {
		if got := spell(Cover(hosts(t, c.hosts), patterns(t, c.known))); got != c.want {
			t.Errorf("%q with %q: %q, want %q", c.hosts, c.known, got, c.want)
		}
	}
}

// The list suffices, is no wider than what was seen or known, and no entry of
// it can be left out. Its spelling is read back as the same list.
func FuzzCover(f *testing.F) {
	f.Add("a.example:443 b.c.example:80", "*.c.example a.example")
	f.Add("x.y.z.example:1 [2600::1]:2 8.8.8.8:3", "*.z.example *.y.z.example [2600::1] 8.8.8.8:3")
	f.Fuzz(func(t *testing.T, hostText, knownText string) {
		var seen []Host
		for _, word := range strings.Fields(hostText) {
			if h, err := Parse(word); err == nil && len(seen) < 20 {
				seen = append(seen, h)
			}
		}
		var known []Pattern
		for _, word := range strings.Fields(knownText) {
			if p, err := ParsePattern(word); err == nil && len(known) < 20 {
				known = append(known, p)
			}
		}
		list := Cover(seen, known)
		covers := func(list []Pattern) bool {
			return !slices.ContainsFunc(seen, func(h Host) bool {
				return !slices.ContainsFunc(list, func(p Pattern) bool { return p.Match(h) })
			})
		}
		if !covers(list) {
			t.Fatalf("%q does not cover %v", spell(list), seen)
		}
		for i, p := range list {
			if covers(slices.Delete(slices.Clone(list), i, i+1)) {
				t.Errorf("%q can do without %s", spell(list), p)
			}
			if !slices.Contains(known, p) && !slices.Contains(seen, p.host) {
				t.Errorf("%s is neither seen nor known", p)
			}
			if again, err := ParsePattern(p.String()); err != nil || again != p {
				t.Errorf("%s is read back as %v, %v", p, again, err)
			}
		}
		if text := spell(list); spell(Cover(seen, list)) != text {
			t.Errorf("%q is not the end of it", text)
		}
	})
}
