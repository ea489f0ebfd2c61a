module github.com/openmausbot/botbox

go 1.26.0

// Runtime.
require (
	// The journal and sd_notify in pure Go; the root binary links only daemon.
	github.com/coreos/go-systemd/v22 v22.7.0
	// The worker's settings by struct tag; worker/config.go alone uses it.
	github.com/kelseyhightower/envconfig v1.4.0
	// The report for the machine's host: AF_VSOCK as a net.Listener, which net does not have.
	github.com/mdlayher/vsock v1.4.0
	// The worker's one file: counters and sealed grants that survive a crash.
	go.etcd.io/bbolt v1.5.0
	// System calls that the standard library does not wrap: openat2, pidfd, prctl.
	golang.org/x/sys v0.50.0
)

// Tests only.
// A terminal for the tests of job control and of typing on it.
require github.com/creack/pty v1.1.24

// What they bring.
require (
	// mdlayher/vsock: sockets of other families in Go's poller.
	github.com/mdlayher/socket v0.8.0 // indirect
	// mdlayher/socket: the form of a packet filter, which nothing of ours sets.
	golang.org/x/net v0.62.0 // indirect
	// mdlayher/socket: a goroutine for a socket of another network namespace, which ours never is.
	golang.org/x/sync v0.24.0 // indirect
)
