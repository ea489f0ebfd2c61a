package zones

// Ban is a package that must not be imported. A pattern that ends in "/..."
// stands for the package and all below it.
type Ban struct {
	Path   string
	Except string // one package that the pattern does not cover
	Linked bool   // the ban also holds for what is linked in through others
	Reason string
}

// Rule says what the packages in one folder may import, tests aside. The rule
// with the longest Folder that holds a package is the one that counts.
// Whatever is not in the standard library must be named.
type Rule struct {
	Folder  string
	Bans    []Ban    // of the standard library
	Own     []string // packages of this module, below Module
	Foreign []string // packages of other modules
	Reason  string
}

// xsys is the one foreign package of most rules.
const xsys = "golang.org/x/sys/unix"

// Each reason for a ban that more than one rule holds is written once.
var (
	noHTTP = Ban{Path: "net/http", Linked: true, Reason: "adds 4 MB and a parser of hostile bytes; only the worker speaks HTTP"}
	noTLS  = Ban{Path: "crypto/tls", Linked: true, Reason: "only the worker holds keys or speaks to providers"}
	noExec = Ban{Path: "os/exec", Linked: true, Reason: "searches PATH and starts goroutines; commands are started in worker/internal/box/spawn.go only"}
	noNet  = Ban{Path: "net", Linked: true, Reason: "resolver and dialler; addresses are net/netip values here"}
	pure   = []Ban{
		noHTTP, noTLS, noExec, noNet,
		{Path: "os", Reason: "a pure package touches no file and reads no environment"},
		{Path: "syscall", Reason: "a pure package makes no system call"},
		{Path: "unsafe", Reason: "a pure package needs no memory tricks"},
	}
)

var rules = []Rule{
	{
		Folder: "supervisor",
		Bans: []Ban{
			noHTTP, noTLS, noExec,
			{Path: "net", Reason: "root opens no socket of its own but the ones it is told to keep; go-systemd's daemon links net for sd_notify, nothing else may use it"},
			{Path: "encoding/json", Linked: true, Reason: "root parses as little as possible: frames are short text"},
			{Path: "encoding/gob", Linked: true, Reason: "decodes types by reflection; has no place in root code"},
			{Path: "os/user", Linked: true, Reason: "with cgo it loads NSS modules into root; /etc/passwd is read by hand"},
			{Path: "text/template", Linked: true, Reason: "keeps every exported method in the binary and calls them by name"},
			{Path: "plugin", Linked: true, Reason: "loads code into root"},
		},
		Own:     []string{"supervisor/internal/...", "shared/wire", "shared/reason", "shared/posture", "shared/zones"},
		Foreign: []string{xsys, "github.com/coreos/go-systemd/v22/daemon"},
		Reason:  "it runs as root: what it links, root runs",
	},
	{
		Folder: "worker",
		Bans:   []Ban{{Path: "plugin", Linked: true, Reason: "needs cgo and loads code beside the keys"}},
		Own:    []string{"worker/...", "shared/..."},
		Foreign: []string{xsys, "github.com/kelseyhightower/envconfig", "github.com/mdlayher/vsock", "go.etcd.io/bbolt", "go.etcd.io/bbolt/errors",
			"github.com/coreos/go-systemd/v22/journal", "github.com/coreos/go-systemd/v22/activation"},
		Reason: "it holds keys, and may use anything but cgo",
	},
	{
		Folder: "boxprobe",
		Bans: []Ban{
			noHTTP, noTLS,
			{Path: "crypto/...", Except: "crypto/rand", Reason: "nothing in a box signs or seals; random bytes are all that a check needs"},
		},
		Own: []string{"shared/addrpolicy", "shared/wire", "shared/posture", "shared/seccomp",
			"shared/layers", "shared/reason", "boxprobe/internal/landlock"},
		Foreign: []string{xsys},
		Reason:  "it runs where every byte is hostile, and holds nothing worth taking",
	},
	{
		Folder: "boxprobe/boxentry",
		Bans: []Ban{
			noHTTP, noTLS, noExec, noNet,
			{Path: "crypto/...", Except: "crypto/rand", Reason: "nothing in a box signs or seals"},
		},
		Own:     []string{"shared/wire", "shared/posture", "shared/reason", "boxprobe/internal/landlock"},
		Foreign: []string{xsys},
		Reason:  "the first program in every box: it is read whole, starts in a millisecond and vanishes",
	},
	{
		Folder: "shared",
		Bans:   []Ban{noHTTP, noTLS, noExec, noNet},
		Own:    []string{"shared/..."},
		Reason: "values and pure functions, linked into every program, root's among them",
	},
	{
		Folder:  "shared/posture",
		Bans:    []Ban{noHTTP, noTLS, noExec, noNet},
		Own:     []string{"shared/reason"},
		Foreign: []string{xsys},
		Reason:  "reads back what the kernel shows of a process: the one shared package that touches the system",
	},
	{
		Folder:  "shared/seccomp",
		Bans:    []Ban{noHTTP, noTLS, noExec, noNet},
		Own:     []string{"shared/reason"},
		Foreign: []string{xsys},
		Reason:  "takes system call numbers and BPF constants from x/sys, and makes no call",
	},
	{Folder: "shared/wire", Bans: pure, Own: []string{"shared/reason"}, Reason: "what two zones say to one another must decode the same everywhere"},
	{Folder: "shared/reason", Bans: pure, Reason: "everything imports it"},
	{Folder: "shared/zones", Bans: pure, Reason: "tables"},
	{
		Folder: "testbed",
		Own:    []string{"testbed/..."},
		Reason: "stands in for the world in tests; no other rule names testbed, so only tests can import it",
	},
	{
		Folder:  "testbed/stranger",
		Foreign: []string{xsys},
		Reason:  "makes system calls that package syscall does not have",
	},
	{
		Folder:  "testbed/vm/guest",
		Foreign: []string{xsys},
		Reason:  "is the first process of a test's virtual machine: it mounts, loads modules and switches it off",
	},
	{
		Folder:  "testbed/vsockhost",
		Foreign: []string{xsys},
		Reason:  "maps the memory of a test's virtual machine",
	},
	{
		Folder:  "bench",
		Own:     []string{"bench/...", "shared/..."},
		Foreign: []string{xsys},
		Reason:  "measures programs from outside",
	},
}

