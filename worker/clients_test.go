package main

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/boxenv"
	"github.com/openmausbot/botbox/testbed/internet"
	"github.com/openmausbot/botbox/testbed/rig"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// client is a program that fetches something. Its script runs in a box with
// the environment that every box has, and a root to trust in each tool's own
// variable.
type client struct {
	name    string
	needs   string
	script  string
	want    string // all of stdout
	without string // the one name of the box's environment that it cannot miss
}

const root = "https://www." + internet.Domain + "/"

var clients = []client{
	{"curl", "curl", "curl -sS " + root + " && curl -sS http://www.example.com/", "hello over https\nhello over http\n", ""},
	{"wget", "wget", `wget -q -t 1 --ca-certificate="$SSL_CERT_FILE" -O - ` + root, "hello over https\n", "https_proxy"},
	{"git over https", "git", `git clone -q https://git.example.com/fruit.git && git -C fruit log --format=%s && cat fruit/note`, "first\nseed\n", ""},
	{"git over ssh", "git ssh", gated + sshKeys + `
		git clone -q fruit@git.example.com:repos/fruit.git && cd fruit && cat note && git rev-parse -q --verify origin/boxed
		git -c user.name=b -c user.email=b@example.com commit -q --allow-empty -m boxed && git push -q origin HEAD:boxed && git log -1 --format=%s origin/boxed`, "seed\nboxed\n", ""},
	{"ssh", "ssh", gated + sshKeys + `ssh fruit@git.example.com 'wc -c' <"$0" | grep -c .`, "1\n", ""},
	{"git where ssh has no settings", "git ssh", gated + sshKeys + `git -c core.sshCommand="$GIT_SSH_COMMAND -F none" ls-remote -q fruit@git.example.com:repos/fruit.git HEAD | grep -c HEAD`, "1\n", "GIT_SSH_COMMAND"},
	{"ssh by one's own settings", "ssh", gated + sshKeys + `
		printf 'Host *.example.com\n\tProxyCommand /run/botbox/boxentry connect %%h %%p\n' >~/.ssh/config
		ssh fruit@git.example.com 'wc -c' <"$0" | grep -c .`, "1\n", ""},
	{"npm", "npm node", `npm install -s --cafile="$NODE_EXTRA_CA_CERTS" --fetch-retries=0 --registry=https://npm.example.com/ fruit && node -p 'require("fruit")'`, "42\n", ""},
	{"pip", "python3", `python3 -m pip install -q --retries 0 --no-cache-dir --disable-pip-version-check --target lib --index-url https://pypi.example.com/simple/ fruit &&
		PYTHONPATH=lib python3 -c 'import fruit; print(fruit.n)'`, "42\n", ""},
	{"cargo", "cargo git ssh", sshKeys + cargo, "42\ngit dependency\n", "CARGO_NET_GIT_FETCH_WITH_CLI"},
	{"go", "go", `export GOPROXY=https://goproxy.example.com GOSUMDB=off GOTOOLCHAIN=local GOFLAGS=-mod=mod
		printf 'module x\n\ngo 1.21\n' >go.mod; go mod download example.com/fruit@v1.0.0 &&
		grep -o '[0-9]*$' "$(go env GOMODCACHE)/example.com/fruit@v1.0.0/fruit.go"`, "42\n", ""},
	{"apt over https", "apt-get dpkg-deb", apt("https"), "42\n", ""},
	{"apt over http", "apt-get dpkg-deb", apt("http"), "42\n", ""},
	{"urllib", "python3", `python3 -c 'import urllib.request as r; print(r.urlopen("` + root + `").read().decode(), end="")'`, "hello over https\n", ""},
	{"requests", "python3", `python3 -c 'import requests; print(requests.get("` + root + `").text, end="")'`, "hello over https\n", ""},
	{"Go's net/http", "", `"$1/fetcher" ` + root + ` && "$1/fetcher" http://www.example.com/`, "hello over https\nhello over http\n", ""},
	{"Node's fetch", "", `"$2" -e 'fetch("` + root + `").then(r => r.text()).then(t => process.stdout.write(t))'`, "hello over https\n", "NODE_USE_ENV_PROXY"},
}

// gated ends a script in which the box has its ssh settings, but not the
// environment.
const gated = `[ -n "$https_proxy" ] || exit 1; `

// sshKeys puts a person's key and the server's into the box's own HOME.
const sshKeys = `mkdir -m 700 ~/.ssh && cp "$1/id" "$1/known_hosts" ~/.ssh/ && mv ~/.ssh/id ~/.ssh/id_ed25519 && chmod 600 ~/.ssh/id_ed25519
`

