package reason

// The codes. The seed's five (switched-off, not-cloud, not-linux, no-bwrap,
// userns-refused) keep their names; the refusals of a spec are spelled with
// underscores because drivers already match them.
const (
	// Use and configuration.
	Usage          Code = "usage"
	BadSetting     Code = "bad-setting"
	BadSpec        Code = "bad_spec"
	PathRefused    Code = "path_refused"
	ArgvFile       Code = "argv_file_missing"
	LocalVM        Code = "local_vm_refused"
	WorkFolder     Code = "work-folder"
	NoUser         Code = "no-user"
	NoBoxUser      Code = "no-box-user"
	NotRoot        Code = "not-root"
	NotYours       Code = "not-yours"
	NoWorker       Code = "no-worker"
	NoSuchBox      Code = "no-such-box"
	NoSuchRoute    Code = "no-such-route"
	NoSuchSecret   Code = "no-such-secret"
	NoSuchTalk     Code = "no-such-conversation"
	MCPStartFailed Code = "mcp_start_failed"
	MCPFailed      Code = "mcp_failed"
	AuditBroken    Code = "audit-broken"
	NoAudit        Code = "no-audit"
	ReportKey      Code = "report-key"
	ReportForged   Code = "report-forged"
	BadRedirect    Code = "bad_redirect"
	NoRelay        Code = "no_relay"
	StoreLocked    Code = "store-locked"
	NoVsock        Code = "no-vsock"
	VersionSkew    Code = "version-skew"
	MissingProgram Code = "missing-program"

	// What a program in a box hears.
	EgressRefused Code = "egress-refused"

	// The supervisor.
	NotHardened    Code = "not-hardened"
	NotDropped     Code = "not-dropped"
	WorkerStopping Code = "worker-stopping"
	WorkerCrashes  Code = "worker-crashes"

	// A Linux user per bot.
	BotUsersRange   Code = "bot-users-range"
	BotUsersFull    Code = "bot-users-full"
	BotUsersRefused Code = "bot-users-refused"
	BotUsersOff     Code = "bot-users-off"
	BotUserPath     Code = "bot-user-path"
	BotUserBusy     Code = "bot-user-busy"
	BotUserTree     Code = "bot-user-tree"

	// Why there is no box.
	SwitchedOff       Code = "switched-off"
	NotCloud          Code = "not-cloud"
	NotLinux          Code = "not-linux"
	NoBwrap           Code = "no-bwrap"
	BwrapSetuid       Code = "bwrap-setuid"
	BwrapTooOld       Code = "bwrap-too-old"
	BwrapUnsafe       Code = "bwrap-unsafe"
	BwrapNotRunnable  Code = "bwrap-not-runnable"
	UsernsRefused     Code = "userns-refused"
	UsernsLimit       Code = "userns-limit"
	UsernsLSM         Code = "userns-apparmor"
	UsernsSysctl      Code = "userns-sysctl"
	UsernsSeccomp     Code = "userns-seccomp"
	MountRefused      Code = "mount-refused"
	ProcMasked        Code = "proc-masked"
	NetRefused        Code = "net-refused"
	ProbeTimeout      Code = "probe-timeout"
	BoxOff            Code = "box_off"
	CheckFailed       Code = "check-failed"
	BoxFailed         Code = "box-failed"
	LimitsUnavailable Code = "limits-unavailable"
	TooManyBoxes      Code = "too_many_boxes"

	// The sign-in relay, and a browser's debugging port.
	RelayNotReady Code = "relay_not_ready"
	RelayBusy     Code = "relay_busy"
	RelayFailed   Code = "relay_failed"
	PortTaken     Code = "port_taken"

	// The machine and ourselves.
	System   Code = "system"
	Internal Code = "internal"

	// BrokerUnreachable: an MCP server answers us, and not through the broker.
	BrokerUnreachable Code = "broker_unreachable"
)

