package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kind says what a record holds.
type Kind byte

const (
	RecEnd   Kind = iota // the last record: without it the stream was cut
	RecArg               // one argument
	RecEnv               // one NAME=value
	RecStep              // name NUL state NUL evidence
	RecKey               // the boot key, 32 bytes
	RecDrain             // milliseconds, decimal
	lastKind = RecDrain
)

// Record is one typed value. Unlike a line it can hold any byte.
type Record struct {
	Kind  Kind
	Value string
}

// MaxRecords bounds an encoded list. Linux gives a program at most 6 MiB of
// arguments and environment.
const MaxRecords = 8 << 20

// EncodeRecords spells the records and closes them with RecEnd: per record a
// kind byte, a length of 4 bytes big endian, the value.
func EncodeRecords(records []Record) []byte {
	var out []byte
	for _, r := range append(records[:len(records):len(records)], Record{Kind: RecEnd}) {
		out = append(out, byte(r.Kind))
		out = binary.BigEndian.AppendUint32(out, uint32(len(r.Value)))
		out = append(out, r.Value...)
	}
	return out
}

// DecodeRecords reads what EncodeRecords wrote, to the last byte.
func DecodeRecords(b []byte) ([]Record, error) {
	if len(b) > MaxRecords {
		return nil, fmt.Errorf("%d bytes of records are over the limit", len(b))
	}
	var records []Record
	for {
		if len(b) < 5 {
			return nil, errors.New("the records are cut off")
		}
		kind, size := Kind(b[0]), binary.BigEndian.Uint32(b[1:5])
		b = b[5:]
		if kind > lastKind {
			return nil, fmt.Errorf("unknown kind of record %d", kind)
		}
		if uint64(size) > uint64(len(b)) {
			return nil, errors.New("a record is cut off")
		}
		if kind == RecEnd {
			if size != 0 || len(b) != 0 {
				return nil, errors.New("bytes after the last record")
			}
			return records, nil
		}
		records = append(records, Record{kind, string(b[:size])})
		b = b[size:]
	}
}
