package cli

import (
	"log/slog"
	"os"
	"strconv"

	"github.com/openmausbot/botbox/worker/internal/box"
	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/login"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// newRunner puts together what boxes have in common, for the worker and for a
// box that stands alone.
func (c *call) newRunner(entry box.Program, a account, options broker.Options, log *slog.Logger) (*turn.Runner, error) {
	logins := login.NewStore(a.home)
	options.Login = func(name string) (broker.Login, error) {
		l, err := logins.Open(name)
		if err != nil {
			return nil, err // and no nil pointer in an interface
		}
		return l, nil
	}
	options.OwnPort = uint16(c.settings.Port)
	brk, err := broker.New(options)
	if err != nil {
		return nil, err
	}
	egress, err := c.settings.egress()
	if err != nil {
		return nil, err
	}
	secrets, err := c.settings.openSecrets()
	if err != nil {
		return nil, err
	}
	c.secrets = secrets
	harness := int(c.settings.Port)
	spawner, path, machine := box.NewSpawner(), os.Getenv("PATH"), c.machine(a)
	machine.Nameless = spawner.Nameless(path, entry)
	return &turn.Runner{
		Spawner: spawner,
		Path:    path,
		Entry:   entry,
		Machine: machine,
		Ports:   turn.DefaultPorts(harness),
		Broker:  brk,
		Egress:  egress,
		Harness: "tcp:127.0.0.1:" + strconv.Itoa(harness),
		Secrets: forSpecs(secrets),
		Roots:   os.Getenv("SSL_CERT_FILE"),
		Log:     log,
	}, nil
}

// machine is what plans of this machine's boxes have to know of it.
func (c *call) machine(a account) box.Machine {
	return box.LookAt(a.name, a.home, c.settings.dataDir(a.home)).
		Hiding(c.settings.runDir(), c.settings.stateDir(a.home), c.settings.secretsDir())
}
