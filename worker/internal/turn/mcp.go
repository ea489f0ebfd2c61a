package turn

import (
	"maps"

	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/secret"
	"github.com/openmausbot/botbox/worker/internal/spec"
)

// issueMCP gives the box the addresses of its conversation's URL servers. The
// answer has them, and so has the box's environment: BOTBOX_MCP_NAME, so that
// a configuration that names the variable is the same for every turn.
func (t *Turn) issueMCP(answer *Answer) error {
	if t.Spec.Kind != "turn" {
		return nil
	}
	rotations := t.runner.Broker.Rotations()
	servers, err := t.runner.MCPServers(t.Spec.Broker.MCP)
	if err != nil {
		return err
	}
	issued, err := t.runner.Broker.IssueMCP(broker.MCPTurn{
		Box: t.ID, Bot: t.Spec.Bot, Conversation: t.Spec.Conversation, Servers: servers, Limits: t.brokerLimits(),
	})
	if err != nil {
		return err
	}
	maps.Copy(t.Plan.Env, issued.Env)
	answer.MCPAddresses = issued.Addresses
	if t.runner.Broker.Rotations() == rotations {
		return nil
	}
	for _, s := range servers { // what was read may be a former value
		for _, ref := range s.Refs {
			if _, err := t.runner.Broker.Rotate(t.runner.Secrets, ref); err != nil {
				return err
			}
		}
	}
	return nil
}

// brokerLimits bound each grant, a provider's and an MCP server's alike.
func (t *Turn) brokerLimits() broker.Limits {
	l := t.Spec.Broker.Limits
	return broker.Limits{Concurrent: l.Concurrent, PerMinute: l.RequestsPerMin, Bytes: l.Bytes, Tokens: l.Tokens}
}

// MCPServers reads the headers of URL servers, those in named secrets too.
func (r *Runner) MCPServers(list []spec.MCP) ([]broker.MCPServer, error) {
	var servers []broker.MCPServer
	for _, m := range list {
		s := broker.MCPServer{Name: m.Name, URL: m.URL, Headers: map[string]secret.Text{}, Refs: map[string]string{}}
		for name, v := range m.Headers {
			s.Headers[name] = v.Text
			if v.Ref == "" {
				continue
			}
			text, err := r.Secrets(v.Ref)
			if err != nil {
				return nil, err
			}
			s.Headers[name], s.Refs[name] = text, v.Ref
		}
		servers = append(servers, s)
	}
	return servers, nil
}