var table = []Row{
	{Usage, ExitUsage, "the command line is wrong", "see botbox --help"},
	{BadSetting, ExitUsage, "a setting in the environment has a value that we do not understand", "correct or unset the variable that is named"},
	{BadSpec, ExitUsage, "the spec of a turn is malformed or asks for something unknown", "correct the field that is named"},
	{PathRefused, ExitUsage, "a path that was asked for may not enter a box", "name the folder that the turn really needs"},
	{ArgvFile, ExitUsage, "a file that the command line names is missing or is not a plain file", "write the file before asking for the box"},
	{LocalVM, ExitUsage, "a Local VM needs the container runtime's socket, which no box has", "use this computer or a Cloud computer, or turn the box off for Local VM work"},
	{WorkFolder, ExitUsage, "the work folder is missing, or the user that boxes run as cannot write it", "name another folder with --cwd, or give this one to that user"},
	{NoUser, ExitUsage, "the account that the worker runs as does not exist", "create it: useradd --system --create-home --shell /usr/sbin/nologin maus"},
	{NoBoxUser, ExitUsage, "called by root, and there is no ordinary user to run boxes as", "create one: useradd --system --create-home --shell /usr/sbin/nologin maus"},
	{NotRoot, ExitUsage, "the supervisor hardens the machine and must start as root", "start it as root, or use botbox run, which needs no root"},
	{NotYours, ExitUsage, "a file or folder of ours belongs to somebody else, or others can write it", "remove it, choose another place in the setting that is named, or give the capability that is named"},
	{NoWorker, ExitUsage, "no worker listens there", "start one: botbox serve"},
	{NoSuchBox, ExitUsage, "no running box has this name", "see botbox ps"},
	{StoreLocked, ExitUsage, "another worker has the state file open", "stop that worker, or give this one another OMB_STATE_DIR"},
	{NoVsock, ExitUsage, "OMB_VSOCK_PORT is set on a machine without vsock to a host above it", "unset OMB_VSOCK_PORT; or give the virtual machine a vsock device, and a container the device /dev/vsock"},
	{BadRedirect, ExitUsage, "the redirect of a sign-in is not one that may be delivered into a box", "paste it whole: http://127.0.0.1:PORT/… or http://localhost:PORT/…, with a port from 1024 on"},
	{NoRelay, ExitUsage, "this box has no sign-in relay", "ask for it in the box's spec: net.relay"},
	{NoSuchRoute, ExitUsage, "the worker's interface has no such path or method", "correct the path; GET /api/cloud/box is one that there is"},
	{NoSuchSecret, ExitUsage, "no living grant has its key from a secret of this name", "name the secret as the spec of a running turn does, without ref:, or none for all"},
	{NoSuchTalk, ExitUsage, "no living address of an MCP server belongs to this conversation", "name the conversation as its turns do; addresses live 24 hours"},
	{MCPStartFailed, ExitSystem, "an engine could not start an MCP server of its conversation", "it connects again on the next message, at another address; see botbox mcp test URL"},
	{MCPFailed, ExitSystem, "an MCP server does not answer as one", "correct its address or its headers; the words before say what it answered"},
	{BrokerUnreachable, ExitSystem, "an MCP server answers this machine, and does not answer through the credential broker, so no bot can reach it", "the fault is ours; please report it with the line above"},
	{AuditBroken, ExitSystem, "the chain of the audit log is broken: a line was changed, taken out or put in", "keep the files as they are, and compare the report's audit.head with one that left the machine earlier"},
	{NoAudit, ExitUsage, "there is no audit log in the state folder", "name the worker's folder in OMB_STATE_DIR; a box that stands alone keeps no audit log"},
	{ReportKey, ExitUsage, "the key that signs this machine's reports is not usable", "restore the file that is named, with mode 0600; or move it away: then a new key is made, and whoever verifies reports has to be told of it"},
	{ReportForged, ExitSystem, "a signed report is not what this machine's worker signed", "do not believe it; fetch it again from the machine: botbox report --signed"},
	{VersionSkew, ExitUsage, "two of our programs come from different builds", "install all four programs from one build and restart the worker"},
	{MissingProgram, ExitUsage, "one of our own programs is not beside this one nor in /usr/libexec/botbox", "install all four programs together"},

	{EgressRefused, ExitUsage, "the egress gate does not let this box reach that host", "see botbox why host HOST:PORT outside the box"},

	{NotHardened, ExitUsage, "a boot step did not end well, and it must or OMB_CLOUD_HARDEN=strict says so", "correct what the step names, or set OMB_CLOUD_HARDEN=1 to go on with a report of it"},
	{NotDropped, ExitUsage, "the supervisor could not give its privileges up, or not all of them", "start it as root with CAP_SETUID, CAP_SETGID, CAP_KILL and CAP_SETPCAP and nothing odd in its capability sets"},
	{WorkerStopping, ExitSystem, "the worker is stopping, and gives no box any more", "ask the next one"},
	{WorkerCrashes, ExitSystem, "the worker fails again and again", "see the worker's last lines above; run botbox doctor"},

	{BotUsersRange, ExitUsage, "the user ids that bots are to have are taken, or could be given away by others", "name a free range in OMB_BOT_USERS_RANGE, such as 300000-365535, or correct what is named"},
	{BotUsersFull, ExitSystem, "every user id of the range belongs to a bot already; none is given to a second one", "a larger OMB_BOT_USERS_RANGE needs an empty table: see SECURITY.md"},
	{BotUsersRefused, ExitNoBox, "a box with a Linux user of its own cannot be made here, and OMB_BOT_USERS=1 wants no other", "see the cause that is named; OMB_BOT_USERS=0 runs all boxes as one user"},
	{BotUsersOff, ExitUsage, "bots have no Linux users of their own here", "start botbox-supervisor with OMB_BOT_USERS=1"},
	{BotUserPath, ExitUsage, "the bot's own Linux user cannot reach or write something that its box needs", "give the bot its workspace: botbox bot adopt BOT"},
	{BotUserBusy, ExitUsage, "a bot's files cannot change hands while it has a box", "wait for its boxes to end: botbox ps"},
	{BotUserTree, ExitUsage, "a workspace holds something that cannot change hands", "remove what is named, and ask again"},

	{SwitchedOff, ExitNoBox, "OMB_BOT_BOX=0 turns the box off", "unset OMB_BOT_BOX or set it to 1"},
	{NotCloud, ExitNoBox, "the box is on by default on a Cloud home only, and this is none", "set OMB_BOT_BOX=1"},
	{NotLinux, ExitNoBox, "the box needs Linux", "run it on a Linux machine"},
	{NoBwrap, ExitNoBox, "bubblewrap is not installed", "install it: apt-get install bubblewrap"},
	{BwrapSetuid, ExitNoBox, "this bubblewrap is setuid root, which we never use", "take the bit away: chmod u-s on the program that is named"},
	{BwrapTooOld, ExitNoBox, "this bubblewrap lacks options that the box needs", "install bubblewrap 0.8.0 or newer with the fix for CVE-2024-42472 (--bind-fd)"},
	{BwrapUnsafe, ExitNoBox, "others can replace this bubblewrap", "use the distribution's, owned by root and writable by root only"},
	{BwrapNotRunnable, ExitNoBox, "this bubblewrap cannot be run here", "install the distribution's, for this processor and runnable by everybody (chmod 755)"},
	{UsernsRefused, ExitNoBox, "the kernel refuses unprivileged user namespaces, and no closer cause was found", "see botbox doctor; in a container, what its runtime may refuse: AppArmor, SELinux, seccomp"},
	{UsernsSysctl, ExitNoBox, "a setting of this kernel refuses unprivileged user namespaces", "allow them: sysctl -w kernel.unprivileged_userns_clone=1"},
	{UsernsSeccomp, ExitNoBox, "a system-call filter around this process refuses namespaces: a container's or a service's", "start the container with --security-opt seccomp=unconfined, or with --cap-add SYS_ADMIN and, in Docker, --security-opt seccomp=init/docker-seccomp.json (Kubernetes: seccompProfile Unconfined); the service with RestrictNamespaces=no"},
	{UsernsLimit, ExitNoBox, "no user namespace is left", "raise it: sysctl -w user.max_user_namespaces=15000"},
	{UsernsLSM, ExitNoBox, "AppArmor refuses user namespaces to bubblewrap", "install init/apparmor/bwrap as /etc/apparmor.d/bwrap and run apparmor_parser -r on it"},
	{MountRefused, ExitNoBox, "the kernel gives user namespaces, and refuses mounts in them", "start the container with --security-opt apparmor=unconfined (with SELinux: label=disable; Kubernetes: appArmorProfile Unconfined)"},
	{ProcMasked, ExitNoBox, "parts of /proc are masked here, so no box can have a /proc of its own", "start the container with --security-opt systempaths=unconfined (podman: unmask=ALL; Kubernetes: procMount: Unmasked)"},
	{NetRefused, ExitNoBox, "the kernel refuses a network namespace with a loopback of its own", "allow network namespaces in this container"},
	{ProbeTimeout, ExitNoBox, "bubblewrap did not answer in time", "see what holds it: run bwrap --version by hand"},
	{BoxOff, ExitNoBox, "the box is off on this machine", "see botbox detect"},
	{CheckFailed, ExitNoBox, "the self-check of this machine's box failed, so the worker gives none", "see botbox check; OMB_CHECK_FAILED=warn gives boxes all the same"},
	{BoxFailed, ExitNoBox, "the box could not be built", "see botbox detect, and what bubblewrap said before this"},
	{LimitsUnavailable, ExitNoBox, "a limit that was asked for cannot be held here, and a limit is never ignored", "give the box a cgroup of its own: systemd-run --user --scope -p Delegate=yes botbox run …; for a worker, Delegate=yes in its unit"},
	{TooManyBoxes, ExitSystem, "as many boxes are open as this worker allows", "wait for one to end"},
	{RelayNotReady, ExitSystem, "nobody in the box waits for the redirect of a sign-in", "start the sign-in in the box first, then send the redirect that belongs to it"},
	{RelayBusy, ExitSystem, "another redirect is on its way into this box", "wait for its answer"},
	{RelayFailed, ExitSystem, "whoever waits for the redirect in the box did not answer as a server does", "start the sign-in again; its code may be spent"},
	{PortTaken, ExitSystem, "another program of this machine has the port", "name another port, or 0 for one that is free"},

	{System, ExitSystem, "the system refused", "try again; if it persists, see the cause that is named"},
	{Internal, ExitSystem, "a fault of ours", "please report it with the line above"},
}
