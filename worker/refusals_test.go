package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

var updateRefusals = flag.Bool("update-refusals", false, "write what this machine's clients print into testdata/refusals.txt, beside other versions")

// refused is a client of the egress gate and what it lets a person see of a
// refusal. Its script gets the URL as $1 and a folder of programs as $2.
type refused struct {
	name    string
	needs   string
	version string // how to ask it
	script  string
	connect string // what a refused CONNECT shows at least: phrase, number or nothing
	plain   string // a refused plain request: the same, body, or none when the client makes none
}

var refusedClients = []refused{
	{"curl", "curl", "curl --version | head -1 | cut -d' ' -f1,2", `curl -sS "$1"`, number, body},
	{"curl -f", "curl", "curl --version | head -1 | cut -d' ' -f1,2", `curl -fsS "$1"`, number, number},
	{"wget", "wget", "wget --version | head -1", `wget -nv -O - "$1"`, phrase, phrase},
	{"git over https", "git", "git --version", `git clone -q "$1x.git"`, number, body},
	{"git over ssh", "git ssh", "git --version; ssh -V 2>&1 | cut -d' ' -f1", `git clone -q "ssh://git@${1#*://}x.git"`, phrase, none},
	{"Go's net/http", "", "go env GOVERSION", `"$2/fetcher" "$1"`, phrase, body},
	{"urllib", "python3", "/usr/bin/python3 -V", `python3 -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1])' "$1" 2>&1 | tail -1; false`, phrase, phrase},
	{"requests", "python3", "/usr/bin/python3 -V; /usr/bin/python3 -c 'import requests; print(requests.__version__)'",
		`python3 -c 'import sys, requests
try: print(requests.get(sys.argv[1]).text)
except requests.exceptions.RequestException as e: sys.exit(e)' "$1"`, phrase, body},
	{"npm", "npm", "npm -v", `npm install --no-update-notifier --registry="$1" fruit`, phrase, phrase},
	{"pip", "python3", "/usr/bin/python3 -m pip -V | cut -d' ' -f1,2", `python3 -m pip install --retries 1 --disable-pip-version-check --no-cache-dir --trusted-host 169.254.169.254 --target lib --index-url "$1" fruit`, phrase, nothing},
	{"apt", "apt-get", "apt-get -v | head -1 | cut -d' ' -f1,2", `mkdir -p etc lists/partial cache/archives/partial; touch status; printf 'deb [trusted=yes] %s ./\n' "$1" >etc/sources.list
		apt-get -q -o Dir::Etc=$PWD/etc -o Dir::State=$PWD -o Dir::State::status=$PWD/status -o Dir::Cache=$PWD/cache -o Acquire::Retries=1 -o APT::Update::Error-Mode=any update`, phrase, phrase},
	{"cargo", "cargo", "/usr/bin/cargo --version", `mkdir src .cargo; touch src/lib.rs; export RUSTC_BOOTSTRAP=1
		printf '[registries.test]\nindex = "sparse+%s"\n' "$1" >.cargo/config.toml
		printf '[package]\nname = "x"\nversion = "0.1.0"\n[dependencies]\nfruit = { version = "1", registry = "test" }\n' >Cargo.toml
		` + oldCargo + ` cargo "$@" fetch`, number, number},
	{"Node's fetch", "", `"$node" -v`, `"$2/node" ` + nodeFetch, number, number},
	// The distribution's: before 22.21 it knows no proxy and says nothing of one.
	{"Node's fetch, as installed", "node", "node -v", "node " + nodeFetch, nothing, nothing},
}

const nodeFetch = `-e 'fetch(process.argv[1]).then(async r => { console.log(r.status, r.statusText); console.log(await r.text()); process.exit(1) },
	e => { console.log(e.message); for (let c = e.cause; c; c = c.cause) console.log("cause:", c.message); process.exit(1) })' "$1"`

const (
	phrase  = "cloud metadata" // of the reason
	number  = "403"
	body    = "What to do: "
	nothing = ""
	none    = "-"
)

