package layers

const (
	everyBox = "every box"
	rebuild  = "give no box to a bot until it passes; run botbox doctor, and compare bubblewrap and the kernel with the last report that was good"
)

var table = []Row{
	{
		ID: "mounts", Name: "mount namespace (bubblewrap)", Where: everyBox,
		Stops: "reading the data folder, other bots' folders, other turns' files, HOME, `/.fly`, `/sys`; setuid programs",
		Not: []Gap{
			{"reading `/usr`, `/etc`, `/opt`", "worker.TestGapABoxReadsTheSystem"},
			{"the named engine's sign-in folder under HOME, which the engine needs: reading, using and changing what is in it", "worker.TestGapAnEnginesSignInIsInItsBox"},
			{"what a driver puts back on purpose", "worker.TestGapWhatADriverPutsBack"},
			{"what root mounts, while the box runs, below a folder that the box sees, where the machine shares its mounts (systemd does)", "worker.TestGapAMountMadeLater"},
		},
		Checks: []string{"D1", "D2", "D3", "D4", "D5", "D6", "D7", "F11", "F18", "F05", "F12", "F13", "F14", "F15", "F16", "F17", "F19", "F20", "F22", "F23", "F24", "M03", "F31", "F32"},
		Means:  "a bot can read the server's data, or another bot's", Do: rebuild,
	},
	{
		ID: "private-tmp", Name: "private `/tmp`, `/var/tmp`, `/run`", Where: everyBox,
		Stops:  "reading another turn's or the machine's files there, and leaving any",
		Not:    []Gap{{"what a driver puts back from there on purpose", "worker.TestGapWhatADriverPutsBack"}},
		Checks: []string{"T1", "T2", "F10", "F29"},
		Means:  "a bot sees other turns' temporary files and sockets", Do: rebuild,
	},
	{
		ID: "writable-folders", Name: "writable folders", Where: everyBox,
		Stops:  "writing anywhere but the work folder, the bot's own and what was asked for with `--rw`",
		Not:    []Gap{{"what a bot leaves in its work folder for others to run", "worker.TestGapTheWorkFolderIsTheBots"}},
		Checks: []string{"W1", "W2", "F08", "F25", "F26", "F27", "F28", "F30"},
		Means:  "a bot can change files that others run or read, or cannot write its own, or its egress gate lets it to this machine", Do: rebuild,
	},
	{
		ID: "pid-namespace", Name: "process and other namespaces", Where: everyBox,
		Stops:  "seeing, reading or signalling other turns', the worker's and the machine's processes; outliving its engine",
		Not:    []Gap{{"anything inside the same box", "worker.TestGapABoxIsOneBot"}},
		Checks: []string{"P1", "P2", "P3", "P4", "P07", "P02", "P04", "P08", "P09", "P13", "P19", "P12"}, Shown: []string{"worker.TestTheBoxEndsWithItsEngine"},
		Means: "a bot sees other processes: their command lines, their environment, their memory", Do: rebuild,
	},
	{
		ID: "network-namespace", Name: "network namespace and the two gates", Where: everyBox,
		Stops: "this machine, the local network, link-local, metadata, private networks by address; any server route but `/api/internal/`; any way out but the gates",
		Not: []Gap{
			{"a public destination (unless `--allow-host` or `net.egress` says so), and what is sent there", "worker.TestClientsWorkThroughTheGates"},
			{"what the harness routes allow with a valid bearer", "worker.TestTheHarnessGate"},
		},
		Checks: []string{"N1", "N2", "N3", "N4", "N5", "N02", "N04", "N07", "N08", "N09", "N10", "N11", "N12", "N13", "N14", "N15", "N16", "N17", "N18", "N19", "N20"}, Shown: []string{"worker.TestTheEgressGate"},
		Means: "a bot reaches this machine or its network directly", Do: rebuild,
	},
	{
		ID: "environment", Name: "environment allow-list", Where: everyBox,
		Stops:  "`OMB_CLOUD_*`, the server's placement, workspace credentials, loader variables, agent sockets, any unlisted name",
		Not:    []Gap{{"an engine's own settings; names that `--env` declares", "worker.TestGapNamesThatAreAskedFor"}},
		Checks: []string{"E1", "E2", "E3", "E02", "E03", "E04", "E05", "E06"},
		Means:  "a bot holds the server's settings or credentials", Do: rebuild,
	},
	{
		ID: "broker", Name: "credential broker", Where: "every box with its own network",
		Stops: "holding a provider's key; a token after its engine's end, in another box, or after 24 h; choosing the upstream; key-minting endpoints",
		Not: []Gap{
			{"spending the key's budget while the box runs", "worker.TestARotatedKeyReachesARunningBox"},
			{"credentials that nothing leads to the broker in their engine's box (named in the report)", "worker/internal/turn.TestNoCredentialIsRawAndUnnamed"},
			{"subscription sign-ins that `broker.logins` does not keep outside", "worker.TestGapAnEnginesSignInIsInItsBox"},
		},
		Checks: []string{"B1", "B2", "B3", "B4", "B5", "B6", "B07", "B08", "B09", "B10", "B11", "B12", "B13", "B14", "B15"}, Shown: []string{"worker.TestATokenDiesWithItsBox", "worker.TestAStolenTokenIsRevoked"},
		Means: "a bot holds a key, or can use one that it was not given", Do: "take the keys out of the worker's reach and exchange them at the provider; then " + rebuild,
	},
	{
		ID: "mcp", Name: "MCP through the broker", Where: "every box whose spec has URL servers (`broker.mcp`)",
		Stops: "holding a server's headers; choosing where they go; using another conversation's address; a server's challenge starting a sign-in of the engine's",
		Not: []Gap{
			{"what the server does when it is asked", "worker.TestMCPClientsWorkInABox"},
		},
		Shown: []string{"worker.TestMCPClientsWorkInABox", "worker.TestClaudeCodeLivesWithRefusals"},
	},
	{
		ID: "declared-hosts", Name: "declared hosts (`broker.hosts`, `--broker-host`)", Where: "a box that asks for it; its answer, a warning and the report (`broker.intercepted`) name each host",
		Stops: "holding the key; sending it to any other host, or inside of a URL, a text or a body; using the host with a credential of the box's own; reading it from the host's answer; trusting our root for any other name",
		Not: []Gap{{"what the host lets that key do: without `paths` every method and path is open, also where keys are made, and an answer's body enters the box with whatever sessions it hands out; see Known gaps",
			"worker.TestADeclaredHostInABox"}},
		Shown: []string{"worker.TestADeclaredHostInABox"},
	},
	{
		ID: "logins", Name: "sign-ins outside (`broker.logins`, `--broker-login`)", Where: "a box of Claude Code or Codex that asks for it",
		Stops: "holding the access token, the refresh token or the file of a subscription; naming another account",
		Not:   []Gap{{"spending the subscription while the box runs", "worker.TestASubscriptionStaysOutside"}},
		Shown: []string{"worker.TestASubscriptionStaysOutside"},
	},
	{
		ID: "seccomp", Name: "seccomp filter", Where: "every box, x86-64 and arm64",
		Stops:  "mount, modules, bpf, perf, userfaultfd, keyrings, io_uring, nested namespaces, vsock and other socket families, typing on the terminal; programs of another architecture are killed",
		Not:    []Gap{{"anything an engine, shell, git, npm or python uses", "worker.TestToolsWorkInABox"}},
		Checks: []string{"S01", "S02", "S03", "S04", "S05", "S06", "S07", "S08", "S09", "S10", "S11", "S12", "S13", "S14", "S17", "S18", "N06", "P10"}, Shown: []string{"worker.TestBug_seccompForeignModes"},
		Means: "a bot can call parts of the kernel that no engine needs and that attacks begin with", Do: rebuild,
	},
	{
		ID: "privileges", Name: "no privileges", Where: everyBox,
		Stops:  "capabilities, gaining any by running a program, files that whoever asked for the box had open",
		Not:    []Gap{{"a flaw of the kernel itself, which every box shares with the machine", ""}},
		Checks: []string{"P06", "P14", "P15", "P05", "P11", "P16", "P18"},
		Means:  "a bot can do what its user cannot, or holds files that it was not given", Do: rebuild,
	},
	{
		ID: "landlock", Name: "Landlock", Where: "every box, Linux 5.19 and later; the report says which version",
		Stops: "writing outside the folders that the plan made writable, even where a mount can be written; device ioctls outside `/dev` (6.10); abstract sockets and signals that leave the box (6.12)",
		Not: []Gap{
			{"reading: what a box sees is its mounts' affair", "boxprobe/internal/landlock.TestWhatStillWorks"},
			{"changing modes and times, which Landlock does not know", "boxprobe/internal/landlock.TestGapModesAndTimes"},
		},
		Checks: []string{"S15", "S16"},
		Means:  "the second wall around the writable folders is missing; the mounts are the first", Do: "use a kernel with Landlock of version 6 (Linux 6.12), with landlock in its lsm= list",
	},
	{
		ID: "limits", Name: "limits", Where: everyBox,
		Stops: "core files, a fork bomb, filling the machine's memory through a tmpfs, files without end; being the last to die when memory is short; with `file_mb` one huge file, with `disk_free_mb` a full disk",
		Not: []Gap{
			{"how much of a disk one box takes: see Known gaps", "worker.TestGapADiskHasNoQuota"},
			{"an engine that lowers its `oom_score_adj`, which is 500, again", "worker.TestGapAnEngineLowersItsScore"},
		},
		Checks: []string{"P17", "L02", "L01", "L03", "L04", "L05", "L06", "L07"}, Shown: []string{"worker.TestAForkBombStaysInItsBox", "worker.TestABoxDiesBeforeTheWorker", "worker.TestTheLargestFile", "worker.TestADiskIsNotFilled"},
		Means: "one bot can starve the others and the server", Do: "see what the row says of this machine's limits (ulimit -a of the worker), and restart the worker",
	},
	{
		ID: "cgroup", Name: "cgroup", Where: "boxes of a worker to which the supervisor gave a cgroup v2 (boot step `cgroup`), or that was given one (`Delegate=yes`), and of `botbox run --standalone --memory` or `--cpu` there",
		Stops: "memory and swap, processor time, processes; a box dies whole (`oom`, and `cgroup.kill` at its end); the worker freezing, bounding or moving the supervisor",
		Not: []Gap{
			{"boxes for which neither was asked", "worker.TestGapNoMemoryLimitUnlessAsked"},
			{"a caller outside the worker's part, or a place without one: asking is refused (`limits-unavailable`)", "worker.TestALimitThatCannotBeHeldIsRefused"},
		},
		Shown: []string{"step cgroup", "testbed/vm.TestFirstProcess"},
	},
	{
		ID: "bot-users", Name: "a Linux user per bot", Where: "every box of a worker of the supervisor's under `OMB_BOT_USERS=1`; the answer says `user: per-bot`",
		Stops: "a bot that is out of its box reading, writing or signalling what is another bot's, the worker's, the server's or the supervisor's by the rights of a common user; the asker's supplementary groups in a box",
		Not: []Gap{
			{"names that are open to everybody in folders that the bot's user was let through (`botbox bot adopt` counts them)", "supervisor.TestAWorkspaceChangesHands"},
			{"two boxes of one bot, which are one user", "supervisor.TestEachBotIsAUserOfItsOwn"},
		},
		Shown: []string{"step bot-users", "supervisor.TestABotIsAStrangerToAllOthers"},
	},
	{
		ID: "browser", Name: "browser's box and SOCKS gate", Where: "every Chrome that `botbox browser` starts",
		Stops: "the same destinations as for every box, by the same judgement; a key, a proxy variable or another bot's profile in it; Chrome's own ways round a proxy",
		Not: []Gap{
			{"what a page may reach in public", "worker.TestABrowserGetsOutThroughItsGateOnly"},
			{"`net.mode: shared`, which is the machine's network, asked for by name and shown in the report", "worker.TestSharedNetwork"},
		},
		Shown: []string{"worker.TestWhatABrowserBoxHolds", "worker.TestABrowserGetsOutThroughItsGateOnly"},
	},
	{
		ID: "ways-in", Name: "ways in: sign-in relay, debugging port", Where: "a box whose spec has `net.relay`; a browser with `browser.debug_port`",
		Stops: "the box choosing anything of it: port, time, where the worker connects; other ports of the box; other users of the machine at the debugging port; a code in a log",
		Not: []Gap{
			{"this user's other processes driving the browser", "worker.TestWhoReachesTheDebuggingPort"},
			{"what a hostile listener in the box answers, which is passed on as text, bounded", "worker.TestAHostileSigner"},
		},
		Shown: []string{"worker.TestWhatTheRelayRefuses", "worker.TestWhoReachesTheDebuggingPort"},
	},
	{
		ID: "loopback-upstreams", Name: "loopback upstreams", Where: "a box whose spec has `net.loopback_upstreams`",
		Stops: "any other port of this machine's loopback, the chat server's own, what is above the declared path, a credential of the client's",
		Not:   []Gap{{"what the declared server does when it is asked", "worker.TestALoopbackUpstream"}},
		Shown: []string{"worker.TestALoopbackUpstream", "worker.TestLoopbackUpstreamsThatAreRefused"},
	},
	{
		ID: "worker", Name: "the worker's own process", Where: "`botbox serve`, `check` and `run --standalone`",
		Stops:  "holding a capability, being root or becoming it again, gaining privileges from a program that it starts, being read by another process of its user",
		Not:    []Gap{{"holding every key while it runs, which is its work", "worker.TestARotatedKeyReachesARunningBox"}},
		Checks: []string{"M04", "M05"},
		Means:  "who gets out of a box as its user reads the worker's keys, or finds privileges there", Do: "start the worker through botbox-supervisor, or as an ordinary user; see that nothing around it changes prctl or uid",
	},
	{
		ID: "hidepid", Name: "`hidepid=invisible`", Where: "the machine",
		Stops: "a maus process outside a box seeing root's processes",
		Not:   []Gap{{"maus processes seeing each other, but for the worker, which is not dumpable", "supervisor.TestTheWorkerIsClosedToItsOwnUser"}},
		Shown: []string{"step hidepid"},
	},
	{
		ID: "fly", Name: "`/.fly` root-only", Where: "the machine",
		Stops: "a maus process reaching Fly's local API",
		Not:   []Gap{{"what root's processes ask of it", ""}},
		Shown: []string{"step fly"},
	},
	{
		ID: "drop", Name: "privilege drop", Where: "supervisor",
		Stops: "mounts, modules, ptrace, devices, new capabilities in anything it starts",
		Not:   []Gap{{"what uid 0 may do without capabilities: root's own files, `/proc/sys`. It is no boundary against a supervisor that was taken over", ""}},
		Shown: []string{"step drop", "step reexec"},
	},
}
