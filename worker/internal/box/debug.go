package box

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

const (
	portFlag = "--remote-debugging-port"
	dataFlag = "--user-data-dir"
)

// Debug is a browser's debugging port that is served outside.
type Debug struct {
	Port    int    // as the command line named it; 0 = one that is free
	Profile string // the profile's folder, "" where none outlives the box
	Folder  string // where the browser keeps its data, in Profile; else ""
}

// debugSpares is how many connections to the port there can be at once: drivers
// hold one or two, and one more for each page that they look at by itself.
const debugSpares = 16

// debug looks for the debugging port in the browser's command line. A command
// line without one, such as --version, has none to serve.
func (p *Plan) debug(s spec.Spec) error {
	port, folder := lastFlag(p.Argv, portFlag), lastFlag(p.Argv, dataFlag)
	switch {
	case port == nil:
		return nil
	case !s.Browser.DebugPort:
		if s.Net.Mode != "shared" {
			p.Warnings = append(p.Warnings, "nobody outside the box reaches its "+portFlag+": --debug-port (browser.debug_port in a spec) serves it")
		}
		return nil
	}
	n, err := strconv.ParseUint(*port, 10, 16)
	if err != nil || strconv.FormatUint(n, 10) != *port || n > 0 && n < 1024 || int(n) == p.Ports.SOCKS {
		return reason.New(reason.BadSpec, "the spec is not usable: field argv: %s is neither 0 nor a port from 1024 to 65535 that no gate has", portFlag)
	}
	p.Debug = &Debug{Port: int(n)}
	p.Spares.V4 = debugSpares
	if s.Browser.Profile != nil {
		p.Debug.Profile = *s.Browser.Profile
		if folder != nil && filepath.IsAbs(*folder) && filepath.Clean(*folder) == *folder && within(*folder, p.Debug.Profile) {
			p.Debug.Folder = *folder
		}
	}
	return nil
}

// SetDebugPort writes the number that the port has outside into the browser's
// command line.
func (p *Plan) SetDebugPort(n int) {
	for i, word := range flagsOf(p.Argv) {
		if flagOf(word) == portFlag {
			p.Argv[1+i] = portFlag + "=" + strconv.Itoa(n)
		}
	}
}

// flagsOf are the words that Chrome looks for flags in.
func flagsOf(argv []string) []string {
	words := argv[1:]
	if end := slices.IndexFunc(words, func(word string) bool { return flagOf(word) == "--" }); end >= 0 {
		words = words[:end]
	}
	return words
}

// lastFlag gives the value of the last flag of this name, which is the one that
// Chrome takes; nil if there is none.
func lastFlag(argv []string, name string) (value *string) {
	for _, word := range flagsOf(argv) {
		if flagOf(word) == name {
			_, text, _ := strings.Cut(strings.Trim(word, " \t\n\v\f\r"), "=")
			value = &text
		}
	}
	return value
}
