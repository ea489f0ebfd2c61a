package gatetest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// reports are public reports of what other proxies got wrong, and the text in
// a file of ours that shows that the gates do not. A text is a test's name, or
// the row of a table in it.
var reports = []struct{ report, file, text string }{
	{"CVE-2022-24825: trailing dot and letter case", "egress/probes_test.go", `"connect LOCALHOST."`},
	{"CVE-2022-29188: a name in brackets", "egress/probes_test.go", `"get bracketed name"`},
	{"smokescreen PR#9: a forged error header", "egress/probes_test.go", `"forged"`},
	{"smokescreen PR#65: 407 for policy", "egress/testdata/probes.golden", "403 botbox: private network (RFC 1918) | private"},
	{"CVE-2023-49606: Connection names itself", "http1/http1_test.go", "Content-Length, Connection"},
	{"CVE-2026-54387: CL and TE", "egress/probes_test.go", `"get CL and TE"`},
	{"CVE-2026-54388: duplicate CL", "egress/probes_test.go", `"get duplicate CL"`},
	{"tinyproxy#604: Transfer-Encoding: Chunked", "egress/probes_test.go", `"post TE Chunked"`},
	{"tinyproxy#623: a space before the colon", "egress/probes_test.go", `"get space before colon"`},
	{"tinyproxy#457: no method", "egress/probes_test.go", `"no method"`},
	{"CVE-2025-22871, SQUID-2023:1: bare LF in chunks", "egress/probes_test.go", `"post bare-LF chunk line"`},
	{"CVE-2025-22870: a zone as a suffix", "egress/probes_test.go", `"connect zone"`},
	{"golang/go#49365: leading zeros", "egress/probes_test.go", `"connect octal IPv4"`},
	{"CVE-2024-24790: mapped addresses", "egress/probes_test.go", `"connect metadata, mapped"`},
	{"CVE-2026-39825: a query that was not parsed", "harness/harness_test.go", `"/api/internal/x?y=/../..&z=%2e%2e"`},
	{"golang/go#50580: Connection deletes our fields", "egress/egress_test.go", "func TestWhatTheOriginSees"},
	{"CVE-2026-39821: IDNA mapping", "egress/probes_test.go", `"connect full-width digits"`},
	{"claude-code#40213: rules on CONNECT only", "matrix_test.go", "func TestPrefixMatrix"},
	{"codex PR#13275: Host differs from the URL", "egress/probes_test.go", `"get Host differs"`},
	{"codex PR#10213: rebinding between check and dial", "rebind_test.go", "func TestRebinding"},
	{"openshell#2478, codex#33227: narrow exceptions", "dialer_test.go", "func TestExceptionLiftsTheAddressPolicyOnly"},
	{"iron-proxy PR#248: an inner Host that is not the tunnel's", "../broker/hosts_test.go", `"another host":`},
	{"goproxy#451, #166: tunnels leak", "soak_test.go", "func TestSoakKilledClients"},
	{"goproxy#273: too many open files", "egress/egress_test.go", "func TestCapAndClose"},
	{"CVE-2023-37788: a crash ends the proxy", "tunnel_test.go", "func TestServerOutlivesAPanic"},
	{"proxy-chain PR#284: bytes behind CONNECT", "egress/testdata/probes.golden", "200 Connection established | PONG"},
	{"mitmproxy#8088: a dead first address", "dialer_test.go", `"dead.example"`},
	{"CVE-2022-24766: smuggling in bodies", "egress/egress_test.go", "func TestMalformedLaterChunk"},
	{"node-http-proxy#1721: framing by method", "egress/probes_test.go", `"delete chunked"`},
	{"AntiSSRF#23: missing ranges", "matrix_test.go", "func TestPrefixMatrix"},
	{"envoy#6435: path normalisation", "harness/node_test.go", "func TestNodeReadsWhatWasJudged"},
	{"curl#9513: the reason is not seen", "egress/egress_test.go", "func TestClientsShowTheReason"},
	{"agentgateway#248: quiet streams are cut", "tunnel_test.go", "func TestTunnelIdleLimitIsThePairs"},
	{"python-socks PR#47: IPv6 without brackets", "egress/probes_test.go", `"connect unbracketed IPv6"`},
	{"haproxy#1159: Host of a CONNECT", "egress/probes_test.go", `"connect Host differs"`},
	{"rctf#136: Chrome goes to loopback past its proxy", "../../browser_net_test.go", "func TestABrowserGetsOutThroughItsGateOnly"},
	{"dumbproxy PR#162: SOCKS by the host's resolver", "socks/socks_test.go", "names.Queries"},
	{"headroom#3280: %23 in the authority", "egress/probes_test.go", `"get encoded #"`},
	{"basic-memory#1541: [::1] in NO_PROXY", "../../bugs_net_test.go", "func TestBug_basicmemory1541_NoProxyIsBare"},
	{"cloud-connector PR#202: deadlines, caps, accept backoff", "server.go", "func passing"},
}

func TestReports(t *testing.T) {
	for _, r := range reports {
		text, err := os.ReadFile(filepath.Join(rig.Root(), "worker/internal/gate", r.file))
		if err != nil || !strings.Contains(string(text), r.text) {
			t.Errorf("%s: %s does not hold %s (%v)", r.report, r.file, r.text, err)
		}
	}
}
