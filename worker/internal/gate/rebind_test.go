package gate_test

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// A name whose address changes with every answer, TTL 0, asked for by many at
// once: what is dialled was judged, so nothing arrives at the addresses that
// the name has in between.
func TestRebinding(t *testing.T) {
	if !gatetest.Inside(t) {
		return
	}
	const flips, clients = 10_000, 50
	private := []string{"127.0.0.1", gatetest.Near4, "10.0.0.1", "169.254.169.254"}
	world := gatetest.Serve(gatetest.World(t), gatetest.Count)
	leaks := gatetest.Serve(gatetest.Listen(t, "0.0.0.0:80"), gatetest.Count)
	var answers, leaked, dialled atomic.Int64
	d := gate.Dialer{Resolver: gatetest.Zone(func(_ string, ipv6 bool) string {
		if ipv6 {
			return gatetest.Far4 // there is no AAAA
		}
		if n := answers.Add(1); n%2 == 0 {
			return private[n/2%int64(len(private))]
		}
		return gatetest.Far4
	}).Resolver()}
	d.OnDial(func(ap netip.AddrPort) {
		dialled.Add(1)
		if ap.Addr().String() != gatetest.Far4 {
			leaked.Add(1)
		}
	})
	var wg sync.WaitGroup
	var reached, refused atomic.Int64
	for client := range clients {
		// A name for each client: Go's resolver gives one answer to all that
		// ask for one name at a time.
		h, err := hostport.Parse(fmt.Sprintf("c%d.example:80", client))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for range flips / clients {
				c, r := d.Dial(t.Context(), h)
				switch {
				case r == nil:
					reached.Add(1)
					c.SetLinger(0)
					c.Close()
				case r.Class == "non-public":
					refused.Add(1)
				default:
					t.Errorf("%+v", r)
					return
				}
			}
		})
	}
	wg.Wait()
	gatetest.WaitFor(t, func() bool { return world.Contacts() >= reached.Load() })
	if n := answers.Load(); n != flips {
		t.Errorf("%d lookups for %d requests", n, flips)
	}
	if leaked.Load() != 0 || leaks.Contacts() != 0 || dialled.Load() != reached.Load() {
		t.Errorf("leaked: %d dials, %d contacts; %d dials for %d connections", leaked.Load(), leaks.Contacts(), dialled.Load(), reached.Load())
	}
	// The controls: half of the answers were public and arrived, and the
	// listener that nothing came to can be reached.
	if reached.Load() != flips/2 || refused.Load() != flips/2 {
		t.Errorf("%d reached, %d refused", reached.Load(), refused.Load())
	}
	before := leaks.Contacts()
	gatetest.Dial(t, gatetest.Near4+":80")
	gatetest.WaitFor(t, func() bool { return leaks.Contacts() > before })
}
