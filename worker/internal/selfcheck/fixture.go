package selfcheck

// fixture tells boxprobe what lies outside, and where. Every path is the one
// outside, which is where it would be in a box without protection. The fields
// are boxprobe's (a test compares them): the two programs share no package.
type fixture struct {
	Marker string `json:"marker"` // random; in every canary's content, argv and environment

	DataDir      string   `json:"data_dir"`
	Database     string   `json:"database"`
	Config       string   `json:"config"`
	Login        string   `json:"login"`
	ServerSocket string   `json:"server_socket"`
	OtherBotFile string   `json:"other_bot_file"`
	OtherToken   string   `json:"other_token_file"`
	PutBacks     []string `json:"put_backs"`

	OwnToken    string   `json:"own_token"`
	CPUFiles    []string `json:"cpu_files"`
	HomeFile    string   `json:"home_file"`
	Closed      []string `json:"closed"`
	WorkSource  string   `json:"work_source"`
	Swapped     string   `json:"swapped"`
	StayPipe    string   `json:"stay_pipe"`
	StayLock    string   `json:"stay_lock"`
	SharedKey   int      `json:"shared_key"`
	BoxName     string   `json:"box_name"`
	Nameless    bool     `json:"nameless"`
	CgroupNamed bool     `json:"cgroup_named"`

	CanaryPID  int               `json:"canary_pid"`
	Namespaces map[string]string `json:"namespaces"`

	LoopbackPort   int      `json:"loopback_port"`
	HostAddress    string   `json:"host_address"`
	Routed         []string `json:"routed"`
	NoRouteOutside bool     `json:"no_route_outside"`

	EgressPort    int    `json:"egress_port"`
	HarnessPort   int    `json:"harness_port"`
	InternalRoute string `json:"internal_route"`
	OtherRoute    string `json:"other_route"`

	LoopbackV6  int    `json:"loopback_v6"`
	MappedPort  int    `json:"mapped_port"`
	UDPPort     int    `json:"udp_port"`
	Abstract    string `json:"abstract"`
	Far         string `json:"far"`
	FarSays     string `json:"far_says"`
	FarName     string `json:"far_name"`
	TurningName string `json:"turning_name"`
	RelayPort   int    `json:"relay_port"`

	EnvCloud       []string `json:"env_cloud"`
	EnvCredentials []string `json:"env_credentials"`
	EnvUnlisted    []string `json:"env_unlisted"`
	EnvLoaders     []string `json:"env_loaders"`
	EnvAgents      []string `json:"env_agents"`
	EnvRandom      []string `json:"env_random"`
	EnvListed      string   `json:"env_listed"`

	TmpFile    string `json:"tmp_file"`
	VarTmpFile string `json:"var_tmp_file"`
	RunFile    string `json:"run_file"`
	ShmFile    string `json:"shm_file"`

	ReadOnly []string `json:"read_only"`
	Unbound  []string `json:"unbound"`
	WorkDir  string   `json:"work_dir"`
	BotDir   string   `json:"bot_dir"`

	KeyA       string   `json:"key_a"`
	KeyB       string   `json:"key_b"`
	KeyName    string   `json:"key_name"`
	BaseName   string   `json:"base_url_name"`
	BrokerPort int      `json:"broker_port"`
	Call       string   `json:"call"`
	Ungranted  string   `json:"ungranted"`
	ScanExtra  []string `json:"scan_extra"`
	UpstreamOK string   `json:"upstream_ok"`

	ForeignToken string   `json:"foreign_token"`
	DeadTokens   []string `json:"dead_tokens"`
	Decoy        string   `json:"decoy"`

	SessionKey   string `json:"session_key"`
	NoSessionKey string `json:"no_session_key"`

	Landlock int    `json:"landlock"`
	Walled   string `json:"walled"`
	Pids     int    `json:"pids"`
	Nofile   int    `json:"nofile"`
	TmpMB    int    `json:"tmp_mb"`
	FileMB   int    `json:"file_mb"`
}
