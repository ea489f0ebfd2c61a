package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// completions are command lines, the last word unfinished, and what it may
// become: all of it, or, where the machine adds to it, some of it.
var completions = []struct {
	line  string
	some  bool
	becom []string
}{
	{"botbox ru", false, []string{"run"}},
	{"botbox c", false, []string{"check", "completion"}},
	{"botbox --eng", false, []string{"--engine"}},
	{"botbox run --eng", false, []string{"--engine"}},
	{"botbox run --dry-run --sta", false, []string{"--standalone"}},
	{"botbox run --engine cl", false, []string{"claude"}},
	{"botbox run --engine=cl", false, []string{"claude"}},
	{"botbox --engine cl", false, []string{"claude"}},
	{"botbox run --net ", false, []string{"gated", "none"}},
	{"botbox browser --net ", false, []string{"gated", "none", "shared"}},
	{"botbox run --cwd wor", false, []string{"workfolder/"}},
	{"botbox run --spec wor", true, []string{"workfile"}},
	{"botbox run --ro=wor", true, []string{"workfile"}},
	{"botbox run --bot ", false, nil},
	{"botbox run -- setpri", true, []string{"setpriv"}},
	{"botbox run --engine claude -- setpri", true, []string{"setpriv"}},
	{"botbox run -- cat --eng", false, nil},
	{"botbox run -- cat wor", true, []string{"workfile"}},
	{"botbox run cat --eng", false, nil},
	{"botbox why re", false, []string{"reason"}},
	{"botbox why reason no-bw", false, []string{"no-bwrap"}},
	{"botbox why syscall io_uring_", false, []string{"io_uring_enter", "io_uring_register", "io_uring_setup"}},
	{"botbox why --engine claude env ANTHROPIC_API", false, []string{"ANTHROPIC_API_KEY"}},
	{"botbox why path workfi", false, []string{"workfile"}},
	{"botbox man se", false, []string{"serve"}},
	{"botbox completion f", false, []string{"fish"}},
	{"botbox kill turn", false, []string{"turn-1"}},
	{"botbox ps --j", false, []string{"--json"}},
	{"botbox no-such-verb ", false, nil},
}

// completing is a place with a script, a file and a folder to complete, and a
// worker with a box.
func completing(t *testing.T, shell string) (p *place, script string, env []string) {
	needs(t, shell)
	p = newPlace(t)
	p.serve()
	cmd := p.botbox(nil, "run", "--spec", "-")
	cmd.Stdin = strings.NewReader(`{"v":1,"id":"turn-1","argv":["sh","-c","echo up; sleep 300"],"cwd":"` + p.work + `"}`)
	_, out := start(t, cmd)
	line(t, out)
	made := rig.Run(t, p.botbox(nil, "completion", shell))
	if made.Code != 0 || made.Stderr != "" {
		t.Fatalf("%+v", made)
	}
	script = filepath.Join(p.top, "completion."+shell)
	rig.Write(t, script, made.Stdout)
	rig.Write(t, filepath.Join(p.work, "workfile"), "")
	if err := os.Mkdir(filepath.Join(p.work, "workfolder"), 0o755); err != nil {
		t.Fatal(err)
	}
	return p, script, append(slices.Clone(p.env), "PATH="+p.bin+":/usr/local/bin:/usr/bin:/bin", "TERM=dumb")
}

func compare(t *testing.T, line string, some bool, got, want []string) {
	t.Helper()
	slices.Sort(got)
	got = slices.Compact(got)
	if some {
		got = slices.DeleteFunc(got, func(s string) bool { return !slices.Contains(want, s) })
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q becomes %q, want %q", line, got, want)
	}
}

// bash splits a line as it does when somebody types it: = is a word.
const bashCompletes = `source "$1"; while IFS= read -r line; do
	read -ra COMP_WORDS <<<"${line//=/ = }"; [[ $line == *' ' ]] && COMP_WORDS+=('')
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
	_botbox botbox "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
	echo "${COMPREPLY[*]}"
done`

