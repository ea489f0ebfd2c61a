package broker

import "github.com/openmausbot/botbox/shared/reason"

// MCPFailure is what a chat says of a server that did not start.
type MCPFailure struct {
	Code    string `json:"code"`
	Server  string `json:"server"`
	Message string `json:"message"`
}

// FailMCP notes that an engine could not start a server: the conversation's
// next turn gets other addresses, so that an engine which is kept starts its
// servers anew. Without a bot it goes for all of the conversation's.
func (b *Broker) FailMCP(bot, conversation, server string) (MCPFailure, error) {
	if err := CheckMCPName(server); err != nil {
		return MCPFailure{}, err
	}
	f := MCPFailure{Code: string(reason.MCPStartFailed), Server: server, Message: startSentence(server, "")}
	found := false
	b.mu.Lock()
	defer b.mu.Unlock()
	for who, l := range b.mcp.byTalk {
		if who.conversation != conversation || bot != "" && who.bot != bot {
			continue
		}
		found, l.failed = true, true
		if cause := l.faults[server]; cause != "" {
			f.Message = startSentence(server, cause)
		}
		if err := b.keepLease(l); err != nil {
			return f, err
		}
	}
	if !found {
		return f, reason.New(reason.NoSuchTalk, "no living addresses belong to the conversation %q", conversation)
	}
	return f, nil
}

// startSentence is shown to a person as it is.
func startSentence(server, cause string) string {
	if cause != "" {
		cause = " (" + cause + ")"
	}
	return server + " didn't connect" + cause + "; it connects again on the next message."
}

// note remembers why a server's last request failed; empty: it did not.
func (b *Broker) note(l *lease, server, cause string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cause == "" {
		delete(l.faults, server)
	} else if l.alive {
		l.faults[server] = cause
	}
}
