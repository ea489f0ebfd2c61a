package schema

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("../../init/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// decode reads each document into the type that its kind names.
func decode(manifest string) (set *apps.StatefulSet, err error) {
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return nil, err
		}
		var into any
		switch kind.Kind {
		case "Service":
			into = new(core.Service)
		case "StatefulSet":
			set = new(apps.StatefulSet)
			into = set
		default:
			return nil, os.ErrInvalid
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// TestKubernetes: the manifest is of the types' fields alone, and a misspelt one
// would be seen.
func TestKubernetes(t *testing.T) {
	manifest := read(t, "kubernetes.yaml")
	if set, err := decode(manifest); err != nil || set == nil {
		t.Fatal(err)
	}
	for _, fault := range [][2]string{
		{"procMount:", "procmounts:"},
		{"hostUsers: false", "hostUser: false"},
		{"clusterIP:", "clusterIp2:"},
		{"replicas: 1", "replicas: one"},
		{"kind: StatefulSet", "kind: StatefulSets"},
		{"secretName:", "name:"},
		{"hostUsers: false", "hostUsers: false\n      hostUsers: true"},
	} {
		if !strings.Contains(manifest, fault[0]) {
			t.Fatalf("the manifest has no %q", fault[0])
		}
		if _, err := decode(strings.Replace(manifest, fault[0], fault[1], 1)); err == nil {
			t.Errorf("%q is taken", fault[1])
		}
	}
}

// TestPod: what the pod promises beside being well-formed.
func TestPod(t *testing.T) {
	set, err := decode(read(t, "kubernetes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	box := pod.Containers[0]
	env := map[string]string{}
	for _, e := range box.Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil {
			t.Errorf("%s comes into the environment; keys are files", e.Name)
		}
	}
	drain, err := strconv.ParseInt(env["OMB_DRAIN_SECONDS"], 10, 64)
	if err != nil || pod.TerminationGracePeriodSeconds == nil || *pod.TerminationGracePeriodSeconds <= drain {
		t.Errorf("the pod is killed before its boxes have had OMB_DRAIN_SECONDS: %v %v", env, err)
	}
	if env["OMB_BOT_BOX"] != "1" {
		t.Error("the box is not on")
	}
	sc := box.SecurityContext
	// The API server: "hostUsers must be false to use Unmasked".
	if *sc.ProcMount != core.UnmaskedProcMount || *pod.HostUsers {
		t.Error("/proc is unmasked with users of the node, or masked")
	}
	if sc.Privileged != nil || pod.HostPID || pod.HostNetwork || pod.HostIPC || *pod.AutomountServiceAccountToken {
		t.Error("the pod is given more than it needs")
	}
	caps := sc.Capabilities
	if !slices.Equal(caps.Drop, []core.Capability{"ALL"}) || !slices.Contains(caps.Add, "SYS_ADMIN") || !*sc.AllowPrivilegeEscalation {
		t.Errorf("capabilities %v", caps)
	}
	mounts := map[string]string{}
	for _, m := range box.VolumeMounts {
		mounts[m.MountPath] = m.Name
	}
	if dir := env["OMB_SECRETS_DIR"]; mounts[dir[:strings.LastIndex(dir, "/")]] == "" {
		t.Errorf("the keys of %s come from no volume: %v", dir, mounts)
	}
	if mounts["/var/lib/botbox"] != set.Spec.VolumeClaimTemplates[0].Name {
		t.Error("the state does not outlive the pod")
	}
	if len(pod.Containers) != 1 || box.ReadinessProbe.Exec == nil || box.LivenessProbe.Exec == nil {
		t.Error("one pair, and probes by its own verbs")
	}
}

// TestPodForTheBed: testbed/image runs the pod with podman and reads no YAML; it
// has the pod's spec as the API server would give it.
func TestPodForTheBed(t *testing.T) {
	set, err := decode(read(t, "kubernetes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(set.Spec.Template.Spec, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "../image/testdata/pod.json", append(text, '\n'))
}