// TestOnly is how the name of a package ends that holds code for tests, as
// net/http/httptest does: only tests and other such packages may import it,
// and the rules about single files leave it out.
const TestOnly = "test"

// Confine names the only files that may import a package or call a method.
type Confine struct {
	Folder string   // the rule looks at the files below it
	Import string   // the package's path, or
	Call   string   // the method's name
	Files  []string // below the repository's root
	Reason string
}

var confines = []Confine{
	{Folder: "worker", Import: "os/exec", Files: []string{"worker/internal/box/spawn.go"},
		Reason: "every command that the worker starts is started in one file"},
	{Folder: "worker", Import: "github.com/kelseyhightower/envconfig", Files: []string{"worker/config.go"},
		Reason: "every setting of the worker is read in one file"},
	{Folder: "worker", Import: "github.com/coreos/go-systemd/v22/journal", Files: []string{"worker/internal/journal/sink.go"},
		Reason: "go-systemd v22.7.0 writes invalid field names after saying that it ignores them, so names are checked in front of it"},
	{Folder: "worker", Import: "github.com/mdlayher/vsock", Files: []string{"worker/internal/hostreport/listen.go", "worker/internal/hostreport/serve.go"},
		Reason: "vsock leads past every network namespace: one package listens there, and nothing of ours connects"},
	{Folder: "worker", Call: "MustCompile", Files: []string{"worker/internal/journal/entry.go", "worker/internal/report/sign.go"},
		Reason: "botbox is started for every box, and a pattern that is compiled at its start costs each some 0.1 ms: compile it when it is first used"},
	{Folder: "worker", Call: "Reveal", Files: revealers(),
		Reason: "a secret is shown only where it is really injected"},
}

// Revealer is a file that may call secret.Text's Reveal.
type Revealer struct{ File, Reason string }

// revealTable is where a new place that needs a secret is argued for. A row
// whose file does not reveal anything fails the test, too.
var revealTable = []Revealer{
	{"worker/internal/secret/secret.go", "Empty looks at the secret's length"},
	{"worker/internal/spec/decode.go", "refuses an environment value with a NUL in it, which would end it early"},
	{"worker/internal/spec/spec.go", "a client of the worker writes its values into the spec that it sends"},
	{"worker/internal/turn/prepare.go", "the values that were asked for with --env are for the engine itself"},
	{"worker/internal/login/document.go", "compares a sign-in's tokens, and sends the refresh token to its issuer"},
	{"worker/internal/report/sign.go", "keys the HMAC of a signed report"},
	{"worker/internal/broker/grant.go", "puts the provider's key into the request that leaves"},
	{"worker/internal/broker/mcpserver.go", "puts an MCP server's headers into the request that leaves"},
	{"worker/internal/broker/mcprecord.go", "seals an MCP server's headers for the worker that takes over"},
}

func revealers() []string {
	var files []string
	for _, r := range revealTable {
		files = append(files, r.File)
	}
	return files
}
