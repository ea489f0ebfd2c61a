package gate

import "net/netip"

// OnDial tells f of every address that a connect is about to be made to.
func (d *Dialer) OnDial(f func(netip.AddrPort)) { d.dialing = f }
