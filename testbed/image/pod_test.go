package image

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/testbed/rig"
)

// pod is what of a pod's spec says how its containers are run. testbed/schema
// makes the file of it from init/kubernetes.yaml.
type pod struct {
	HostUsers                     bool
	TerminationGracePeriodSeconds int
	SecurityContext               struct{ SeccompProfile, AppArmorProfile struct{ Type string } }
	InitContainers, Containers    []container
	Volumes                       []struct {
		Name   string
		Secret *struct{ SecretName string }
	}
}

type container struct {
	Command, Args   []string
	Env             []struct{ Name, Value string }
	SecurityContext struct {
		ProcMount              string
		ReadOnlyRootFilesystem bool
		Capabilities           struct{ Add, Drop []string }
	}
	ReadinessProbe, LivenessProbe struct{ Exec struct{ Command []string } }
	VolumeMounts                  []struct {
		Name, MountPath string
		ReadOnly        bool
	}
}

// flags are podman's for a container of the pod. A runtime of Kubernetes gives
// a pod without users of the node 65,536 of its own.
func (p pod) flags(c container, volumes string) []string {
	flags := []string{"--cap-drop", strings.Join(c.SecurityContext.Capabilities.Drop, ","), "--cap-add", strings.Join(c.SecurityContext.Capabilities.Add, ",")}
	if !p.HostUsers {
		flags = append(flags, "--uidmap", "0:200000:65536", "--gidmap", "0:200000:65536")
	}
	if c.SecurityContext.ProcMount == "Unmasked" {
		flags = append(flags, "--security-opt", "unmask=ALL")
	}
	if c.SecurityContext.ReadOnlyRootFilesystem {
		flags = append(append(flags, "--read-only"), noTmpfs...)
	}
	if p.SecurityContext.SeccompProfile.Type == "Unconfined" {
		flags = append(flags, "--security-opt", "seccomp=unconfined")
	}
	for _, e := range c.Env {
		flags = append(flags, "--env", e.Name+"="+e.Value)
	}
	for _, m := range c.VolumeMounts {
		volume := filepath.Join(volumes, m.Name) + ":" + m.MountPath
		if m.ReadOnly {
			volume += ":ro"
		}
		flags = append(flags, "--volume", volume)
	}
	return flags
}

// volumes makes a folder for each volume as the kubelet does: open to all, and a
// secret's files are links into a folder that is a link.
func (p pod) volumes(t *testing.T, b *bed, key string) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp(b.dir, "pod")
	if err != nil {
		t.Fatal(err)
	}
	do := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	do(os.Chmod(dir, 0o755))
	names := []string{"state"} // of the claim
	for _, v := range p.Volumes {
		names = append(names, v.Name)
	}
	for _, name := range names {
		do(os.Mkdir(filepath.Join(dir, name), 0o777))
		do(os.Chmod(filepath.Join(dir, name), 0o777))
		do(os.Chown(filepath.Join(dir, name), 200000, 200000))
	}
	given := filepath.Join(dir, "given")
	do(os.Mkdir(given+"/..1", 0o755))
	do(os.Symlink("..1", given+"/..data"))
	do(os.WriteFile(given+"/..1/claude", []byte(key), 0o400))
	do(os.Chown(given+"/..1/claude", 200000, 200000))
	do(os.Symlink("..data/claude", given+"/claude"))
	return dir
}