// oldCargo is for a sparse registry: an experiment before 1.68, such as Debian
// 12's, and later versions warn of the word.
const oldCargo = `case $(cargo -V) in "cargo 1.6"[0-7].*) set -- -Z sparse-registry ;; *) set -- ;; esac;`

// cargo's registry is a sparse one, and its git dependency comes over ssh.
const cargo = `mkdir src .cargo; touch src/lib.rs; export RUSTC_BOOTSTRAP=1 CARGO_NET_RETRY=0
printf '[registries.test]\nindex = "sparse+https://crates.example.com/index/"\n' >.cargo/config.toml
printf '[package]\nname = "x"\nversion = "0.1.0"\n[dependencies]\nfruit = { version = "1", registry = "test" }\ntree = { git = "ssh://fruit@git.example.com/%s/repos/fruit.git" }\n' "${1#/}" >Cargo.toml
` + oldCargo + ` cargo -q "$@" fetch && grep -oh '[0-9]*;$' ~/.cargo/registry/src/*/fruit-1.0.0/src/lib.rs | tr -d ';' && cat ~/.cargo/git/checkouts/*/*/src/lib.rs | cut -c4-`

func apt(scheme string) string {
	return `mkdir -p etc lists/partial cache/archives/partial; touch status
		printf 'deb [trusted=yes] ` + scheme + `://deb.example.com/ ./\n' >etc/sources.list
		set -- -qq -o Dir::Etc=$PWD/etc -o Dir::State=$PWD -o Dir::State::status=$PWD/status -o Dir::Cache=$PWD/cache -o Acquire::Retries=0 -o Acquire::https::CaInfo="$SSL_CERT_FILE"
		apt-get "$@" update && apt-get "$@" download fruit && dpkg-deb -x fruit_1.0.0_all.deb out && cat out/usr/share/fruit`
}

// Every tool works in a box as it comes, and works through a gate only:
// without what the box's environment says of the gates it reaches nothing.
func TestClientsWorkThroughTheGates(t *testing.T) {
	nodeDir, node := install(t, "node") // while there is a network
	needsRoot(t)
	if !gatetest.Inside(t) {
		return
	}
	w := newWeb(t)
	goroot, path := goTree(t)
	w.serve()
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			for _, program := range strings.Fields(c.needs) {
				if !installed(program, path) {
					rig.Missing(t, "%s is not there (testbed/setup.sh test installs it)", program)
				}
			}
			run := func(script string) rig.Output {
				work, err := os.MkdirTemp(w.work, "t")
				if err != nil {
					t.Fatal(err)
				}
				rig.Give(t, work)
				args := append([]string{"run", "--cwd", work, "--ro", w.public, "--ro", nodeDir}, goroot...)
				return rig.Run(t, w.botbox(append(w.trust(), "PATH="+path), append(args, "--", "sh", "-c", script, "/etc/passwd", w.public, node)...))
			}
			if out := run(c.script); out.Code != 0 || out.Stdout != c.want {
				t.Errorf("%+v, want %q", out, c.want)
			}
			before := w.net.Hits()
			if out := run(ungated() + c.script); out.Code == 0 || out.Stdout == c.want || w.net.Hits() != before {
				t.Errorf("without the gates, %d connections: %+v", w.net.Hits()-before, out)
			}
			if c.without == "" {
				return
			}
			if out := run("unset " + c.without + "\n" + c.script); out.Code == 0 || out.Stdout == c.want {
				t.Errorf("without %s: %+v", c.without, out)
			}
		})
	}
}

// ungated takes everything out of a box's environment that is about its gates.
func ungated() string {
	script := ""
	for _, g := range boxenv.AllGiven() {
		if g.Gate {
			script += "unset " + g.Name + "\n"
		}
	}
	return script
}

// web is a place in a namespace with an internet.
type web struct {
	*place
	net    *internet.Internet
	peer   *gatetest.Peer
	public string // what boxes may read: the root to trust, keys, programs
}

// needsRoot is asked before the test enters a namespace: without root, the
// boxes' user would have no number in it.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		rig.Missing(t, "a box in a network of the test's own takes root")
	}
}

