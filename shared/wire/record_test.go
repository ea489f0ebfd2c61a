package wire

import (
	"bytes"
	"reflect"
	"testing"
	"time"
)

func sample() Handover {
	h := Handover{Drain: 4 * time.Second,
		Steps: []Step{{"account", StepDone, "user 5"}, {"fly", StepAbsent, ""}},
		Env:   []string{"A=1", "B=x\ny\x00z", "odd"}}
	copy(h.BootKey[:], "\x00\x01key")
	return h
}

func TestHandoverRoundTrip(t *testing.T) {
	b := EncodeHandover(sample())
	got, err := DecodeHandover(b)
	if err != nil || !reflect.DeepEqual(got, sample()) {
		t.Errorf("%v %v", got, err)
	}
	for n := range b { // a pipe that ended early
		if _, err := DecodeHandover(b[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are taken", n, len(b))
		}
	}
	if _, err := DecodeHandover(append(b, 0)); err == nil {
		t.Error("a byte too many is taken")
	}
}

func TestHandoverRefuses(t *testing.T) {
	key := Record{RecKey, string(make([]byte, 32))}
	drain := Record{RecDrain, "4000"}
	for name, c := range map[string]struct {
		records []Record
		good    bool
	}{
		"whole":       {[]Record{key, drain}, true},
		"short key":   {[]Record{{RecKey, "x"}, drain}, false},
		"no key":      {[]Record{drain}, false},
		"drain":       {[]Record{key, {RecDrain, "-1"}}, false},
		"two keys":    {[]Record{key, drain, key}, false},
		"argument":    {[]Record{key, drain, {RecArg, "x"}}, false},
		"step state":  {[]Record{key, drain, {RecStep, "a\x00odd\x00"}}, false},
		"step fields": {[]Record{key, drain, {RecStep, "a\x00done"}}, false},
		"step last":   {[]Record{key, drain, {RecEnv, "A=1"}, {RecStep, "a\x00done\x00"}}, false},
	} {
		if _, err := DecodeHandover(EncodeRecords(c.records)); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeHandover(f *testing.F) {
	f.Add(EncodeHandover(sample()))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHandover(b)
		if err == nil && !bytes.Equal(EncodeHandover(h), b) {
			t.Errorf("%q is not canonical", b)
		}
	})
}

func TestStartSpec(t *testing.T) {
	want := StartSpec{Argv: []string{"sh", "-c", "", "exit 7\n"}, Dir: "/work", Env: []string{"A=1", "B="}}
	b, err := EncodeStartSpec(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeStartSpec(b); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v", got, err)
	}
	for name, s := range map[string]StartSpec{
		"no command": {Dir: "/"}, "empty command": {Argv: []string{""}, Dir: "/"}, "relative": {Argv: []string{"a"}, Dir: "x"},
		"NUL": {Argv: []string{"a\x00b"}, Dir: "/"}, "nameless": {Argv: []string{"a"}, Dir: "/", Env: []string{"=1"}},
	} {
		if _, err := EncodeStartSpec(s); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for _, text := range []string{"", "\x00", "bbx-start/1\x00/\x001\x00", "bbx-start/1\x00/\x002\x00a\x00", "bbx-start/1\x00/\x0001\x00a\x00",
		"bbx-start/2\x00/\x001\x00a\x00", "bbx-start/1\x00/\x001\x00a"} {
		if _, err := DecodeStartSpec([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func FuzzDecodeStartSpec(f *testing.F) {
	f.Add([]byte("bbx-start/1\x00/w\x002\x00sh\x00-c\x00A=1\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeStartSpec(b)
		if err != nil {
			return
		}
		if back, err := EncodeStartSpec(s); err != nil || !bytes.Equal(back, b) {
			t.Errorf("%q became %q, %v", b, back, err)
		}
	})
}
