package gate

import (
	"context"
	"net"
	"net/netip"
	"time"
)

type attempt struct {
	conn *net.TCPConn
	err  error
}

// race tries the targets one after another, each a stagger after the one
// before or as soon as that one failed. The first connection wins and the
// others are closed. Without it a dead first address stalls a client for
// minutes (mitmproxy#8088).
func (d *Dialer) race(ctx context.Context, targets []netip.AddrPort) (*net.TCPConn, error) {
	if len(targets) == 1 {
		return d.connect(ctx, targets[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan attempt, len(targets)) // no loser ever blocks
	next := time.NewTimer(0)
	defer next.Stop()
	started, failures := 0, 0
	var firstErr error
	for {
		select {
		case <-next.C:
			if started < len(targets) {
				ap := targets[started]
				started++
				go func() {
					c, err := d.connect(ctx, ap)
					results <- attempt{c, err}
				}()
				next.Reset(stagger)
			}
		case a := <-results:
			if a.err == nil {
				go closeLosers(results, started-failures-1)
				return a.conn, nil
			}
			failures++
			if firstErr == nil {
				firstErr = a.err
			}
			if failures == len(targets) {
				return nil, firstErr
			}
			next.Reset(0)
		}
	}
}

// closeLosers takes the n attempts that are still under way. Their context is
// cancelled, so they end at once.
func closeLosers(results <-chan attempt, n int) {
	for range n {
		if a := <-results; a.err == nil {
			a.conn.Close()
		}
	}
}
