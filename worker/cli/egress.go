package cli

import (
	"flag"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/openmausbot/botbox/shared/addrpolicy"
	"github.com/openmausbot/botbox/shared/hostport"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/report"
	"github.com/openmausbot/botbox/worker/internal/spec"
	"github.com/openmausbot/botbox/worker/internal/turn"
)

// hostQuestion are the flags of `why host`: for which box it is asked.
type hostQuestion struct {
	box   string
	allow words
}

func (q *hostQuestion) define(set *flag.FlagSet) {
	set.StringVar(&q.box, "box", q.box, "with host: ask the worker for its running box `ID`")
	set.Var(&q.allow, "allow-host", "with host: for a box that is started with this `PATTERN[:PORT]`; can be given again")
}

func (q *hostQuestion) none() bool { return q.box == "" && q.allow == nil }

// whyHost answers from the rules that dial. Without --box they are those of
// this command's own environment.
func (c *call) whyHost(text string, q hostQuestion) error {
	h, err := hostport.ParseDefault(text, 443)
	if err != nil {
		return reason.New(reason.Usage, "%s is no host: %w", text, err)
	}
	if q.box != "" {
		if q.allow != nil {
			return reason.New(reason.Usage, "--box and --allow-host exclude one another")
		}
		var o gate.Opinion
		if err := c.ask("GET", "/v1/boxes/"+url.PathEscape(q.box)+"/why?host="+url.QueryEscape(h.String()), nil, &o); err != nil {
			return err
		}
		printOpinion(c.stdout, o)
		return nil
	}
	dialer, err := c.settings.egress()
	if err != nil {
		return err
	}
	var box spec.Egress
	if q.allow != nil {
		list := []string(q.allow)
		box.Allow = &list
	}
	if dialer, err = turn.Narrow(dialer, box); err != nil {
		return err
	}
	printOpinion(c.stdout, dialer.Judge(h))
	return nil
}

func printOpinion(w io.Writer, o gate.Opinion) {
	word := map[string]string{gate.ByName: "allowed by name"}[o.Verdict]
	if word == "" {
		word = o.Verdict
	}
	class := ""
	if o.Class != "" {
		class = " (" + o.Class + ")"
	}
	fmt.Fprintf(w, "%s, %s: %s%s\n", word, o.Host, o.Why, class)
	if o.Lifted != "" {
		fmt.Fprintf(w, "learn mode passes over: %s\n", o.Lifted)
	}
	if o.Hint != "" {
		fmt.Fprintf(w, "hint: %s\n", o.Hint)
	}
}

// printAdvice says at the end of a learning box what would have sufficed.
func printAdvice(w io.Writer, a *gate.Advice) {
	if a.Hosts == 0 {
		fmt.Fprintln(w, "botbox: learnt: the box reached no host; this suffices: --net none")
		return
	}
	fmt.Fprintf(w, "botbox: learnt: %d hosts with their ports were reached; these flags suffice:\n", a.Hosts)
	for _, pattern := range a.Allow {
		fmt.Fprintf(w, "  --allow-host %s\n", pattern)
	}
	fmt.Fprintf(w, "botbox: learnt: a machine whose list suffices:\n  OMB_EGRESS_ALLOW=%s\n", strings.Join(a.MachineAllow, ","))
	if a.MachinePorts != nil {
		fmt.Fprintf(w, "  OMB_EGRESS_PORTS=%s\n", joined(a.MachinePorts))
	}
	if a.BoxPorts != nil {
		fmt.Fprintf(w, "botbox: learnt: net.egress.ports lacks some: %s\n", joined(a.BoxPorts))
	}
	for _, pattern := range a.Deny {
		fmt.Fprintf(w, "botbox: learnt: net.egress.deny is in the way: %s\n", pattern)
	}
	if a.More > 0 {
		fmt.Fprintf(w, "botbox: learnt: %d connections went to more hosts than are remembered, so the lists are not whole\n", a.More)
	}
}

func joined(ports []uint16) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ports)), ","), "[]")
}

// egressOf is the machine's policy as the report shows it.
func egressOf(d gate.Dialer) *report.Egress {
	e := &report.Egress{Ports: d.AllowPorts, Refuse: d.RefusePorts, Except: []string{}}
	for _, p := range d.AllowHosts {
		e.Allow = append(e.Allow, p.String())
	}
	for _, ap := range d.Except {
		e.Except = append(e.Except, ap.String())
	}
	return e
}

// exceptions are the warnings of the report, one for each and by its name.
func exceptions(d gate.Dialer) (all []string) {
	for _, ap := range d.Except {
		v := addrpolicy.Classify(ap.Addr())
		all = append(all, fmt.Sprintf("OMB_EGRESS_EXCEPT lets every box reach %s (%s: %s)", ap, v.Class, v.Reason))
	}
	return all
}
