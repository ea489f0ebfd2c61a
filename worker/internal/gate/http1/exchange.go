package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
)

const (
	continueWait = 5 * time.Second // then the body is sent without a 100
	maxInterim   = 16              // 1xx answers before the final one
	lastWord     = time.Second     // for a client that is told that the budget is over
)

// Exchange is one request that a gate let through, on its way to one upstream
// connection which serves nothing else.
type Exchange struct {
	Client  *Conn
	Request *Request
	Head    []byte // for the upstream, from Request.Head
	Dial    func() (gate.Stream, *gate.Refusal)
	Idle    time.Duration // nothing passed for so long: both ends are closed
	MaxBody int64         // bytes of the request's body; 0 is no limit
	Budget  *gate.Budget  // of heads and bodies, both ways
	Upgrade bool          // a 101 may turn the connection into a tunnel
	// Held names fields of answers that do not reach the client; nil is none.
	Held     func(key string) bool
	upstream gate.Stream
	watch    *gate.Idle
}

// Result is what became of an exchange.
type Result struct {
	Status   int           // of the answer that the client got; 0 for none
	Up, Down int64         // bytes of the bodies
	Keep     bool          // the client's connection may carry another request
	Refusal  *gate.Refusal // nothing was answered yet: the gate has to
}

// Run relays the request and the answer. It closes the upstream connection,
// never the client's, except where a stream has to be cut short. The end of
// ctx closes the upstream.
func (x *Exchange) Run(ctx context.Context) Result {
	result := x.run(ctx)
	if result.Refusal != nil && x.Budget.Over() {
		result.Refusal = gate.Spent() // whatever else was found when the upstream had been closed
	}
	return result
}

func (x *Exchange) run(ctx context.Context) Result {
	request := newBody(x.Client.br, x.Request.Framing)
	if r := x.admit(request); r != nil {
		return Result{Refusal: r}
	}
	upstream, r := x.Dial()
	if r != nil {
		return Result{Refusal: r}
	}
	x.upstream = upstream
	defer upstream.Close()
	defer context.AfterFunc(ctx, func() { upstream.Close() })()
	x.watch = gate.NewIdle(upstream, x.Idle, func() {
		gate.Reset(x.Client.Stream)
		upstream.Close()
	})
	defer x.watch.Stop()
	defer x.Budget.OnOver(func() {
		upstream.Close()
		x.Client.Stream.SetWriteDeadline(time.Now().Add(lastWord))
	})()
	if !x.Budget.Admit(len(x.Head)) {
		return Result{Refusal: gate.Spent()}
	}
	if _, err := upstream.Write(x.Head); err != nil {
		return Result{Refusal: badGateway("the upstream closed the connection")}
	}
	up := x.startUpload(request)
	result := x.answer(up)
	result.Keep = up.finish(x) && result.Keep
	result.Up += up.sent
	if result.Refusal != nil {
		if cause := (*gate.Refusal)(nil); errors.As(up.err, &cause) {
			result.Refusal = cause
		}
	}
	return result
}

// admit is what can be said of the body before any upstream is contacted.
func (x *Exchange) admit(b *body) *gate.Refusal {
	if x.MaxBody > 0 && b.framing.Length > x.MaxBody {
		return bodyTooLarge()
	}
	if x.Request.Expects() {
		return nil // the client waits for a 100, so there is nothing to read
	}
	x.Client.Stream.SetReadDeadline(time.Now().Add(x.Idle))
	err := b.prime()
	x.Client.Stream.SetReadDeadline(time.Time{})
	if err != nil {
		if r := (*gate.Refusal)(nil); errors.As(err, &r) {
			return r
		}
		return gate.Malformed("the body ends before it began")
	}
	return nil
}

func bodyTooLarge() *gate.Refusal {
	return &gate.Refusal{Status: 413, Class: "body-too-large", Reason: "the body is larger than this gate passes", Hint: "Send less at once.", ProxyStatus: "http_request_error"}
}

