package selfcheck

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openmausbot/botbox/worker/internal/box"
)

// The mutations of the full profile, by what they are about.

var fileMutations = []mutation{
	{"token-rw", "the read-only flag of this conversation's own hook token", func(o *outside, p *box.Plan) {
		replace(p, box.Mount{Kind: box.Bind, Source: filepath.Dir(o.OwnToken), Dest: filepath.Dir(o.OwnToken), Reason: "mutation token-rw"})
	}},
	{"writable-usr", "the read-only flag of a code folder", func(o *outside, p *box.Plan) {
		replace(p, box.Mount{Kind: box.Bind, Source: o.at("code"), Dest: o.at("code"), Reason: "mutation writable-usr"})
	}},
	{"no-work", "the work folder's being writable", func(o *outside, p *box.Plan) {
		replace(p, box.Mount{Kind: box.ROBind, Source: o.WorkDir, Dest: o.WorkDir, Reason: "mutation no-work"})
	}},
	{"writable-root", "the read-only flag of the box's own /", func(_ *outside, p *box.Plan) { writableAgain(p, "/") }},
	{"writable-dev", "the read-only flag of the box's own /dev", func(_ *outside, p *box.Plan) { writableAgain(p, "/dev") }},
	{"shm-shared", "the private /dev/shm: another turn's folder is in it", func(o *outside, p *box.Plan) {
		insert(p, box.Mount{Kind: box.Bind, Source: filepath.Dir(o.ShmFile), Dest: filepath.Dir(o.ShmFile), Reason: "mutation shm-shared"})
	}},
	{"argv-rw", "the read-only flag of a file that the command line names", func(o *outside, p *box.Plan) {
		file := o.at("fixture.json")
		replace(p, box.Mount{Kind: box.Bind, Source: file, Dest: file, Reason: "mutation argv-rw"})
	}},
	{"entry-rw", "the read-only flag of the box's first program", func(_ *outside, p *box.Plan) {
		at := slices.IndexFunc(p.Mounts, func(m box.Mount) bool { return m.Dest == box.EntryPath })
		p.Mounts[at].Kind = box.Bind
	}},
	{"no-cpu-files", "the two files about CPUs", func(o *outside, p *box.Plan) {
		p.Mounts = slices.DeleteFunc(p.Mounts, func(m box.Mount) bool { return slices.Contains(o.CPUFiles, m.Dest) })
	}},
	{"bind-sys", "the absence of /sys: one of its folders is there", func(_ *outside, p *box.Plan) {
		insert(p, box.Mount{Kind: box.ROBind, Source: "/sys/kernel", Dest: "/sys/kernel", Reason: "mutation bind-sys"})
	}},
	{"bind-fly", "the absence of /.fly: a folder stands in for it", func(o *outside, p *box.Plan) {
		insert(p, box.Mount{Kind: box.ROBind, Source: o.at("fly"), Dest: "/.fly", Reason: "mutation bind-fly"})
	}},
	{"bind-home", "the private HOME: the account's own is there, and a folder beside it", func(o *outside, p *box.Plan) {
		replace(p, box.Mount{Kind: box.Bind, Source: o.at("home"), Dest: o.at("home"), Reason: "mutation bind-home"})
		insert(p, box.Mount{Kind: box.Bind, Source: o.at("elsewhere"), Dest: o.at("elsewhere"), Reason: "mutation bind-home"})
	}},
	{"bind-run", "the private /run: the folder of a container engine's socket is in it", func(o *outside, p *box.Plan) {
		insert(p, box.Mount{Kind: box.ROBind, Source: o.at("run/podman"), Dest: "/run/podman", Reason: "mutation bind-run"})
	}},
	{"dev-host", "the terminals' own folder: the machine's are there", func(_ *outside, p *box.Plan) {
		insert(p, box.Mount{Kind: box.Bind, Source: "/dev/pts", Dest: "/dev/pts", Reason: "mutation dev-host"})
	}},
	{"no-pins", "the mount points that keep a repository's folder where it is", func(o *outside, p *box.Plan) {
		p.Mounts = slices.DeleteFunc(p.Mounts, func(m box.Mount) bool { return m.Dest == filepath.Join(o.BotDir, ".git") })
	}},
	{"git-open", "the read-only flag of a repository's hooks and settings", func(o *outside, p *box.Plan) {
		git := filepath.Join(o.BotDir, ".git") + "/"
		p.Mounts = slices.DeleteFunc(p.Mounts, func(m box.Mount) bool { return strings.HasPrefix(m.Dest, git) })
	}},
	{"bind-by-path", "binding what was checked: bubblewrap looks the path up anew", func(o *outside, p *box.Plan) {
		replace(p, box.Mount{Kind: box.ROBind, Source: o.Swapped, Dest: o.Swapped, Careless: box.Careless{ByPath: true}, Reason: "mutation bind-by-path"})
	}},
	{"no-dest-check", "the look at where a mount has to stand", nothingHere},
	{"no-safe-open", "the look at what enters a box", nothingHere},
	{"worker-runs-git", "the worker's running nothing of a work folder", nothingHere},
	{"litter", "the rule that no mount point is made in a folder of the bot's", func(o *outside, p *box.Plan) {
		insert(p, box.Mount{Kind: box.Tmpfs, Dest: filepath.Join(o.BotDir, "litter"), Size: 1 << 20, Reason: "mutation litter"})
	}},
	{"setuid-bwrap", "the refusal of a bubblewrap with privileges: the check is shown one", func(o *outside, _ *box.Plan) { o.lookFor = o.at("setuid") }},
}

