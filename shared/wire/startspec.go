package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// StartSpec is what `botbox run --control` runs as a box. It rides a pipe: a
// command line can be longer than a frame, and its environment holds keys.
type StartSpec struct {
	Argv []string // at least the command
	Dir  string   // absolute working folder
	Env  []string // NAME=value
}

// MaxStartSpec bounds a start spec in bytes. Linux gives a program at most
// 6 MiB of arguments and environment.
const MaxStartSpec = 8 << 20

const startMagic = "bbx-start/1"

// EncodeStartSpec spells s: magic, folder, count of arguments, arguments,
// variables, each closed by a NUL. It refuses what Decode would refuse.
func EncodeStartSpec(s StartSpec) ([]byte, error) {
	fields := append([]string{startMagic, s.Dir, strconv.Itoa(len(s.Argv))}, s.Argv...)
	fields = append(fields, s.Env...)
	for _, f := range fields {
		if strings.IndexByte(f, 0) >= 0 {
			return nil, errors.New("a NUL byte in an argument, folder or variable")
		}
	}
	b := []byte(strings.Join(fields, "\x00") + "\x00")
	_, err := DecodeStartSpec(b)
	return b, err
}

// DecodeStartSpec reads what EncodeStartSpec wrote.
func DecodeStartSpec(b []byte) (StartSpec, error) {
	if len(b) > MaxStartSpec {
		return StartSpec{}, fmt.Errorf("a start spec of %d bytes is over the limit", len(b))
	}
	text, ok := strings.CutSuffix(string(b), "\x00")
	if !ok {
		return StartSpec{}, errors.New("the start spec is cut off")
	}
	f := strings.Split(text, "\x00")
	if len(f) < 4 || f[0] != startMagic {
		return StartSpec{}, errors.New("not a start spec")
	}
	if !isNumber(f[2], 6) {
		return StartSpec{}, errors.New("the count of arguments is not a number")
	}
	n, _ := strconv.Atoi(f[2])
	if n < 1 || n > len(f)-3 || f[3] == "" {
		return StartSpec{}, errors.New("the start spec names no command, or lacks arguments")
	}
	if !strings.HasPrefix(f[1], "/") {
		return StartSpec{}, errors.New("the working folder is not absolute")
	}
	s := StartSpec{Argv: f[3 : 3+n], Dir: f[1], Env: f[3+n:]}
	for _, e := range s.Env {
		if strings.IndexByte(e, '=') < 1 {
			return StartSpec{}, errors.New("a variable without a name")
		}
	}
	return s, nil
}
