package cli

import (
	"flag"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
)

// shells write completions of verbs, which a test may give others than ours.
var shells = map[string]func(io.Writer, []described){"bash": writeBash, "zsh": writeZsh, "fish": writeFish}

// described is a verb with all that completions and manual pages tell of it.
type described struct {
	verb
	flags []option
	operand
}

func describeAll() []described {
	var all []described
	words := operands()
	for _, v := range verbs() {
		all = append(all, described{v, v.flags(), words[v.name]})
	}
	return all
}

func completionVerb(c *call, args []string) (int, error) {
	rest, err := c.parse("completion", args, func(*flag.FlagSet) {})
	if err != nil {
		return 0, err
	}
	names := slices.Sorted(maps.Keys(shells))
	if len(rest) != 1 || !slices.Contains(names, rest[0]) {
		return 0, reason.New(reason.Usage, "completion takes the name of a shell: %s", strings.Join(names, ", "))
	}
	shells[rest[0]](c.stdout, describeAll())
	return 0, nil
}

func names(all []described) string {
	var list []string
	for _, d := range all {
		list = append(list, d.name)
	}
	return strings.Join(list, " ")
}

// valued are the flags that take a value, spelled in both ways that there are.
func (d described) valued() string {
	var list []string
	for _, o := range d.flags {
		if o.value != "" {
			list = append(list, "--"+o.name, "-"+o.name)
		}
	}
	return strings.Join(list, " ")
}

// firsts and seconds are the words that are known beforehand.
func (d described) firsts() string {
	if d.first == nil {
		return ""
	}
	return strings.Join(d.first(), " ")
}

func (d described) seconds(do func(topic, words string)) {
	for _, topic := range slices.Sorted(maps.Keys(d.second)) {
		do(topic, strings.Join(d.second[topic], " "))
	}
}

// quote puts text into the single quotes of bash and zsh.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
