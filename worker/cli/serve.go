package cli

import (
	"context"
	"crypto/rand"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
	"github.com/openmausbot/botbox/worker/internal/api"
	"github.com/openmausbot/botbox/worker/internal/audit"
	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/cgroup"
	"github.com/openmausbot/botbox/worker/internal/control"
	"github.com/openmausbot/botbox/worker/internal/events"
	"github.com/openmausbot/botbox/worker/internal/journal"
	"github.com/openmausbot/botbox/worker/internal/lease"
	"github.com/openmausbot/botbox/worker/internal/turn"
	"github.com/openmausbot/botbox/worker/internal/vault"
)

// worker is a running `botbox serve`.
type worker struct {
	call     *call
	account  account
	runner   *turn.Runner
	store    *broker.Store
	audit    *audit.Log
	journal  *journal.Log
	log      *slog.Logger
	channel  *control.Channel // nil without a supervisor
	handover control.Handover
	state    *state
	self     *os.File // this program; with users of bots only
	moving   hands
}

// serveVerb is the worker. Its order is: no root, no keys in sight, a folder of
// our own, the database, the runner, and only then a socket that takes specs.
func serveVerb(c *call, args []string) (int, error) {
	var supervised, quiet bool
	rest, err := c.parse("serve", args, func(set *flag.FlagSet) {
		set.BoolVar(&supervised, "control", false, "take orders from botbox-supervisor on descriptors 3 to 6")
		set.BoolVar(&quiet, "quiet", false, "say warnings only, where stderr is a box's own")
	})
	if err == nil {
		err = noWords(rest)
	}
	if err != nil {
		return 0, err
	}
	a, programs, err := c.enter("boxentry", "boxprobe")
	if err == nil {
		err = closeToOthers()
	}
	if err != nil {
		return 0, err
	}
	w, err := c.newWorker(a, programs[0], supervised, quiet)
	if err != nil {
		return 0, err
	}
	defer w.close()
	w.state = &state{w: w, entry: programs[0], probe: programs[1], stop: make(chan struct{})}
	w.runner.Off = w.state.off
	if err := w.state.openKeys(); err != nil {
		return 0, err
	}
	return 0, w.serve()
}

func (c *call) newWorker(a account, entry box.Program, supervised, quiet bool) (_ *worker, err error) {
	w := &worker{call: c, account: a, handover: control.Handover{BootKey: newBootKey(), Drain: c.settings.drain()}}
	if supervised {
		if strings.HasPrefix(c.settings.SecretsDir, "fd:") { // those that there are have other uses
			return nil, reason.New(reason.BadSetting, "OMB_SECRETS_DIR: the supervisor hands no descriptor on, so it has to be a folder")
		}
		if w.channel, w.handover, err = control.Open(); err != nil {
			return nil, err
		}
	}
	unix.Umask(0o077)
	if w.journal, err = journal.Open(c.settings.Log, c.stderr); err != nil {
		return nil, err
	}
	if quiet {
		w.journal.Hush(c.settings.Log)
	}
	w.log = slog.New(w.journal.Handler())
	for _, dir := range []string{c.settings.runDir(), c.settings.stateDir(w.account.home)} {
		if err := makeFolder(dir); err != nil {
			return nil, err
		}
	}
	old, err := w.openStore()
	if err != nil {
		return nil, err
	}
	if w.audit, err = audit.Open(c.settings.stateDir(w.account.home)); err != nil {
		return nil, err
	}
	w.runner, err = c.newRunner(entry, w.account, broker.Options{BootKey: w.handover.BootKey, Store: w.store, Log: w.brokered}, w.log)
	if err != nil {
		return nil, err
	}
	if err := w.giveUsers(); err != nil {
		return nil, err
	}
	w.runner.Count = func(name string) { w.store.Add(name, 1) }
	w.runner.Events = events.New(events.Size)
	w.rule(supervised)
	return w, w.takeBack(old)
}

// rule takes the worker's cgroup over, if it was delegated: the supervisor,
// which is in it too, then has to move along.
func (w *worker) rule(supervised bool) {
	beside := 0
	if supervised {
		beside = os.Getppid()
	}
	if w.runner.Groups, w.runner.NoGroups = cgroup.Take(beside); w.runner.NoGroups != nil {
		w.log.Info("boxes can have no limit of memory and CPU", slog.String("cause", w.runner.NoGroups.Error()))
	}
}

// openStore opens the database, and gives the grants that a worker of the same
// boot left in it.
func (w *worker) openStore() ([]broker.Record, error) {
	var err error
	if w.store, err = broker.OpenStore(filepath.Join(w.call.settings.stateDir(w.account.home), "botbox.db")); err != nil {
		return nil, err
	}
	old, _, err := w.store.Recover(w.handover.BootKey)
	return old, err
}

