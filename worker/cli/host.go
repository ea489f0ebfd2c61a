package cli

import (
	"context"
	"log/slog"
	"net"

	"github.com/openmausbot/botbox/worker/internal/api"
	"github.com/openmausbot/botbox/worker/internal/hostreport"
)

// listenToHost opens the vsock port for this machine's host, nil without one.
func (w *worker) listenToHost() (net.Listener, error) {
	if w.call.settings.VsockPort == 0 {
		return nil, nil
	}
	return hostreport.Listen(w.call.settings.VsockPort)
}

// serveHost serves the report there until ctx is done.
func (w *worker) serveHost(ctx context.Context, l net.Listener) {
	if err := hostreport.Serve(ctx, l, api.ReportOnly(w.state.signed), w.log); err != nil {
		w.log.Error("the report is served to the host no longer", slog.String("cause", err.Error()))
	}
}
