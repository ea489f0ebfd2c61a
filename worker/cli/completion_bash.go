package cli

import (
	"fmt"
	"io"
	"strings"
)

const bashHelpers = `# Completion of botbox for bash, written by: botbox completion bash

_botbox_of() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }

_botbox_files() {
	mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
	compopt -o filenames 2>/dev/null
}

_botbox_command() {
	if (($1 > 0)) || [[ $cur == */* ]]; then
		_botbox_files -f
	else
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	fi
}

# _botbox_value VERB FLAG: the values of a flag
_botbox_value() {
	case $1\ $2 in
`

const bashWalk = `	*) return ;;
	esac
	# Flags and their values end at -- or at the first other word.
	while ((i < COMP_CWORD)); do
		flag=${COMP_WORDS[i]}
		((++i))
		if [[ $flag == -- ]]; then
			_botbox_word "$verb" $((COMP_CWORD - i)) "${COMP_WORDS[i]}"
			return
		elif [[ $flag != -* ]]; then
			_botbox_word "$verb" $((COMP_CWORD - i + 1)) "$flag"
			return
		elif [[ " $valued " == *" $flag "* ]]; then
			if [[ ${COMP_WORDS[i]} == = ]]; then # bash makes a word of it
				if ((i == COMP_CWORD)); then cur=; else ((++i)); fi
			fi
			if ((i >= COMP_CWORD)); then
				flag=${flag#-}
				_botbox_value "$verb" "${flag#-}"
				return
			fi
			((++i))
		fi
	done
	if [[ $cur == -* ]]; then
		_botbox_of "$flags"
	else
		_botbox_word "$verb" 0 "$cur"
	fi
}

complete -F _botbox botbox
`

// writeBash writes what needs nothing but bash 4.4.
func writeBash(w io.Writer, all []described) {
	p := func(format string, args ...any) { fmt.Fprintf(w, format, args...) }
	p(bashHelpers)
	for _, d := range all {
		for _, o := range d.flags {
			switch {
			case len(o.of) > 0:
				p("\t%s) _botbox_of %s ;;\n", quote(d.name+" "+o.name), quote(strings.Join(o.of, " ")))
			case o.folder():
				p("\t%s) _botbox_files -d ;;\n", quote(d.name+" "+o.name))
			case o.file():
				p("\t%s) _botbox_files -f ;;\n", quote(d.name+" "+o.name))
			}
		}
	}
	p(`	esac
}

# _botbox_word VERB N FIRST: the words that a verb takes, N of them before this
_botbox_word() {
	case $1 in
`)
	for _, d := range all {
		writeBashWords(p, d)
	}
	p(`	esac
}

_botbox() {
	local cur=${COMP_WORDS[COMP_CWORD]} verb=run i=1 flag flags= valued=
	COMPREPLY=()
	if ((COMP_CWORD == 1)) && [[ $cur != -* ]]; then
		_botbox_of %s
		return
	fi
	if [[ ${COMP_WORDS[1]} != -* ]]; then
		verb=${COMP_WORDS[1]} i=2
	fi
	case $verb in
`, quote(names(all)))
	for _, d := range all {
		var flags []string
		for _, o := range d.flags {
			flags = append(flags, "--"+o.name)
		}
		p("\t%s) flags=%s valued=%s ;;\n", d.name, quote(strings.Join(flags, " ")), quote(d.valued()))
	}
	p(bashWalk)
}

func writeBashWords(p func(string, ...any), d described) {
	switch {
	case d.command:
		p("\t%s) _botbox_command \"$2\" ;;\n", d.name)
	case d.boxes:
		p("\t%s) (($2)) || _botbox_of \"$(\"${COMP_WORDS[0]}\" ps 2>/dev/null | sed '1d; s/ .*//')\" ;;\n", d.name)
	case d.first != nil:
		p("\t%s)\n\t\tcase $2 in\n\t\t0) _botbox_of %s ;;\n", d.name, quote(d.firsts()))
		if len(d.second) > 0 {
			p("\t\t1)\n\t\t\tcase $3 in\n")
			d.seconds(func(topic, words string) {
				if words == "" {
					p("\t\t\t%s) _botbox_files -f ;;\n", topic)
				} else {
					p("\t\t\t%s) _botbox_of %s ;;\n", topic, quote(words))
				}
			})
			p("\t\t\tesac\n\t\t\t;;\n")
		}
		p("\t\tesac\n\t\t;;\n")
	}
}
