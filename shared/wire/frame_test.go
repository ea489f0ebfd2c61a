package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestFrameText(t *testing.T) {
	for want, f := range map[string]Frame{
		"1 1 hello ver=1 build=v1.2+3/x%20y%25\n": {1, 1, Hello, map[string]string{"ver": "1", "build": "v1.2+3/x y%"}},
		"4294967295 2 ping\n":                     {4294967295, 2, Ping, map[string]string{}},
		"1 3 drain seconds=3.200\n":               {1, 3, Drain, map[string]string{"seconds": "3.200"}},
		"1 4 box.signal pid=77 sig=10\n":          {1, 4, BoxSignal, map[string]string{"pid": "77", "sig": "10"}},
	} {
		got, err := Encode(ToWorker, f)
		if err != nil || string(got) != want {
			t.Errorf("encode: %q %v, want %q", got, err, want)
		}
		back, err := Decode(ToWorker, []byte(want))
		if err != nil || !reflect.DeepEqual(back, f) {
			t.Errorf("decode: %v %v, want %v", back, err, f)
		}
	}
	f, _ := Decode(ToWorker, []byte("1 3 drain seconds=3.200\n"))
	if f.Duration("seconds") != 3200*time.Millisecond || Seconds(f.Duration("seconds")) != "3.200" {
		t.Errorf("%v", f.Duration("seconds"))
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, line := range map[string]string{
		"no newline": "1 1 ping", "two lines": "1 1 ping\n\n", "empty": "\n", "epoch 0": "0 1 ping\n", "seq 0": "1 0 ping\n",
		"leading zero": "1 01 ping\n", "sign": "1 +1 ping\n", "over uint32": "1 4294967296 ping\n", "blank twice": "1  1 ping\n",
		"trailing blank": "1 1 ping \n", "carriage return": "1 1 ping\r\n", "unknown verb": "1 1 box.spawn\n",
		"other direction": "1 1 pong\n", "extra key": "1 1 ping a=1\n", "missing key": "1 1 box.signal\n", "wrong key": "1 1 hello ver=1 name=x\n",
		"order": "1 1 hello build=x ver=1\n", "twice": "1 1 hello ver=1 ver=1\n", "path": "1 1 uid.mapped lease=../x\n",
		"slash": "1 1 uid.mapped lease=a/b\n", "dot": "1 1 uid.mapped lease=.\n", "empty value": "1 1 uid.mapped lease=\n",
		"escaped name": "1 1 uid.mapped lease=a%20b\n", "needless escape": "1 1 hello ver=1 build=%41\n", "lower escape": "1 1 hello ver=1 build=%2a\n",
		"cut escape": "1 1 hello ver=1 build=%2\n", "NUL": "1 1 hello ver=1 build=%00\n", "raw byte": "1 1 hello ver=1 build=\xff\n",
		"number": "1 1 box.signal pid=7 sig=010\n", "negative": "1 1 box.signal pid=7 sig=-1\n", "seconds": "1 1 drain seconds=3\n",
		"long": "1 1 hello ver=1 build=" + strings.Repeat("x", MaxFrame) + "\n",
	} {
		if f, err := Decode(ToWorker, []byte(line)); err == nil {
			t.Errorf("%s: %v", name, f)
		}
	}
	if _, err := Decode(ToWorker, []byte("1 1 ping\n")); err != nil {
		t.Errorf("control: %v", err)
	}
}

func TestEveryRowRoundTripsAtItsLongest(t *testing.T) {
	for _, row := range Verbs() {
		if row.Why == "" {
			t.Errorf("%s has no reason", row.Verb)
		}
		args := map[string]string{}
		for _, k := range row.Keys {
			args[k.Name] = map[Form]string{Text: strings.Repeat(" ", 1024), Name: strings.Repeat("n", 128), Number: "999999", Process: "4194304", Decimal: "999999.999"}[k.Form]
		}
		f := Frame{4294967295, 4294967295, row.Verb, args}
		b, err := Encode(row.Dir, f)
		if err != nil {
			t.Errorf("%s: %v", row.Verb, err)
			continue
		}
		if back, err := Decode(row.Dir, b); err != nil || !reflect.DeepEqual(back, f) {
			t.Errorf("%s: %v", row.Verb, err)
		}
		if _, err := Encode(1-row.Dir, f); err == nil {
			t.Errorf("%s goes both ways", row.Verb)
		}
	}
}

func TestOrderRefusesGapsAndRepeats(t *testing.T) {
	o := Order{Epoch: 2}
	for _, c := range []struct {
		epoch, seq uint32
		good       bool
	}{{2, 1, true}, {2, 1, false}, {2, 3, false}, {3, 2, false}, {2, 2, true}, {2, 3, true}} {
		if err := o.Check(Frame{Epoch: c.epoch, Seq: c.seq}); (err == nil) != c.good {
			t.Errorf("%d %d: %v", c.epoch, c.seq, err)
		}
	}
}

func TestReadEnds(t *testing.T) {
	for _, c := range []struct {
		text string
		eof  bool
	}{{"", true}, {"1 1 pi", false}, {strings.Repeat("x", 9000), false}} {
		_, err := Read(NewReader(strings.NewReader(c.text)), ToWorker)
		if err == nil || errors.Is(err, io.EOF) != c.eof {
			t.Errorf("%.20q: %v", c.text, err)
		}
	}
	r := NewReader(strings.NewReader("1 1 ping\n1 2 ping\n"))
	for seq := uint32(1); seq <= 2; seq++ {
		if f, err := Read(r, ToWorker); err != nil || f.Seq != seq {
			t.Errorf("control: %v %v", f, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(uint8(0), []byte("1 1 hello ver=1 build=x%20\n"))
	f.Add(uint8(1), []byte("7 9 box.exited box=b code=137\n"))
	f.Fuzz(func(t *testing.T, dir uint8, line []byte) {
		frame, err := Decode(Direction(dir), line)
		if err != nil {
			return
		}
		back, err := Encode(Direction(dir), frame)
		if err != nil || !bytes.Equal(back, line) {
			t.Errorf("%q became %q, %v", line, back, err)
		}
	})
}