var processMutations = []mutation{
	{"share-ipc", "the namespace of shared memory and queues", func(_ *outside, p *box.Plan) { without(p, "ipc") }},
	{"share-uts", "the namespace of the host name", func(_ *outside, p *box.Plan) { without(p, "uts") }},
	{"share-cgroup", "the namespace of the cgroup tree", func(_ *outside, p *box.Plan) { without(p, "cgroup") }},
	{"fd-leak", "the closing of inherited files: two of the machine's stay open", func(_ *outside, p *box.Plan) { p.Pipe = true }},
	{"outer-env", "bubblewrap's empty environment", func(o *outside, p *box.Plan) { p.Lacks.Quiet = []string{"CANARY=" + o.Marker} }},
	{"no-new-session", "the session of its own, which has no terminal", func(_ *outside, p *box.Plan) { p.TTY = true }},
	{"root-inside", "the ordinary user: the engine is 0 in its namespace", func(_ *outside, p *box.Plan) { p.Lacks.OwnID = true }},
	{"keep-caps", "the dropping of capabilities in the box's user namespace", func(_ *outside, p *box.Plan) { p.Lacks.CapDrop = true }},
	{"no-die", "the box's death with who started it", nothingHere},
	{"worker-open", "the closing of the worker to its own user: the check looks at a process that is open", func(o *outside, _ *box.Plan) { o.openPID = o.CanaryPID }},
	{"core-on", "the limit of core files", func(_ *outside, p *box.Plan) { p.Lacks.CoreLimit = true }},
}

var environmentMutations = []mutation{
	{"env-none", "what every box's environment has: all but what other checks rest on", func(o *outside, p *box.Plan) {
		keep := append([]string{"BOTBOX", keyName, baseName}, o.names()...) // env-all may have set these
		maps.DeleteFunc(p.Env, func(name, _ string) bool { return !slices.Contains(keep, name) })
	}},
	{"argv-secrets", "the memory file that holds bubblewrap's options: they stand in its command line", func(_ *outside, p *box.Plan) { p.Lacks.Memfd = true }},
}

// nothingHere is the change of a mutation that the probe's own box does not
// feel: see ofAsked and the judge of F25.
func nothingHere(*outside, *box.Plan) {}

// ofAsked changes the plans of the boxes that a judge asks for, and that are
// never started.
var ofAsked = map[string]func(*box.Plan){
	"no-dest-check": func(p *box.Plan) {
		for i := range p.Mounts {
			p.Mounts[i].Nested = false
		}
	},
	"no-die": func(p *box.Plan) { p.Lacks.Parent = true },
	"no-safe-open": func(p *box.Plan) {
		for i := range p.Mounts {
			p.Mounts[i].Careless.Unchecked = true
		}
	},
}

func writableAgain(p *box.Plan, dest string) {
	p.Mounts = slices.DeleteFunc(p.Mounts, func(m box.Mount) bool { return m.Kind == box.ROAgain && m.Dest == dest })
}

// showsNothing tells whether a mutation takes away what this machine has not:
// an environment without core files, a cgroup without a path, a machine that is
// called what every box is called.
func (o *outside) showsNothing(id, mutation string) bool {
	switch id + " " + mutation {
	case "P17 core-on":
		return o.noCores
	case "P19 share-cgroup":
		return !o.CgroupNamed
	case "P09 share-uts":
		return o.namesake || o.Nameless
	case "F12 no-cpu-files":
		return len(o.CPUFiles) == 0
	}
	return false
}
