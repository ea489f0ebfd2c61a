package wire

import "testing"

func TestDonationRoundTrip(t *testing.T) {
	want := Donation{Build: "abc123", Listeners: 3}
	got, err := ParseDonation(want.String())
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestMalformedDonations(t *testing.T) {
	for _, packet := range []string{
		"", "donate", "donate 1 b", "donate 1 b 3 4", "donate 2 b 3", "donate 1  3",
		"donate 1 b 9", "donate 1 b -1", "donate 1 b +3", "donate 1 b 03", "donate 1 b 3\n", "go",
	} {
		if d, err := ParseDonation(packet); err == nil {
			t.Errorf("%q was taken as %+v", packet, d)
		}
	}
}

func FuzzParseDonation(f *testing.F) {
	f.Add("donate 1 dev 3")
	f.Fuzz(func(t *testing.T, packet string) {
		if d, err := ParseDonation(packet); err == nil && d.String() != packet {
			t.Errorf("%q reads as %q", packet, d)
		}
	})
}
