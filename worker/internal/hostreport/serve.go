package hostreport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/mdlayher/vsock"

	"github.com/openmausbot/botbox/worker/internal/journal"
)

// What the host may take of us.
const (
	maxConns      = 4               // at a time; others wait
	maxRequest    = 4 << 10         // its head; net/http adds as much again, and there is no body
	requestWithin = 2 * time.Second // from the connection on
	answerWithin  = 5 * time.Second // from the request on
)

// Serve lets routes answer the host, one request a connection, until ctx is
// done.
func Serve(ctx context.Context, l net.Listener, routes http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:                      routes,
		DisableGeneralOptionsHandler: true, // OPTIONS * is a route, too
		ReadTimeout:                  requestWithin,
		WriteTimeout:                 answerWithin,
		MaxHeaderBytes:               maxRequest,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	server.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	host := &gatekeeper{Listener: l, slots: make(chan struct{}, maxConns), strangers: strangers{log: log}}
	if err := server.Serve(host); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// gatekeeper accepts the host's connections only, and a few at a time.
type gatekeeper struct {
	net.Listener
	slots     chan struct{}
	strangers strangers
}

func (g *gatekeeper) Accept() (net.Conn, error) {
	g.slots <- struct{}{}
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			<-g.slots
			return nil, err
		}
		peer, ok := c.RemoteAddr().(*vsock.Addr)
		if ok && peer.ContextID == vsock.Host {
			return &visit{Conn: c, leave: sync.OnceFunc(func() { <-g.slots })}, nil
		}
		c.Close()
		g.strangers.add(peer)
	}
}

// visit is a connection of the host's.
type visit struct {
	net.Conn
	leave func()
}

func (v *visit) Close() error {
	defer v.leave()
	return v.Conn.Close()
}

// everySecond is the pace of the log: any process of this machine can make
// connections that are refused.
const everySecond = time.Second

// strangers logs who was refused: the first at once, and of those that follow
// how many they were and the last one's CID.
type strangers struct {
	log *slog.Logger

	mu    sync.Mutex
	pause bool // a line was written less than a second ago
	more  int  // since
	last  slog.Attr
}

func (s *strangers) add(peer *vsock.Addr) {
	cid := slog.String("cid", "none")
	if peer != nil {
		cid = slog.Uint64("cid", uint64(peer.ContextID))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.more, s.last = s.more+1, cid
	if !s.pause {
		s.say()
	}
}

// say writes the line and begins the pause. The caller holds mu.
func (s *strangers) say() {
	journal.ReportRefused.Log(s.log, s.last, slog.Int("times", s.more))
	s.more, s.pause = 0, true
	time.AfterFunc(everySecond, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.pause = false; s.more > 0 {
			s.say()
		}
	})
}
