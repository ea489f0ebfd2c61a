package gate_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// A port of ours serves a connection to each host there is, so that all boxes
// together do not run out of them: a socket that is bound before it connects
// has one to itself.
func TestAPortServesManyHosts(t *testing.T) {
	if !gatetest.Inside(t) {
		return
	}
	gatetest.Serve(gatetest.World(t), gatetest.Count)
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40003"), 0); err != nil {
		t.Fatal(err)
	}
	var d gate.Dialer
	dial := func(host string) *gate.Refusal {
		h, err := hostport.Parse(host + ":80")
		if err != nil {
			t.Fatal(err)
		}
		c, r := d.Dial(t.Context(), h)
		if r == nil {
			t.Cleanup(func() { c.Close() })
		}
		return r
	}
	for i := range 12 {
		if r := dial(fmt.Sprintf("8.8.1.%d", i+1)); r != nil {
			t.Errorf("host %d of 12, with four ports: %+v", i+1, r)
		}
	}
	refused := 0
	for range 5 {
		if dial("8.8.2.1") != nil {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("control: %d of 5 connections to one host were refused with four ports, want 1", refused)
	}
}
