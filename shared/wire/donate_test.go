package wire

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestDonationRoundTrip(t *testing.T) {
	want := Donation{Build: "abc123", Listeners: 3, Landlock: 7}
	got, err := ParseDonation(want.String())
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestMalformedDonations(t *testing.T) {
	for _, packet := range []string{
		"", "donate", "donate 2 b 3", "donate 2 b 3 4 5", "donate 1 b 3 4", "donate 2  3 4",
		"donate 2 b 9 0", "donate 2 b -1 0", "donate 2 b +3 0", "donate 2 b 03 0", "donate 2 b 3 0\n",
		"donate 2 b 3 1000", "donate 2 b 3 -1", "donate 2 b 3 00", "go\x00",
	} {
		if d, err := ParseDonation(packet); err == nil {
			t.Errorf("%q was taken as %+v", packet, d)
		}
	}
}

func FuzzParseDonation(f *testing.F) {
	f.Add("donate 2 dev 3 7")
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