func newWeb(t *testing.T) *web {
	t.Helper()
	p := newPlace(t)
	w := &web{place: p, public: filepath.Join(p.top, "public")}
	// OpenSSH looks for its files in the HOME that /etc/passwd says, and not
	// in $HOME. This mount is of the test's own mount namespace.
	account := rig.Account(t)
	if err := unix.Mount(p.home, account.HomeDir, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("%s: %v", account.HomeDir, err)
	}
	p.home = account.HomeDir
	p.env = rig.Env(t, p.home, "OMB_RUN_DIR="+p.run, "OMB_STATE_DIR="+p.state)
	repos := filepath.Join(w.public, "repos")
	w.publish(repos)
	var err error
	if w.net, err = internet.New(repos, vendorHosts...); err != nil {
		t.Fatal(err)
	}
	rig.Write(t, filepath.Join(w.public, "root.pem"), string(w.net.Root))
	if err := rig.Compile(filepath.Join(w.public, "fetcher"), "./testbed/fetcher", rig.Build); err != nil {
		t.Fatal(err)
	}
	w.peer = gatetest.Join(t)
	go internet.Names(w.peer.ListenPacket(gatetest.Far4+":53"), netip.MustParseAddr(gatetest.Far4), netip.MustParseAddr(gatetest.Far6))
	go w.net.HTTP(w.peer.Listen(":80"))
	go w.net.HTTPS(w.peer.Listen(":443"))
	go w.net.SSH(w.peer.Listen(":22"), w.sshServer())
	w.instead("/etc/resolv.conf", "nameserver "+gatetest.Far4+"\n")
	return w
}

// trust is the root to trust, in the variable of each tool.
func (w *web) trust() []string {
	var env []string
	for _, name := range []string{"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "CARGO_HTTP_CAINFO"} {
		env = append(env, name+"="+filepath.Join(w.public, "root.pem"))
	}
	return env
}

// instead puts a file in place of one of the machine's, in the test's own
// mount namespace.
func (w *web) instead(path, content string) {
	w.t.Helper()
	ours := filepath.Join(w.top, filepath.Base(path))
	if err := os.WriteFile(ours, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
	if err := unix.Mount(ours, path, "", unix.MS_BIND, ""); err != nil {
		w.t.Fatalf("%s: %v", path, err)
	}
}

// publish makes a repository that is also a crate.
func (w *web) publish(repos string) {
	w.t.Helper()
	tree := filepath.Join(w.top, "seed")
	rig.Write(w.t, filepath.Join(tree, "note"), "seed\n")
	rig.Write(w.t, filepath.Join(tree, "Cargo.toml"), "[package]\nname = \"tree\"\nversion = \"0.1.0\"\n")
	rig.Write(w.t, filepath.Join(tree, "src/lib.rs"), "// git dependency\n")
	rig.Write(w.t, filepath.Join(repos, ".keep"), "")
	for _, dir := range []string{w.public, repos, tree, filepath.Join(tree, "src")} {
		rig.Give(w.t, dir)
	}
	w.git(tree, "init", "-q", "-b", "main")
	w.git(tree, "add", ".")
	w.git(tree, "commit", "-qm", "first")
	w.git(w.top, "clone", "-q", "--bare", tree, filepath.Join(repos, "fruit.git"))
}

// sshServer is dropbear, which needs no service and no settings. The user that
// it lets in is the boxes' own under another name, with a shell.
func (w *web) sshServer() func() *exec.Cmd {
	w.t.Helper()
	if _, err := exec.LookPath("dropbear"); err != nil {
		rig.Missing(w.t, "dropbear is not there (testbed/setup.sh test installs it)")
	}
	account, users := rig.Account(w.t), ""
	if b, err := os.ReadFile("/etc/passwd"); err == nil {
		users = string(b)
	}
	home := w.public
	w.instead("/etc/passwd", users+strings.Join([]string{"fruit", "x", account.Uid, account.Gid, "", home, "/bin/sh"}, ":")+"\n")
	gatetest.Run(w.t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(w.public, "id"))
	host := filepath.Join(w.top, "hostkey")
	out, err := exec.Command("dropbearkey", "-t", "ed25519", "-f", host).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	lines := strings.Split(string(out), "\n")
	public := lines[slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "ssh-ed25519 ") })]
	rig.Write(w.t, filepath.Join(w.public, "known_hosts"), "git."+internet.Domain+" "+public+"\n")
	mine, err := os.ReadFile(filepath.Join(w.public, "id.pub"))
	if err != nil {
		w.t.Fatal(err)
	}
	rig.Write(w.t, filepath.Join(home, ".ssh/authorized_keys"), string(mine))
	rig.Give(w.t, filepath.Join(home, ".ssh"))
	rig.Give(w.t, filepath.Join(w.public, "id"))
	return func() *exec.Cmd { return exec.Command("dropbear", "-i", "-r", host, "-s", "-m") }
}