// What each client makes of a refusal, word for word: this is what an agent
// reads when it is not let through. The texts are the clients' own, so they
// are compared where the client is the one that they were recorded with; that
// the reason, or at least the number, gets through is held everywhere.
func TestRefusalsAsPeopleSeeThem(t *testing.T) {
	nodeDir, node := install(t, "node")
	p := newPlace(t)
	_, path := goTree(t)
	public := filepath.Join(p.top, "public")
	rig.Write(t, filepath.Join(public, ".keep"), "")
	if err := rig.Compile(filepath.Join(public, "fetcher"), "./testbed/fetcher", rig.Build); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(node, filepath.Join(public, "node")); err != nil {
		t.Fatal(err)
	}
	p.serve()
	page := readGolden(t)
	for _, c := range refusedClients {
		for _, program := range strings.Fields(c.needs) {
			if !installed(program, path) {
				rig.Missing(t, "%s is not there (testbed/setup.sh test installs it)", program)
			}
		}
		version := exec.Command("sh", "-c", c.version)
		version.Env = append(os.Environ(), "PATH="+path, "node="+node)
		said, err := version.Output()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		s := section{name: c.name, version: strings.Join(strings.Fields(string(said)), " ")}
		for scheme, least := range map[string]string{"https": c.connect, "http": c.plain} {
			if scheme == "http" && c.plain == none {
				continue
			}
			work, err := os.MkdirTemp(p.work, "t")
			if err != nil {
				t.Fatal(err)
			}
			rig.Give(t, work)
			out := rig.Run(t, p.botbox([]string{"PATH=/usr/bin:/bin"}, "run", "--cwd", work, "--ro", public, "--ro", nodeDir, "--",
				"sh", "-c", c.script+" 2>&1", "sh", scheme+"://169.254.169.254/", public))
			if out.Stderr != "" || !strings.Contains(out.Stdout, least) || (out.Code == 0 && least != body) {
				t.Errorf("%s, %s: %+v, want at least %q", c.name, scheme, out, least)
			}
			text := fmt.Sprintf("%s\nexit %d\n", normal(out.Stdout, work), out.Code)
			if scheme == "https" {
				s.connect = text
			} else {
				s.plain = text
			}
		}
		switch was, recorded := page.find(s); {
		case *updateRefusals:
			page = page.with(s)
		case !recorded:
			t.Logf("%s: testdata/refusals.txt knows another version than %s", c.name, s.version)
		case was != s:
			t.Errorf("%s prints\n%s\nand not\n%s", s.version, s, was)
		}
	}
	if *updateRefusals {
		if err := os.WriteFile(refusalsFile, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// normal takes out what differs from run to run.
func normal(text, work string) string {
	text = strings.ReplaceAll(text, work, "WORK")
	for pattern, with := range map[string]string{
		`0x[0-9a-f]{8,}`: "0xADDRESS", `/\S*/_logs/\S*`: "LOG", `[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:]{8}`: "TIME", `\b127\.0\.0\.1:[0-9]{5}\b`: "127.0.0.1:PORT",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, with)
	}
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \r\n")
		// apt tells each try as it comes, of which there are more or fewer.
		if !strings.HasPrefix(line, "Ign:") && (line == "" || !slices.Contains(lines, line)) {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

const refusalsFile = "testdata/refusals.txt"

// section is what one client prints; a golden file is a list of them.
type section struct{ name, version, connect, plain string }

func (s section) String() string {
	text := "=== " + s.name + "\n" + s.version + "\n--- CONNECT\n" + s.connect
	if s.plain != "" {
		text += "--- http\n" + s.plain
	}
	return text
}

type golden []section

func (g golden) String() string {
	text := ""
	for _, s := range g {
		text += s.String()
	}
	return text
}

// with puts a client's section in the place of its version's, or behind its
// other versions'.
func (g golden) with(s section) golden {
	at := len(g)
	for i, was := range g {
		switch {
		case was.name == s.name && was.version == s.version:
			g[i] = s
			return g
		case was.name == s.name:
			at = i + 1
		}
	}
	return slices.Insert(g, at, s)
}

// find gives what was recorded of a client in this version.
func (g golden) find(s section) (section, bool) {
	for _, was := range g {
		if was.name == s.name && was.version == s.version {
			return was, true
		}
	}
	return section{}, false
}

func readGolden(t *testing.T) (g golden) {
	t.Helper()
	b, err := os.ReadFile(refusalsFile)
	if err != nil && !*updateRefusals {
		t.Fatal(err)
	}
	for _, text := range strings.Split(string(b), "=== ")[1:] {
		head, rest, _ := strings.Cut(text, "\n--- CONNECT\n")
		name, version, _ := strings.Cut(head, "\n")
		connect, plain, _ := strings.Cut(rest, "--- http\n")
		g = append(g, section{name, version, connect, plain})
	}
	return g
}