func TestBashCompletes(t *testing.T) {
	p, script, env := completing(t, "bash")
	var lines string
	for _, c := range completions {
		lines += c.line + "\n"
	}
	cmd := rig.Command(t, p.work, env, "bash", "--norc", "-c", bashCompletes, "bash", script)
	cmd.Stdin = strings.NewReader(lines)
	out := rig.Run(t, cmd)
	answers := strings.Split(strings.TrimSuffix(out.Stdout, "\n"), "\n")
	if out.Stderr != "" || len(answers) != len(completions) {
		t.Fatalf("%d answers: %+v", len(answers), out)
	}
	for i, c := range completions {
		want := slices.Clone(c.becom)
		for n := range want { // bash itself adds the slash
			want[n] = strings.TrimSuffix(want[n], "/")
		}
		compare(t, c.line, c.some, strings.Fields(answers[i]), want)
	}
	term := onTerminal(t, rig.Command(t, p.work, env, "bash", "--norc", "-i"))
	term.send("source " + script + "\nbotbox run --engine=cl\t; echo done\n")
	term.expect("--engine=claude")
}

func TestFishCompletes(t *testing.T) {
	p, script, env := completing(t, "fish")
	for _, c := range completions {
		out := rig.Run(t, rig.Command(t, p.work, env, "fish", "--no-config", "-c", `source $argv[1]; complete -C $argv[2]`, script, c.line))
		if out.Code != 0 || out.Stderr != "" {
			t.Errorf("%q: %+v", c.line, out)
		}
		var got []string
		for line := range strings.Lines(out.Stdout) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if flag, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(flag, "--") {
				word = value
			}
			got = append(got, word)
		}
		compare(t, c.line, c.some, got, c.becom)
	}
}

// zsh completes on a terminal only.
func TestZshCompletes(t *testing.T) {
	p, script, env := completing(t, "zsh")
	if out := rig.Run(t, rig.Command(t, p.work, env, "zsh", "-n", script)); out.Code != 0 || out.Stderr != "" {
		t.Fatalf("%+v", out)
	}
	for _, c := range completions {
		if c.some || len(c.becom) != 1 {
			continue
		}
		term := onTerminal(t, rig.Command(t, p.work, env, "zsh", "-f", "-i"))
		term.send("PS1='ready> '; autoload -Uz compinit && compinit -u -d " + filepath.Join(p.top, "zcompdump") + " && source " + script + " && echo set up\n")
		term.expect("\nset up")
		term.all.Reset()
		term.send(c.line + "\t")
		start := c.line[:strings.LastIndexAny(c.line, " =")+1]
		if !term.sees(start+c.becom[0], 10e9) {
			t.Errorf("%q becomes %q, want %q", c.line, term.all.String(), start+c.becom[0])
		}
		term.tty.Close()
	}
}

// Every page is one that a formatter takes as it is, and man shows.
func TestManualPages(t *testing.T) {
	needs(t, "mandoc")
	p := newPlace(t)
	heads := regexp.MustCompile(`(?m)^[A-Z]`)
	verbs := []string{""}
	for _, also := range regexp.MustCompile(`botbox\\-(\w+)\\fR\(1\)`).FindAllStringSubmatch(rig.Run(t, p.botbox(nil, "man")).Stdout, -1) {
		verbs = append(verbs, also[1])
	}
	if len(verbs) < 12 {
		t.Errorf("control: the pages %v", verbs)
	}
	for _, verb := range verbs {
		page := rig.Run(t, p.botbox(nil, slices.DeleteFunc([]string{"man", verb}, func(s string) bool { return s == "" })...))
		file := filepath.Join(p.top, "page.1")
		rig.Write(t, file, page.Stdout)
		lint := rig.Run(t, rig.Command(t, p.work, p.env, "mandoc", "-T", "lint", file))
		for line := range strings.Lines(lint.Stdout) {
			if !strings.Contains(line, "missing date") { // a page is as old as its build
				t.Errorf("%s: %s", verb, line)
			}
		}
		shown := rig.Run(t, rig.Command(t, p.work, p.env, "mandoc", "-T", "ascii", file))
		if page.Code != 0 || !strings.Contains(page.Stdout, ".SH SYNOPSIS") || len(heads.FindAllString(shown.Stdout, -1)) < 4 {
			t.Errorf("%s: %+v\n%s", verb, page, shown.Stdout)
		}
	}
	if out := rig.Run(t, p.botbox(nil, "man", "no-such-verb")); out.Code != 100 || out.Stdout != "" {
		t.Errorf("%+v", out)
	}
}
