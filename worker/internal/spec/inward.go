package spec

// checkInward holds the ways that lead into a box, and those that lead to this
// machine's own loopback, to boxes that have a network of their own.
func (s *Spec) checkInward() error {
	if s.Net.Relay && (s.Kind == "browser" || s.Net.Mode == "shared") {
		return bad("field net.relay: it is for an engine that signs in, and a browser is none")
	}
	if s.Browser.DebugPort && s.Net.Mode == "shared" {
		return bad("field browser.debug_port: with net.mode shared the browser listens on this machine itself")
	}
	if len(s.Net.LoopbackUpstreams) > 0 && (s.Kind == "browser" || s.Net.Mode != "gated") {
		return bad("field net.loopback_upstreams: only an engine with gates has the broker that leads there")
	}
	return nil
}
