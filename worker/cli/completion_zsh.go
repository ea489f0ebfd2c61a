package cli

import (
	"fmt"
	"io"
	"strings"
)

// writeZsh writes what can be sourced, or lie in a folder of $fpath as _botbox.
func writeZsh(w io.Writer, all []described) {
	p := func(format string, args ...any) { fmt.Fprintf(w, format, args...) }
	p(`#compdef botbox
# Completion of botbox for zsh, written by: botbox completion zsh

_botbox() {
	local state line verb=run
	local -A opt_args
	local -a verbs
	verbs=(
`)
	for _, d := range all {
		p("\t\t%s\n", quote(d.name+":"+d.help))
	}
	p(`	)
	if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then
		_describe verb verbs
		return
	fi
	if [[ $words[2] != -* ]]; then
		verb=$words[2]
		shift words
		((CURRENT--))
	fi
	case $verb in
`)
	for _, d := range all {
		p("\t%s)\n\t\t_arguments -S :", d.name)
		for _, o := range d.flags {
			p(" \\\n\t\t\t%s", quote(zshOption(o)))
		}
		writeZshWords(p, d)
		p("\t\t;;\n")
	}
	p(`	esac
}

if [[ $funcstack[1] == _botbox ]]; then
	_botbox "$@"
else
	compdef _botbox botbox
fi
`)
}

var zshText = strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`)

func zshOption(o option) string {
	text := "--" + o.name
	if o.again {
		text = "*" + text
	}
	usage := "[" + zshText.Replace(o.usage) + "]"
	if o.value == "" {
		return text + usage
	}
	text += "=" + usage + ":" + zshText.Replace(o.value) + ":"
	switch {
	case len(o.of) > 0:
		return text + "(" + strings.Join(o.of, " ") + ")"
	case o.folder():
		return text + "_files -/"
	case o.file():
		return text + "_files"
	}
	return text + " "
}

func writeZshWords(p func(string, ...any), d described) {
	switch {
	case d.command:
		p(" \\\n\t\t\t'*:: :_normal'\n")
	case d.boxes:
		p(" \\\n\t\t\t'1:box:->box'\n\t\t[[ $state != box ]] || compadd -- ${(f)\"$(botbox ps 2>/dev/null | sed '1d; s/ .*//')\"}\n")
	case d.first != nil:
		p(" \\\n\t\t\t%s", quote("1:word:("+d.firsts()+")"))
		if len(d.second) == 0 {
			p("\n")
			return
		}
		p(" \\\n\t\t\t'2:word:->second'\n\t\t[[ $state != second ]] || case $line[1] in\n")
		d.seconds(func(topic, words string) {
			if words == "" {
				p("\t\t%s) _files ;;\n", topic)
			} else {
				p("\t\t%s) compadd -- %s ;;\n", topic, words)
			}
		})
		p("\t\tesac\n")
	default:
		p("\n")
	}
}
