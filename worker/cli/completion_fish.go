package cli

import (
	"fmt"
	"io"
	"strings"
)

// writeFish writes what needs fish 3.
func writeFish(w io.Writer, all []described) {
	p := func(format string, args ...any) { fmt.Fprintf(w, format, args...) }
	p(`# Completion of botbox for fish, written by: botbox completion fish

function __botbox_valued -a verb
	switch $verb
`)
	for _, d := range all {
		if d.valued() != "" {
			p("\tcase %s\n\t\tprintf '%%s\\n' %s\n", d.name, d.valued())
		}
	}
	p(`	end
end

# The verb, then the words before the cursor that are neither flags nor their values.
function __botbox_words
	set -l words (commandline -opc)
	set -e words[1]
	set -l verb run
	if not set -q words[1]
		string match -q -- '-*' (commandline -ct); or set verb none
	else if not string match -q -- '-*' $words[1]
		set verb $words[1]
		set -e words[1]
	end
	set -l valued (__botbox_valued $verb)
	while set -q words[1]
		set -l flag $words[1]
		string match -q -- '-*' $flag; or break
		set -e words[1]
		test "$flag" = --; and break
		contains -- $flag $valued; and set -e words[1]
	end
	printf '%%s\n' $verb $words
end

# __botbox_at VERB N [FIRST]: this is the Nth of its own words, after FIRST
function __botbox_at
	set -l words (__botbox_words)
	test "$words[1]" = $argv[1]; and test (count $words) -eq (math $argv[2] + 1); or return
	not set -q argv[3]; or test "$words[2]" = $argv[3]
end

function __botbox_after
	set -l words (__botbox_words)
	test "$words[1]" = $argv[1]; and test (count $words) -gt 1
end

complete -c botbox -f
`)
	for _, d := range all {
		p("complete -c botbox -n '__botbox_at none 0' -a %s -d %s\n", d.name, fishQuote(d.help))
	}
	for _, d := range all {
		for _, o := range d.flags {
			p("complete -c botbox -n '__botbox_at %s 0' -l %s%s -d %s\n", d.name, o.name, fishValue(o), fishQuote(o.usage))
		}
		writeFishWords(p, d)
	}
}

func fishQuote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}

func fishValue(o option) string {
	switch {
	case o.value == "":
		return ""
	case len(o.of) > 0:
		return " -xa " + fishQuote(strings.Join(o.of, " "))
	case o.folder():
		return " -xa '(__fish_complete_directories)'"
	case o.file():
		return " -rF"
	}
	return " -x"
}

func writeFishWords(p func(string, ...any), d described) {
	at := func(words string, then ...string) {
		p("complete -c botbox -n '__botbox_at %s %d %s' %s\n", d.name, len(then), strings.Join(then, " "), words)
	}
	switch {
	case d.command:
		at("-a '(__fish_complete_command)'")
		p("complete -c botbox -n '__botbox_after %s' -F\n", d.name)
	case d.boxes:
		at(`-a "(botbox ps 2>/dev/null | sed '1d; s/ .*//')"`)
	case d.first != nil:
		at("-a " + fishQuote(d.firsts()))
		d.seconds(func(topic, words string) {
			if words == "" {
				at("-F", topic)
			} else {
				at("-a "+fishQuote(words), topic)
			}
		})
	}
}
