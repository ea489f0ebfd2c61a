package cli

import (
	"bytes"
	goflag "flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/shared/reason"
)

var update = goflag.Bool("update", false, "rewrite the golden files")

// few are verbs with a flag of every kind, and words of every kind.
func few() []described {
	return []described{
		{verb{name: "run", args: "[flags] -- CMD ARG…", help: "run a command (it's boxed)"}, []option{
			{name: "again", value: "PATTERN[:PORT]", usage: "more of `it`: \\ [x]", again: true},
			{name: "dir", value: "FOLDER", usage: ".hidden at the start"},
			{name: "engine", value: "ENGINE", usage: "which", fallback: "auto", of: []string{"auto", "claude"}},
			{name: "dry-run", usage: "build none"},
			{name: "spec", value: "FILE", usage: "~ read it ^"},
		}, operand{command: true}},
		{verb{name: "kill", args: "BOX", help: "end a box"}, nil, operand{boxes: true}},
		{verb{name: "why", args: "TOPIC WORD", help: "explain"}, []option{{name: "engine", value: "ENGINE", usage: "for it"}},
			operand{first: func() []string { return []string{"path", "reason"} }, second: map[string][]string{"path": nil, "reason": {"usage", "system"}}}},
		{verb{name: "version", help: "print the build, with quite a number of words so that a line of the page's source has to be ended"}, nil, operand{}},
	}
}

func golden(t *testing.T, name string, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it): %v; got\n%s", path, err, got)
	}
}

// The golden files are of verbs that are not ours, for ours change.
func TestCompletionsAndPagesGolden(t *testing.T) {
	for name, write := range shells {
		var b bytes.Buffer
		write(&b, few())
		golden(t, "completion."+name, b.String())
	}
	type settings struct {
		A string `envconfig:"OMB_A" default:"1" means:"a setting"`
		B string `envconfig:"OMB_B" means:"another"`
	}
	var b bytes.Buffer
	writeMan(&b, few(), reflect.TypeFor[settings](), []reason.Row{{Code: "no-such", Exit: 100, Means: "it is not there", Hint: "look"}})
	golden(t, "botbox.1", b.String())
	b.Reset()
	writeManOf(&b, few()[0])
	golden(t, "botbox-run.1", b.String())
}

// Every verb can be asked for its flags, and does nothing else then.
func TestEveryVerbAndFlagIsDescribed(t *testing.T) {
	all := describeAll()
	if len(all) != len(verbs()) {
		t.Fatalf("%d verbs", len(all))
	}
	var pages bytes.Buffer
	writers := map[string]func(io.Writer){"pages": func(w io.Writer) {
		writeMan(w, all, reflect.TypeFor[Settings](), reason.All())
		for _, d := range all {
			writeManOf(w, d)
		}
	}}
	for name, write := range shells {
		writers[name] = func(w io.Writer) { write(w, all) }
	}
	for name, write := range writers {
		pages.Reset()
		write(&pages)
		text := strings.ReplaceAll(pages.String(), `\-`, "-")
		for _, d := range all {
			if !strings.Contains(text, d.name) {
				t.Errorf("%s: no verb %s", name, d.name)
			}
			for _, o := range d.flags {
				if !strings.Contains(text, "--"+o.name) && !strings.Contains(text, "-l "+o.name+" ") {
					t.Errorf("%s: no flag --%s of %s", name, o.name, d.name)
				}
				for _, value := range o.of {
					if name != "pages" && !strings.Contains(text, value) {
						t.Errorf("%s: no value %s of --%s", name, value, o.name)
					}
				}
			}
		}
	}
	flags := 0
	for _, d := range all {
		flags += len(d.flags)
	}
	if flags < 25 {
		t.Errorf("control: %d flags in all", flags)
	}
}

// A verb whose words are described is one.
func TestOperandsAreVerbs(t *testing.T) {
	names := strings.Join(verbNames(), " ") + " "
	for name := range operands() {
		if !strings.Contains(names, name+" ") {
			t.Errorf("there is no verb %s", name)
		}
	}
}

func TestRoff(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", `a\b`: `a\eb`, "--x": `\-\-x`, "it's": `it\(aqs`, "`": `\(ga`, "~^": `\(ti\(ha`, "…": `\[u2026]`, ".x": ".x",
	} {
		if got := roff(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	var b bytes.Buffer
	page{&b}.lines(".a " + strings.Repeat("word ", 15) + ".b " + strings.Repeat("word ", 15))
	for line := range strings.Lines(b.String()) {
		if line[0] == '.' || line[0] == '\'' || len(line) > width+4 {
			t.Errorf("a line that is a request, or too long: %q", line)
		}
	}
}
