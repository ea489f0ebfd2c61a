package signin

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/http1"
)

const (
	connectWithin = 3 * time.Second
	// Within bounds the whole delivery: engines ask their vendor for the token
	// before they answer.
	Within  = 30 * time.Second
	maxBody = 64 << 10
)

// Way connects to the loopback of one box; *gate.Inward is one.
type Way interface {
	Dial(ctx context.Context, family gate.Family, port uint16) (*net.TCPConn, func(), error)
}

// Relay delivers callbacks into one box, one at a time.
type Relay struct {
	way    Way
	closed []int // the gates' own ports
	within time.Duration
	busy   chan struct{}
}

// NewRelay makes a relay. The ports of the box's gates are never connected to.
func NewRelay(way Way, gates ...int) *Relay {
	return &Relay{way: way, closed: gates, within: Within, busy: make(chan struct{}, 1)}
}

// Answer is what the engine answered.
type Answer struct {
	Status    int               `json:"status"`
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body"`
	Truncated bool              `json:"truncated"`
}

// told are the header fields that an answer keeps.
var told = []string{"content-type", "location"}

// Deliver sends one callback and gives the answer. It ends with ctx, with the
// box, and after Within at the latest.
func (r *Relay) Deliver(ctx context.Context, c Callback) (Answer, error) {
	for _, port := range r.closed {
		if int(c.Port) == port {
			return Answer{}, bad("its port is a gate's own")
		}
	}
	select {
	case r.busy <- struct{}{}:
		defer func() { <-r.busy }()
	default:
		return Answer{}, reason.New(reason.RelayBusy, "another redirect is on its way into this box")
	}
	ctx, cancel := context.WithTimeout(ctx, r.within)
	defer cancel()
	conn, release, err := r.connect(ctx, c)
	if err != nil {
		return Answer{}, err
	}
	defer release()
	return ask(ctx, conn, c)
}

func (r *Relay) connect(ctx context.Context, c Callback) (conn *net.TCPConn, release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	for _, family := range c.families {
		conn, release, err = r.way.Dial(ctx, family, c.Port)
		if !errors.Is(err, gate.ErrNobody) && !errors.Is(err, gate.ErrFamily) {
			break
		}
	}
	switch {
	case err == nil:
		return conn, release, nil
	case errors.Is(err, gate.ErrNobody), errors.Is(err, gate.ErrFamily):
		return nil, nil, reason.New(reason.RelayNotReady, "nobody in the box listens on port %d", c.Port)
	case errors.Is(err, gate.ErrInward):
		return nil, nil, reason.New(reason.NoSuchBox, "the box has ended")
	}
	return nil, nil, reason.New(reason.RelayFailed, "whoever listens on port %d of the box takes no connection", c.Port)
}

// ask sends the request and reads the answer.
func ask(ctx context.Context, conn *net.TCPConn, c Callback) (Answer, error) {
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	_, err := conn.Write(c.request())
	var got *http1.Answer
	if err == nil {
		got, err = http1.ReadAnswer(conn, "GET", maxBody)
	}
	switch {
	case err == nil:
	case gate.Timeout(err):
		return Answer{}, reason.New(reason.RelayFailed, "whoever listens on port %d of the box did not answer in time", c.Port)
	case errors.Is(err, net.ErrClosed):
		return Answer{}, reason.New(reason.NoSuchBox, "the box has ended")
	default:
		return Answer{}, reason.New(reason.RelayFailed, "whoever listens on port %d of the box did not answer as an HTTP server does", c.Port)
	}
	a := Answer{Status: got.Status, Headers: map[string]string{}, Body: strings.ToValidUTF8(string(got.Body), "\uFFFD"), Truncated: got.Cut}
	for _, key := range told {
		if value, n := got.Fields.Get(key); n > 0 {
			a.Headers[key] = strings.ToValidUTF8(value, "\uFFFD")
		}
	}
	return a, nil
}
