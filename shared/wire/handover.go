package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// StepState is how a boot step ended.
type StepState string

const (
	StepDone    StepState = "done"    // and read back
	StepAbsent  StepState = "absent"  // there is nothing to do here
	StepRefused StepState = "refused" // the system does not let us
	StepFailed  StepState = "failed"  // done, yet what was read back differs
	StepSkipped StepState = "skipped" // switched off by a setting
)

// Step is one boot step of the supervisor as it ended.
type Step struct {
	Name     string
	State    StepState
	Evidence string // what was read back, in words; no value of the environment
}

// Handover is what a worker gets from the supervisor on fd 6, once.
type Handover struct {
	BootKey [32]byte      // seals the grants at rest; lives as long as the supervisor
	Env     []string      // the container's own environment, NAME=value, keys among it
	Steps   []Step        // in boot order
	Drain   time.Duration // whole budget from the first stop signal to the exit
}

// EncodeHandover spells h.
func EncodeHandover(h Handover) []byte {
	records := []Record{
		{RecKey, string(h.BootKey[:])},
		{RecDrain, strconv.FormatInt(h.Drain.Milliseconds(), 10)},
	}
	for _, s := range h.Steps {
		records = append(records, StepRecord(s))
	}
	for _, e := range h.Env {
		records = append(records, Record{RecEnv, e})
	}
	return EncodeRecords(records)
}

// DecodeHandover reads what EncodeHandover wrote.
func DecodeHandover(b []byte) (Handover, error) {
	records, err := DecodeRecords(b)
	if err != nil {
		return Handover{}, err
	}
	var h Handover
	if len(records) < 2 || records[0].Kind != RecKey || records[1].Kind != RecDrain {
		return Handover{}, errors.New("the handover does not begin with key and drain")
	}
	if copy(h.BootKey[:], records[0].Value) != 32 || len(records[0].Value) != 32 {
		return Handover{}, errors.New("the boot key is not of 32 bytes")
	}
	ms := records[1].Value
	if !isNumber(ms, 9) {
		return Handover{}, errors.New("the drain budget is not a number")
	}
	n, _ := strconv.Atoi(ms)
	h.Drain = time.Duration(n) * time.Millisecond
	for _, r := range records[2:] {
		switch {
		case r.Kind == RecStep && len(h.Env) == 0:
			s, err := ParseStep(r)
			if err != nil {
				return Handover{}, err
			}
			h.Steps = append(h.Steps, s)
		case r.Kind == RecEnv:
			h.Env = append(h.Env, r.Value)
		default:
			return Handover{}, fmt.Errorf("a record of kind %d is out of place", r.Kind)
		}
	}
	return h, nil
}

// StepRecord spells a step as a record.
func StepRecord(s Step) Record {
	return Record{RecStep, s.Name + "\x00" + string(s.State) + "\x00" + s.Evidence}
}

// ParseStep reads a record of StepRecord.
func ParseStep(r Record) (Step, error) {
	part := strings.Split(r.Value, "\x00")
	if r.Kind != RecStep || len(part) != 3 || part[0] == "" {
		return Step{}, errors.New("malformed boot step")
	}
	s := Step{part[0], StepState(part[1]), part[2]}
	switch s.State {
	case StepDone, StepAbsent, StepRefused, StepFailed, StepSkipped:
		return s, nil
	}
	return Step{}, errors.New("a boot step in an unknown state")
}
