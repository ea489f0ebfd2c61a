package spec

import "testing"

func BenchmarkDecode(b *testing.B) {
	text := []byte(whole)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(text); err != nil {
			b.Fatal(err)
		}
	}
}
