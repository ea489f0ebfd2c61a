package wire

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestDonationRoundTrip(t *testing.T) {
	want := Donation{Build: "abc123", Listeners: 3, Spares: 2, Landlock: 7}
	got, err := ParseDonation(want.String())
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestMalformedDonations(t *testing.T) {
	for _, packet := range []string{
		"", "donate", "donate 3 b 3 0", "donate 3 b 3 0 4 5", "donate 2 b 3 0 4", "donate 3  3 0 4",
		"donate 3 b 33 0 0", "donate 3 b -1 0 0", "donate 3 b +3 0 0", "donate 3 b 03 0 0", "donate 3 b 3 0 0\n",
		"donate 3 b 3 33 0", "donate 3 b 3 -1 0", "donate 3 b 3 01 0", "donate 3 b 3 0 1000", "donate 3 b 3 0 -1", "donate 3 b 3 0 00", "go\x00",
	} {
		if d, err := ParseDonation(packet); err == nil {
			t.Errorf("%q was taken as %+v", packet, d)
		}
	}
}

func FuzzParseDonation(f *testing.F) {
	f.Add("donate 3 dev 3 1 7")
	f.Fuzz(func(t *testing.T, packet string) {
		if d, err := ParseDonation(packet); err == nil && d.String() != packet {
			t.Errorf("%q reads as %q", packet, d)
		}
	})
}

func TestAnswerRoundTrip(t *testing.T) {
	for _, want := range [][]string{{}, {"/work"}, {"/work folder", "/tmp", "/a\nb"}} {
		if got, err := ParseAnswer(Go(want)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q reads as %q, %v", want, got, err)
		}
	}
	var no Refusal
	said := Refusal{"limits-unavailable", "no group", "delegate one"}
	if _, err := ParseAnswer(No(said)); !errors.As(err, &no) || no != said {
		t.Errorf("a no reads as %v", err)
	}
}

func TestOnlyAWholeAnswerStartsTheEngine(t *testing.T) {
	for _, packet := range []string{"", "go", "go\x00/work", "gone\x00", "no\x00", "no\x00a\x00b\x00", "no\x00a\x00b\x00c\x00d\x00", "\x00go\x00", "GO\x00"} {
		if writable, err := ParseAnswer(packet); !errors.Is(err, ErrNoGo) || writable != nil {
			t.Errorf("%q was taken as go %q, %v", packet, writable, err)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add(Go([]string{"/a", ""}))
	f.Add(No(Refusal{"a", "b", "c"}))
	f.Fuzz(func(t *testing.T, packet string) {
		writable, err := ParseAnswer(packet)
		var no Refusal
		switch {
		case err == nil && Go(writable) != packet:
			t.Errorf("%q reads as go %q", packet, writable)
		case errors.As(err, &no) && No(no) != packet:
			t.Errorf("%q reads as %+v", packet, no)
		case err == nil && !strings.HasPrefix(packet, "go"):
			t.Errorf("%q starts an engine", packet)
		}
	})
}

func TestSpareOrderRoundTrip(t *testing.T) {
	for _, want := range [][2]int{{0, 0}, {1, 1}, {MaxDonated, 0}, {1, MaxDonated - 1}} {
		if v4, v6, err := ParseSpareOrder(SpareOrder(want[0], want[1])); err != nil || v4 != want[0] || v6 != want[1] {
			t.Errorf("%v reads as %d %d, %v", want, v4, v6, err)
		}
	}
	for _, packet := range []string{"", "spare", "spare 1", "spare 1 1 1", "spare 33 0", "spare 32 1", "spare -1 1", "spare 01 1", "spares 1 1", "spare 1 1\n", "go\x00"} {
		if v4, v6, err := ParseSpareOrder(packet); err == nil {
			t.Errorf("%q was taken as %d %d", packet, v4, v6)
		}
	}
}

func FuzzParseSpareOrder(f *testing.F) {
	f.Add("spare 1 1")
	f.Fuzz(func(t *testing.T, packet string) {
		if v4, v6, err := ParseSpareOrder(packet); err == nil && SpareOrder(v4, v6) != packet {
			t.Errorf("%q reads as %d %d", packet, v4, v6)
		}
	})
}
