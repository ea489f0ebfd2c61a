package cli

import (
	"errors"
	"flag"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/openmausbot/botbox/shared/boxenv"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/seccomp"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// Completions and manual pages are written from what the verbs themselves
// define: the table of verbs, and the flags that each of them parses.

// errDescribed stops a verb that has only been asked for its flags.
var errDescribed = errors.New("the flags were described")

// flags gives the flags that a verb parses, by letting it get that far. Every
// verb parses before it does anything.
func (v verb) flags() []option {
	var all []option
	c := &call{stdout: io.Discard, stderr: io.Discard, described: func(set *flag.FlagSet) {
		set.VisitAll(func(f *flag.Flag) { all = append(all, optionOf(f)) })
	}}
	if _, err := v.run(c, nil); !errors.Is(err, errDescribed) {
		panic("cli: the verb " + v.name + " does something before it parses its flags")
	}
	return all
}

// option is one flag, told to somebody.
type option struct {
	name     string
	value    string // what stands for its value; empty = it takes none
	usage    string
	fallback string   // its default, where that is worth telling
	of       []string // values that are known
	again    bool     // it can be given again and again
}

func optionOf(f *flag.Flag) option {
	o := option{name: f.Name, fallback: f.DefValue}
	o.value, o.usage = flag.UnquoteUsage(f)
	if c, ok := f.Value.(*choice); ok {
		o.of = c.of
	}
	_, o.again = f.Value.(*words)
	if o.fallback == "0" || o.fallback == "false" {
		o.fallback = ""
	}
	return o
}

// folder and file tell what completes a value.
func (o option) folder() bool { return o.value == "FOLDER" }
func (o option) file() bool   { return o.value == "FILE" || o.value == "PATH" }

// choice is a flag with values that are known. It takes others too: whoever
// uses the value judges, and knows more.
type choice struct {
	to *string
	of []string
}

func (c *choice) String() string {
	if c.to == nil {
		return "" // of package flag's own making
	}
	return *c.to
}

func (c *choice) Set(s string) error { *c.to = s; return nil }

func chooseVar(set *flag.FlagSet, to *string, name, fallback string, of []string, usage string) {
	*to = fallback
	set.Var(&choice{to, of}, name, usage)
}

// engines are what --engine takes.
func engines(first ...string) []string { return append(first, spec.Engines...) }

// operand is what a verb's own words can be.
type operand struct {
	command bool                // a command line, which is none of ours to read
	first   func() []string     // the first word
	second  map[string][]string // what can follow it; a nil list stands for files
	boxes   bool                // the first word is a running box's name
}

// operands are the verbs that take words, which come from the tables that
// explain them.
func operands() map[string]operand {
	return map[string]operand{
		"run":        {command: true},
		"browser":    {command: true},
		"kill":       {boxes: true},
		"completion": {first: func() []string { return slices.Sorted(maps.Keys(shells)) }},
		"man":        {first: verbNames},
		"why":        {first: topics, second: topicWords()},
	}
}

func verbNames() []string {
	var all []string
	for _, v := range verbs() {
		all = append(all, v.name)
	}
	return all
}

// topics are those of why.
func topics() []string {
	all := append(slices.Collect(maps.Keys(whyTopics)), "env", "host")
	slices.Sort(all)
	return all
}

func topicWords() map[string][]string {
	all := map[string][]string{"path": nil}
	for _, row := range reason.All() {
		all["reason"] = append(all["reason"], string(row.Code))
	}
	for _, row := range seccomp.All() {
		all["syscall"] = append(all["syscall"], row.Name)
	}
	for _, row := range boxenv.All() {
		if !strings.Contains(row.Name, "*") {
			all["env"] = append(all["env"], row.Name)
		}
	}
	for topic, list := range all {
		slices.Sort(list)
		all[topic] = slices.Compact(list)
	}
	return all
}
