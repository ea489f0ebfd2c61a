package api

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sort"
	"syscall"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/botfiles"
	"github.com/openmausbot/botbox/worker/internal/lease"
	"github.com/openmausbot/botbox/worker/internal/report"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// SocketName is the socket's name in OMB_RUN_DIR.
const SocketName = "api.sock"

const maxBody = 64 << 10

// Server answers for one worker.
type Server struct {
	Runner *turn.Runner
	Report func() report.Report
	Check  func() (report.Checks, error) // runs the self-check
	Signed func(nonce string) (report.Signed, error)
	// Move lets a folder of a bot's change hands; an empty one is its workspace.
	Move func(bot, folder string, back bool) (botfiles.Done, error)
}

// Listen makes the socket in the run folder.
func Listen(runDir string) (*net.UnixListener, error) {
	return lease.ListenAt("unix", filepath.Join(runDir, SocketName))
}

// Serve answers until ctx is done.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	server := &http.Server{
		Handler:           http.MaxBytesHandler(s.routes(), maxBody),
		ReadHeaderTimeout: 10 * time.Second,
		ConnContext:       withPeer,
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// peerFault is the context key of what the kernel says against a caller.
type peerFault struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerFault{}, lease.CheckPeer(c.(*net.UnixConn)))
}

// routes is the whole interface.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(*http.Request) (any, error){
		"GET /api/cloud/box":          func(*http.Request) (any, error) { return s.Report(), nil },
		"GET /v1/boxes":               s.boxes,
		"GET /v1/boxes/{id}":          s.box,
		"GET /v1/boxes/{id}/why":      s.why,
		"DELETE /v1/boxes/{id}":       s.end,
		"POST /v1/boxes/{id}/signal":  s.signal,
		"POST /v1/bots/{bot}/adopt":   s.move(false),
		"POST /v1/bots/{bot}/release": s.move(true),
		"POST /v1/keys/rotate":        s.rotate,
		"POST /v1/boxes/{id}/relay":   s.relay,
		"POST /v1/mcp/test":           s.mcpTest,
		"POST /v1/selfcheck":          func(*http.Request) (any, error) { return s.Check() },

		"POST /v1/conversations/{id}/mcp":        s.mcpAddresses,
		"POST /v1/conversations/{id}/mcp-failed": s.mcpFailed,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v, err := answer(r)
			if err != nil {
				fail(w, err)
				return
			}
			write(w, http.StatusOK, v)
		})
	}
	mux.HandleFunc("GET "+report.Path, signedReport(s.Signed))
	mux.HandleFunc("GET /v1/events", s.events)
	mux.HandleFunc("/", noSuchRoute)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err, _ := r.Context().Value(peerFault{}).(error); err != nil {
			fail(w, err) // whatever is asked for
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func noSuchRoute(w http.ResponseWriter, r *http.Request) {
	fail(w, reason.New(reason.NoSuchRoute, "there is no %s %s here", r.Method, r.URL.Path))
}

// Box is a running box as the interface shows it.
type Box struct {
	ID           string    `json:"id"`
	Bot          string    `json:"bot"`
	Conversation string    `json:"conversation"`
	Engine       string    `json:"engine"`
	Since        time.Time `json:"since"`
	Pid          int       `json:"pid"` // the engine's, 0 before it runs

	Landlock int               `json:"landlock"` // the version of it that confines the engine, 0 = none
	Limits   map[string]string `json:"limits"`   // what bounds pids, memory, cpu
}

func describe(t *turn.Turn) Box {
	return Box{t.ID, t.Spec.Bot, t.Spec.Conversation, t.Spec.Engine, t.Since, t.Pid(), t.Landlock(), t.Holds()}
}

func (s *Server) boxes(*http.Request) (any, error) {
	all := []Box{}
	for _, t := range s.Runner.Running() {
		all = append(all, describe(t))
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Since.Before(all[j].Since) })
	return all, nil
}

// box describes a box that runs, or tells how one of the latest ended.
func (s *Server) box(r *http.Request) (any, error) {
	t, err := s.Runner.Find(r.PathValue("id"))
	if ending, ok := s.Runner.Ended(r.PathValue("id")); ok && err != nil {
		return ending, nil
	}
	if err != nil {
		return nil, err
	}
	return describe(t), nil
}

// end answers when nothing of the box is left.
func (s *Server) end(r *http.Request) (any, error) {
	t, err := s.Runner.Find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	t.Kill()
	return map[string]string{"id": t.ID, "state": "ended"}, nil
}

// signals are those that a caller can send by name.
var signals = map[string]syscall.Signal{
	"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT,
	"WINCH": syscall.SIGWINCH, "KILL": syscall.SIGKILL,
}

func (s *Server) signal(r *http.Request) (any, error) {
	var body struct {
		Sig string `json:"sig"`
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil || d.More() {
		return nil, reason.New(reason.Usage, `the body is not {"sig":"TERM"}`)
	}
	sig, known := signals[body.Sig]
	if !known {
		return nil, reason.New(reason.Usage, "the signal %q is not one that can be sent", body.Sig)
	}
	t, err := s.Runner.Find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return map[string]string{"id": t.ID}, t.Signal(sig)
}

// status gives the HTTP status of a code: what is the caller's fault, what is
// missing, and what is ours.
func status(code reason.Code) int {
	row, _ := reason.Lookup(code)
	switch {
	case code == reason.NoSuchBox, code == reason.NoSuchRoute, code == reason.NoSuchTalk:
		return http.StatusNotFound
	case code == reason.NotYours:
		return http.StatusForbidden
	case code == reason.NoRelay, code == reason.RelayNotReady, code == reason.PortTaken:
		return http.StatusConflict
	case code == reason.RelayBusy:
		return http.StatusTooManyRequests
	case code == reason.RelayFailed:
		return http.StatusBadGateway
	case row.Exit == reason.ExitUsage:
		return http.StatusBadRequest
	case row.Exit == reason.ExitNoBox:
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

func fail(w http.ResponseWriter, err error) {
	write(w, status(reason.Of(err).Code), reason.FaultOf(err))
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
