package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// Fixture describes what botbox check laid out outside. Every path is the path
// outside, which is where it would be in a box without protection.
type Fixture struct {
	Marker string `json:"marker"` // random; in every canary's content, argv and environment

	DataDir      string   `json:"data_dir"`
	Database     string   `json:"database"`      // D1
	Config       string   `json:"config"`        // D2
	Login        string   `json:"login"`         // D3
	ServerSocket string   `json:"server_socket"` // D4, a unix stream socket
	OtherBotFile string   `json:"other_bot_file"`
	OtherToken   string   `json:"other_token_file"`
	PutBacks     []string `json:"put_backs"` // D7: the names that the box's data folder may hold

	OwnToken   string   `json:"own_token"`   // F05: of this conversation, read-only in the box
	CPUFiles   []string `json:"cpu_files"`   // F12: those of this machine
	HomeFile   string   `json:"home_file"`   // F14: in the account's HOME
	Closed     []string `json:"closed"`      // F19: "MAJOR:MINOR ROOT", as in mountinfo, of what is in no box
	WorkSource string   `json:"work_source"` // F19: of the work folder, in the same form
	Swapped    string   `json:"swapped"`     // F23: exchanged after it was checked
	StayPipe   string   `json:"stay_pipe"`   // P13: a FIFO that ends whoever reads it
	StayLock   string   `json:"stay_lock"`   // P13: locked by who stays
	SharedKey  int      `json:"shared_key"`  // P08: of a segment of shared memory
	BoxName    string   `json:"box_name"`    // P09: every box's host name
	Nameless   bool     `json:"nameless"`    // P09: but not on this machine
	// P19: the worker's cgroup has a path other than / in one of its trees.
	CgroupNamed bool `json:"cgroup_named"`

	CanaryPID  int               `json:"canary_pid"`
	Namespaces map[string]string `json:"namespaces"` // "pid" → "pid:[4026531836]", outside

	LoopbackPort   int      `json:"loopback_port"` // N1: a port of the host's 127.0.0.1
	HostAddress    string   `json:"host_address"`  // N3: ADDR:PORT of an interface of the host
	Routed         []string `json:"routed"`        // N4: addresses that the host has a route to
	NoRouteOutside bool     `json:"no_route_outside"`

	EgressPort    int    `json:"egress_port"`
	HarnessPort   int    `json:"harness_port"`
	InternalRoute string `json:"internal_route"` // N2: answered 200 through the gate
	OtherRoute    string `json:"other_route"`    // N2: to be refused by it

	LoopbackV6  int    `json:"loopback_v6"`  // N02: a port of ::1 outside; 0: there is no ::1
	MappedPort  int    `json:"mapped_port"`  // N02: a port of 127.0.0.1 outside
	UDPPort     int    `json:"udp_port"`     // N04: a port of 127.0.0.1 outside that answers datagrams
	Abstract    string `json:"abstract"`     // N07: the name of a socket outside
	Far         string `json:"far"`          // N10: ADDR:PORT that the egress gate lets through
	FarSays     string `json:"far_says"`     // N10: what it answers
	FarName     string `json:"far_name"`     // N10: a name of it
	TurningName string `json:"turning_name"` // N12: a name whose second answer is this machine
	RelayPort   int    `json:"relay_port"`   // N17: where a redirect is delivered

	EnvCloud       []string `json:"env_cloud"`       // E1
	EnvCredentials []string `json:"env_credentials"` // E2
	EnvUnlisted    []string `json:"env_unlisted"`    // E3
	EnvLoaders     []string `json:"env_loaders"`     // E02
	EnvAgents      []string `json:"env_agents"`      // E05
	EnvRandom      []string `json:"env_random"`      // E06
	EnvListed      string   `json:"env_listed"`      // E03: passes, and holds the marker

	TmpFile    string `json:"tmp_file"`     // T1
	VarTmpFile string `json:"var_tmp_file"` // T2
	RunFile    string `json:"run_file"`     // T2
	ShmFile    string `json:"shm_file"`     // F29

	ReadOnly []string `json:"read_only"` // W1: folders on a read-only mount
	Unbound  []string `json:"unbound"`   // W1: folders of the user outside, not in the box
	WorkDir  string   `json:"work_dir"`
	BotDir   string   `json:"bot_dir"`

	KeyA       string   `json:"key_a"`
	KeyB       string   `json:"key_b"`
	KeyName    string   `json:"key_name"`      // the variable that holds the token in place of the key
	BaseName   string   `json:"base_url_name"` // the variable that holds the broker's address
	BrokerPort int      `json:"broker_port"`
	Call       string   `json:"call"`        // B4: the path below the base URL, "/v1/models"
	Ungranted  string   `json:"ungranted"`   // B6: a grant that this box lacks
	ScanExtra  []string `json:"scan_extra"`  // B2: more folders to search
	UpstreamOK string   `json:"upstream_ok"` // B4: what the upstream's answer holds when the key was right

	ForeignToken string   `json:"foreign_token"` // B10: of another box
	DeadTokens   []string `json:"dead_tokens"`   // B08: revoked, expired
	Decoy        string   `json:"decoy"`         // B07 B13: ADDR:PORT outside that no key may reach

	SessionKey   string `json:"session_key"`    // S10: the name of a key in the session of whoever starts the box
	NoSessionKey string `json:"no_session_key"` // S10: why none could be planted

	Landlock int    `json:"landlock"` // the version of the kernel's
	Walled   string `json:"walled"`   // S15: in the box, on a writable mount, and not among what may be written
	Pids     int    `json:"pids"`     // L01: how many processes the box may have
	Nofile   int    `json:"nofile"`   // L03: how many open files one of them may have
	TmpMB    int    `json:"tmp_mb"`   // L05: the size of /tmp
	FileMB   int    `json:"file_mb"`  // L06: the size of the largest file

	inherited []string // what was open when the probe began
	path      string   // of the fixture itself
}

func readFixture(path string) (*Fixture, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the fixture: %w", err)
	}
	f, err := parseFixture(text)
	if err == nil {
		f.path = path
	}
	return f, err
}

func parseFixture(text []byte) (*Fixture, error) {
	f := new(Fixture)
	if err := json.Unmarshal(text, f); err != nil {
		return nil, fmt.Errorf("read the fixture: %w", err)
	}
	if f.Marker == "" {
		return nil, errors.New("read the fixture: it has no marker")
	}
	if _, err := f.key(); err != nil {
		return nil, fmt.Errorf("read the fixture: %w", err)
	}
	return f, nil
}

// key puts the key together. It is nil when the fixture has none.
func (f *Fixture) key() ([]byte, error) {
	a, errA := hex.DecodeString(f.KeyA)
	b, errB := hex.DecodeString(f.KeyB)
	if errA != nil || errB != nil || len(a) != len(b) {
		return nil, errors.New("key_a and key_b are not hex of one length")
	}
	for i := range a {
		a[i] ^= b[i]
	}
	return a, nil
}