// takeBack goes on with the boxes that outlived a worker, and revokes the
// grants of those that did not.
func (w *worker) takeBack(old []broker.Record) error {
	w.runner.Broker.Adopt(old)
	if w.channel != nil {
		v, err := vault.Open(control.FdVault)
		if err != nil {
			return reason.New(reason.System, "open the vault: %w", err)
		}
		deposits, err := v.Take()
		if err != nil {
			return reason.New(reason.System, "take back what is in the vault: %w", err)
		}
		w.runner.Vault = v
		go v.Listen(func(string) { w.log.Warn("the vault is full: a box will not outlive this worker") })
		w.runner.TakeBack(deposits)
	}
	var boxes []string
	for _, r := range old {
		boxes = append(boxes, r.BoxNames()...) // none of an MCP lease that waits for its conversation
	}
	gone := w.runner.Orphans(boxes)
	for _, id := range gone {
		w.runner.Broker.Revoke(id)
	}
	if len(gone) > 0 {
		w.store.Add("grants_lost", uint64(len(gone)))
		w.log.Warn("the grants of boxes that are no more are revoked", slog.Int("grants", len(gone)))
	}
	return nil
}

func (w *worker) close() {
	w.runner.Broker.Close()
	w.audit.Close()
	w.store.Close()
	w.journal.Close(time.Second)
}

// serve runs until it is told to stop, and leaves no box behind.
func (w *worker) serve() error {
	runDir := w.call.settings.runDir()
	if err := takeOver(runDir); err != nil {
		return err
	}
	host, err := w.listenToHost() // it may be refused, and nobody has been let in yet
	if err != nil {
		return err
	}
	leases, err := lease.Listen(runDir)
	if err != nil {
		return err
	}
	defer leases.Close()
	requests, err := api.Listen(runDir)
	if err != nil {
		return err
	}
	defer requests.Close() // here, for at the end nobody waits for the server
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	server := &api.Server{Runner: w.runner, Report: w.state.report, Check: w.state.check, Signed: w.state.signed, Move: w.moveFiles}
	go lease.Serve(leases, w.runner)
	go server.Serve(ctx, requests)
	if host != nil {
		defer host.Close()
		go w.serveHost(ctx, host)
	}
	journal.WorkerStarted.Log(w.log, slog.String("build", wire.Build), slog.String("user", w.account.name))
	logSteps(w.log, w.handover.Steps)
	go w.state.watch() // what it finds is for later: no spec waits for it
	w.wait(ctx)
	journal.WorkerStopped.Log(w.log)
	return nil
}

// wait returns when the worker has to end, with all boxes ended.
func (w *worker) wait(ctx context.Context) {
	// Caught and thrown away, not ignored: what is ignored stays so in every
	// box that this process starts.
	deaf := []os.Signal{syscall.SIGHUP, syscall.SIGPIPE}
	if w.channel == nil {
		signal.Notify(make(chan os.Signal, 1), deaf...)
		waitForStop()
	} else {
		// The supervisor decides; a terminal's INT and QUIT are the engine's.
		signal.Notify(make(chan os.Signal, 1), append(deaf, syscall.SIGINT, syscall.SIGQUIT)...)
		w.channel.Ready()
		if err := w.channel.Run(ctx, orders{w}); err != nil {
			w.log.Error("the control channel has ended", slog.String("cause", err.Error()))
		}
	}
	close(w.state.stop) // first, for whoever kills us waits for the drain alone
	w.runner.Drain(w.handover.Drain)
	w.state.end()
}

// waitForStop returns at the first stop signal; the second one means now.
func waitForStop() {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	<-signals
	go func() {
		<-signals
		os.Exit(reason.ExitSignalOffset + int(syscall.SIGKILL))
	}()
}

// takeOver removes the sockets of a worker that is gone, and refuses to push
// aside one that lives.
func takeOver(runDir string) error {
	for _, name := range []string{lease.SocketName, api.SocketName} {
		path := filepath.Join(runDir, name)
		if lease.Alive(path) {
			return reason.New(reason.NotYours, "another worker listens on %s", path).
				WithHint("stop it, or give this one its own OMB_RUN_DIR")
		}
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return reason.New(reason.System, "remove the old socket %s: %w", path, err)
		}
	}
	return nil
}

// brokered logs what the broker decided: everything for an audit, and what
// somebody should look at in the log.
func (w *worker) brokered(e broker.Event) {
	w.audit.Add(audited(e))
	logBroker(w.log, e)
}

// newBootKey is the key of a worker that no supervisor started: it seals this
// worker's grants and dies with it.
func newBootKey() (key [32]byte) {
	rand.Read(key[:])
	return key
}
