package selfcheck

import (
	"slices"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// forger is a boxprobe with a hostile child: while the probe works, it says of
// every check that it passed, to every file of the box's processes that it can
// open and to every port of the gates.
var forger = []rig.Edit{
	{"boxprobe/main.go", "	if canary(os.Args[1:]) || asker(os.Args[1:]) {", `	if len(os.Args) > 1 && os.Args[1] == "forge" {
		forge(os.Args[2:])
	}
	if canary(os.Args[1:]) || asker(os.Args[1:]) {`},
	{"boxprobe/main.go", "	f.inherited = inherited\n", `	f.inherited = inherited
	child, err := os.StartProcess("/proc/self/exe", []string{"boxprobe", "forge", strconv.Itoa(os.Getpid()),
		strconv.Itoa(f.EgressPort), strconv.Itoa(f.HarnessPort), strconv.Itoa(f.BrokerPort)},
		&os.ProcAttr{Env: []string{}, Files: []*os.File{nil, nil, nil}})
	exitOn(err)
	defer child.Kill()
	time.Sleep(50 * time.Millisecond)
`},
	{"boxprobe/main.go", "func exitOn(err error) {", `func forge(words []string) {
	var lies []byte
	for _, c := range table() {
		text, _ := json.Marshal(line{c.ID, c.Layer, Pass, 0, "forged"})
		lies = append(append(lies, text...), '\n')
	}
	for {
		names, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		for _, name := range names {
			if strings.HasPrefix(name, "/proc/"+strconv.Itoa(os.Getpid())+"/") {
				continue
			}
			if to, err := os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				to.Write(lies)
				to.Close()
			}
		}
		for _, port := range words[1:] {
			if to, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
				to.Write(lies)
				to.Close()
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func exitOn(err error) {`},
	{"boxprobe/main.go", "	\"os\"\n", "	\"net\"\n	\"os\"\n	\"path/filepath\"\n	\"strconv\"\n	\"strings\"\n	\"time\"\n\n	\"golang.org/x/sys/unix\"\n"},
}

// What another process of the box writes into the probe's output spoils the
// run, and makes no check pass: not where every wall stands, and not where one
// is away.
func TestOutputForgedInTheBox(t *testing.T) {
	dir := broken(t, forger)
	for _, mutate := range []string{"", "bind-data,env-all"} {
		r, code := checked(t, dir, rig.Ordinary(t), "--profile", "full", "--mutate", mutate)
		if code != 1 || len(r.Failed) != len(r.Results) {
			t.Errorf("%q: exit %d, failed %v of %d; %v", mutate, code, r.Failed, len(r.Results), r.Warnings)
		}
		for _, res := range r.Results {
			if res.Verdict != inconclusive || !strings.Contains(res.Why, "malformed") {
				t.Errorf("%q: %+v", mutate, res)
			}
		}
	}
	// The control: the same run without the forger.
	r, code := checked(t, built(t), rig.Ordinary(t), "--profile", "full", "--mutate", "bind-data,env-all")
	if code != 1 || !slices.Contains(r.Failed, "D1") || slices.Contains(r.Failed, "W1") {
		t.Errorf("control: exit %d, failed %v", code, r.Failed)
	}
}