// TestPod: the pod of init/kubernetes.yaml, run with the same settings: ready by
// its own probe, every check passes, keys are files that no box sees, and it
// ends within its time. Without a field that it needs there is a named refusal.
func TestPod(t *testing.T) {
	b := ready(t)
	text, err := os.ReadFile("testdata/pod.json")
	if err != nil {
		t.Fatal(err)
	}
	var p pod
	if err := json.Unmarshal(text, &p); err != nil || len(p.Containers) != 1 || len(p.InitContainers) != 1 {
		t.Fatal(err)
	}
	const key = "sk-ant-canary-9f02"
	volumes := p.volumes(t, b, key)
	first, box := p.InitContainers[0], p.Containers[0]
	if got := b.run(t, "", append(p.flags(first, volumes), "--entrypoint", first.Command[0]), append(slices.Clone(first.Command[1:]), first.Args...)...); got.Code != 0 {
		t.Fatalf("the first container: %+v", got)
	}
	id := b.start(t, p.flags(box, volumes), box.Args...)
	b.said(t, id, "event=worker-started", 1)
	exec := func(argv ...string) rig.Output { return b.exec(id, argv...) }
	var probe rig.Output
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Second) {
		if probe = exec(box.ReadinessProbe.Exec.Command...); probe.Code == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the pod is not ready: %+v\n%+v\n%s", probe, exec("botbox", "report", "--json"), b.must(t, b.podman("logs", id)))
		}
	}
	if got := exec(box.LivenessProbe.Exec.Command...); got.Code != 0 {
		t.Errorf("not alive: %+v", got)
	}
	if got := exec("botbox", "check"); !passed(got.Stdout) {
		t.Errorf("%+v", got)
	}
	if got := exec("botbox", "report", "--json"); !strings.Contains(got.Stdout, `"name":"hidepid","state":"done"`) || strings.Contains(got.Stdout, `"state":"refused"`) {
		t.Errorf("%+v", got)
	}
	b.page(t, "docs/kubernetes.md", rig.Page(t, "docs/kubernetes.md", "pod"), "kubectl",
		`[ "$1 $2 $3" = "exec botbox-0 --" ] || exit 1; shift 3; exec `+quoted(b.podman("exec", id).Args)+` "$@"`)
	spec := `{"argv":["sh","-c","echo $MINE; ls /keys /given 2>&1 | grep -c cannot"],"cwd":"/workspace","env":{"MINE":{"secret":"ref:claude"}},"env_extra_names":["MINE"]}`
	if got := exec("sh", "-c", "echo '"+spec+"' | botbox run --spec -"); got.Stdout != key+"\n2\n" {
		t.Errorf("a key that a spec names: %+v", got)
	}
	if got := exec("sh", "-c", "cat /proc/1/environ; stat -c %u:%a /keys/maus"); strings.Contains(got.Stdout, key) || !strings.HasSuffix(got.Stdout, ":700\n") {
		t.Errorf("keys: %+v", got)
	}
	// The probe is no formality: with no worker there, nobody is ready.
	if got := exec("sh", "-c", "mv /run/botbox/api.sock /run/botbox/other && "+quoted(box.ReadinessProbe.Exec.Command)); got.Code == 0 {
		t.Errorf("ready without a worker: %+v", got)
	}
	begin := time.Now()
	b.must(t, b.podman("stop", "--time", "30", id))
	if took := time.Since(begin); took > time.Duration(p.TerminationGracePeriodSeconds)*time.Second {
		t.Errorf("stopped in %v", took)
	}

	masked := box
	masked.SecurityContext.ProcMount = ""
	if got := b.run(t, "", p.flags(masked, volumes), "true"); got.Code != 125 || !strings.HasSuffix(got.Stderr, "reason: proc-masked\n") {
		t.Errorf("with parts of /proc masked: %+v", got)
	}
	weak := box
	weak.SecurityContext.Capabilities.Add = slices.DeleteFunc(slices.Clone(box.SecurityContext.Capabilities.Add), func(c string) bool { return c == "SETPCAP" })
	if got := b.run(t, "", p.flags(weak, volumes), "true"); got.Code != 100 || !strings.HasSuffix(got.Stderr, "reason: not-dropped\n") {
		t.Errorf("without SETPCAP: %+v", got)
	}
}

func quoted(argv []string) string {
	var words []string
	for _, word := range argv {
		words = append(words, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
	}
	return strings.Join(words, " ")
}