func badGateway(reason string) *gate.Refusal {
	return &gate.Refusal{Status: 502, Class: "upstream", Reason: reason, Hint: "Try again later.", ProxyStatus: "http_response_incomplete"}
}

// answer reads heads until the final one and relays it.
func (x *Exchange) answer(up *upload) Result {
	br := newReader(x.upstream)
	defer freeReader(br)
	for range maxInterim {
		resp, err := readResponse(br, x.Request.Method)
		x.watch.Passed()
		if err != nil {
			return Result{Refusal: refusalOf(err)}
		}
		resp.hold(x.Held)
		switch {
		case resp.status == 101 && x.Upgrade:
			return x.tunnel(br, resp)
		case resp.status == 101:
			return Result{Refusal: badGateway("the upstream switched protocols unasked")}
		case resp.status >= 200:
			return x.final(br, resp, up)
		}
		up.proceed()
		if x.Request.Minor == 1 { // HTTP/1.0 knows no interim answers
			if err := x.head(resp.head(1, true, false)); err != nil {
				return over(Result{}, err)
			}
		}
	}
	return Result{Refusal: badGateway("the upstream's answer is malformed")}
}

// refusalOf keeps the upstream's faults apart from the client's: a refusal
// that the parser made is about the upstream here.
func refusalOf(err error) *gate.Refusal {
	if r := (*gate.Refusal)(nil); errors.As(err, &r) || errors.Is(err, errResponse) {
		return badGateway("the upstream's answer is malformed")
	}
	return badGateway("the upstream closed the connection without an answer")
}

func (x *Exchange) final(br *bufio.Reader, resp *response, up *upload) Result {
	result := Result{Status: resp.status}
	down := x.Budget.Writer(x.Client.Stream)
	chunked := resp.framing.Kind == Chunked && x.Request.Minor == 1
	keep := resp.framing.Kind != UntilClose && up.consumed.Load() && x.Request.keepAlive()
	if err := x.head(resp.head(x.Request.Minor, keep, false)); err != nil {
		return over(result, err)
	}
	if !resp.framing.hasBody() {
		result.Keep = keep
		return result
	}
	n, err := copyBody(down, newBody(br, resp.framing), chunked, x.watch)
	result.Down = n
	result.Keep = keep && err == nil
	if err != nil {
		// The client must see that the body is cut: no polite end.
		gate.Reset(x.Client.Stream)
	}
	return result
}

// tunnel goes on as raw bytes after a 101.
func (x *Exchange) tunnel(br *bufio.Reader, resp *response) Result {
	x.watch.Stop() // the tunnel has one of its own
	result := Result{Status: 101}
	if err := x.head(resp.head(1, true, true)); err != nil {
		return over(result, err)
	}
	down, err := flush(x.Budget.Writer(x.Client.Stream), br)
	if err != nil {
		return result
	}
	up, err := x.Client.Flush(x.Budget.Writer(x.upstream))
	if err != nil {
		return result
	}
	result.Up, result.Down = x.Budget.Tunnel(x.Client.Stream, x.upstream, x.Idle)
	result.Up += int64(up)
	result.Down += int64(down)
	return result
}

// head writes an answer's head, which passes whole or not at all.
func (x *Exchange) head(b []byte) error {
	if !x.Budget.Admit(len(b)) {
		return gate.Spent()
	}
	_, err := x.Client.Stream.Write(b)
	return err
}

// over makes a result of a head that could not be written. Where the budget
// kept it back, the client has had nothing yet and can be told.
func over(result Result, err error) Result {
	if r := (*gate.Refusal)(nil); errors.As(err, &r) {
		return Result{Refusal: r}
	}
	return result
}

// flush passes on what a reader has already taken from its connection.
func flush(dst io.Writer, br *bufio.Reader) (int, error) {
	early, _ := br.Peek(br.Buffered())
	if len(early) == 0 {
		return 0, nil
	}
	n, err := dst.Write(early)
	br.Discard(n)
	return n, err
}
