package reason

import (
	"errors"
	"fmt"
	"io"
)

// Code names one cause, for machines and for `botbox why reason CODE`. Codes
// are stable: they are never reused for another cause.
type Code string

// Exit statuses of our own making (DESIGN §6). Everything else is the engine's.
const (
	ExitAgain        = 75  // a plain command of the supervisor's wants to be started again
	ExitUsage        = 100 // wrong use or configuration: trying again is useless
	ExitSystem       = 111 // the system refused: trying again may help
	ExitNoBox        = 125 // the box could not be built
	ExitNotRunnable  = 126 // the command was found but could not be run
	ExitNotFound     = 127 // the command was not found
	ExitSignalOffset = 128 // a command killed by signal n ends with 128+n
)

// Row is one line of the table.
type Row struct {
	Code  Code
	Exit  int    // the exit status of a program that ends for this reason
	Means string // one sentence, no full stop
	Hint  string // what the reader can do; New's callers may give a closer one
}

// Error is a failure with a stable code. Its text is one sentence; the hint
// and the code are printed on lines of their own.
type Error struct {
	Code Code
	What string // what failed, in words
	Hint string // what to do; empty means the table's hint
	Err  error  // the cause, if there is one
}

// New makes an error with a code of the table. It panics on any other code,
// for a code outside the table would be one that nobody can look up.
func New(code Code, format string, args ...any) *Error {
	if _, ok := Lookup(code); !ok {
		panic("reason: code not in the table: " + string(code))
	}
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, What: err.Error(), Err: errors.Unwrap(err)}
}

// WithHint replaces the table's hint with a closer one.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// Error gives the sentence without hint and code.
func (e *Error) Error() string { return e.What }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Lookup finds a code's row.
func Lookup(code Code) (Row, bool) {
	for _, row := range table {
		if row.Code == code {
			return row, true
		}
	}
	return Row{}, false
}

// All gives the table in its own order.
func All() []Row { return append([]Row(nil), table...) }

// Of gives the reason behind err. An error without one is Internal.
func Of(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Internal, What: err.Error(), Err: err}
}

// Exit gives the exit status of a program that ends because of err.
func Exit(err error) int {
	if err == nil {
		return 0
	}
	row, _ := Lookup(Of(err).Code)
	return row.Exit
}

// Fault is an error as all our interfaces spell it.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

// FaultOf gives err's fault.
func FaultOf(err error) Fault {
	e := Of(err)
	return Fault{Code: string(e.Code), Message: err.Error(), Hint: e.hint()}
}

func (e *Error) hint() string {
	if e.Hint != "" {
		return e.Hint
	}
	row, _ := Lookup(e.Code)
	return row.Hint
}

// Print writes err as a person reads it: what failed, what to do, the code.
func Print(w io.Writer, program string, err error) {
	e := Of(err)
	fmt.Fprintf(w, "%s: %s\n", program, err)
	if hint := e.hint(); hint != "" {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
	fmt.Fprintf(w, "reason: %s\n", e.Code)
}
