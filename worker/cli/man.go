package cli

import (
	"flag"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
)

// manVerb prints a page for man(1): botbox man run >botbox-run.1.
func manVerb(c *call, args []string) (int, error) {
	rest, err := c.parse("man", args, func(*flag.FlagSet) {})
	if err != nil {
		return 0, err
	}
	if len(rest) > 1 {
		return 0, reason.New(reason.Usage, "man takes the name of one verb")
	}
	all := describeAll()
	if len(rest) == 0 {
		writeMan(c.stdout, all, reflect.TypeFor[Settings](), reason.All())
		return 0, nil
	}
	for _, d := range all {
		if d.name == rest[0] {
			writeManOf(c.stdout, d)
			return 0, nil
		}
	}
	return 0, reason.New(reason.Usage, "there is no verb %q", rest[0])
}

// roff makes text that no formatter reads anything into.
func roff(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// width is where lines of a page's source end, for those who read it.
const width = 78

// lines writes text that may begin with anything: a line that begins with a
// full stop would be a request.
func (p page) lines(text string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		word = roff(word)
		if line != "" && len(line)+1+len(word) <= width {
			line += " " + word
			continue
		}
		if line != "" {
			fmt.Fprintln(p, line)
		}
		if line = word; line[0] == '.' {
			line = `\&` + line
		}
	}
	fmt.Fprintln(p, line)
}

// page writes roff in man(7)'s macros.
type page struct{ io.Writer }

// title leaves the date out: a page is as old as its build.
func (p page) title(name string) {
	fmt.Fprintf(p, ".TH %s 1 \"\" \"botbox %s\" \"botbox\"\n", strings.ToUpper(roff(name)), roff(wire.Build))
}

func (p page) section(name string) { fmt.Fprintf(p, ".SH %s\n", name) }

func (p page) item(head, text string) {
	fmt.Fprintf(p, ".TP\n\\fB%s\\fR\n", roff(head))
	p.lines(text)
}

func (p page) synopsis(name, words string) {
	fmt.Fprintln(p, strings.TrimSpace("\\fB"+roff(name)+"\\fR "+roff(words)))
}

func writeMan(w io.Writer, all []described, settings reflect.Type, reasons []reason.Row) {
	p := page{w}
	p.title("botbox")
	p.section("NAME")
	p.lines("botbox - run a command in a box with no way out, no secrets and nobody else's files")
	p.section("SYNOPSIS")
	for i, d := range all {
		if i > 0 {
			fmt.Fprintln(p, ".br")
		}
		p.synopsis("botbox "+d.name, d.args)
	}
	p.section("VERBS")
	for _, d := range all {
		p.item(d.name, d.help+".")
	}
	p.section("ENVIRONMENT")
	for i := range settings.NumField() {
		tag := settings.Field(i).Tag
		text := tag.Get("means")
		if fallback := tag.Get("default"); fallback != "" {
			text += " (default: " + fallback + ")"
		}
		p.item(tag.Get("envconfig"), text+".")
	}
	p.exits()
	p.section("REASONS")
	p.lines("What goes wrong is told on stderr as three lines: botbox: what, hint: what to do, reason: one of these.")
	for _, row := range reasons {
		p.item(string(row.Code), row.Means+"; "+row.Hint+" (exit status "+strconv.Itoa(row.Exit)+").")
	}
	p.seeAlso(all, "")
}

func (p page) exits() {
	p.section("EXIT STATUS")
	p.lines("A boxed command's own; 128+n when signal n ended it. Of botbox itself:")
	for _, row := range []struct {
		status int
		means  string
	}{
		{reason.ExitUsage, "wrong use or configuration: trying again is useless"},
		{reason.ExitSystem, "the system refused: trying again may help"},
		{reason.ExitNoBox, "the box could not be built"},
		{reason.ExitNotRunnable, "the command was found but could not be run"},
		{reason.ExitNotFound, "the command was not found"},
	} {
		p.item(strconv.Itoa(row.status), row.means+".")
	}
}

func (p page) seeAlso(all []described, but string) {
	p.section("SEE ALSO")
	var list []string
	for _, d := range all {
		if d.name != but {
			list = append(list, `\fBbotbox\-`+roff(d.name)+`\fR(1)`)
		}
	}
	fmt.Fprintln(p, strings.Join(list, ",\n"))
}

func writeManOf(w io.Writer, d described) {
	p := page{w}
	p.title("botbox-" + d.name)
	p.section("NAME")
	p.lines("botbox-" + d.name + " - " + d.help)
	p.section("SYNOPSIS")
	p.synopsis("botbox "+d.name, d.args)
	if len(d.flags) > 0 {
		p.section("OPTIONS")
	}
	for _, o := range d.flags {
		head := "\\fB" + roff("--"+o.name) + "\\fR"
		if o.value != "" {
			head += " \\fI" + roff(o.value) + "\\fR"
		}
		text := o.usage
		if o.fallback != "" {
			text += " (default: " + o.fallback + ")"
		}
		fmt.Fprintf(p, ".TP\n%s\n", head)
		p.lines(text + ".")
	}
	if d.command {
		p.exits()
	}
	p.section("SEE ALSO")
	fmt.Fprintln(p, `\fBbotbox\fR(1)`)
}
