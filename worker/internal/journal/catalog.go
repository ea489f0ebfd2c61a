package journal

import (
	"fmt"
	"strings"
)

// explanations are what `journalctl -x` prints under an event: what it means
// and what to do. By Event.Name.
var explanations = map[string]string{
	"worker-started":   "The worker keeps the gates and the keys of all boxes. Boxes can be asked for from now on.",
	"worker-stopped":   "The worker was told to stop and has ended its boxes.",
	"hardening-failed": "The supervisor could not change the machine as it should. `botbox report` shows the step and\nwhat was read back; OMB_CLOUD_HARDEN=strict makes it fatal.",
	"box-started":      "BOX_ID, BOT_ID and CONVERSATION_ID name it. `botbox ps` lists the boxes that run.",
	"box-ended":        "END says how: exited, killed, oom (its memory limit), wall or idle (its time), disk (free space), unseen (no worker lived).",
	"box-returned":     "Its worker died and the box went on; this worker serves it, with the same policy, grants and limits.",
	"box-lost":         "CAUSE says why it could not be served again. Nobody would have held it to its limits.",
	"box-refused":      "REASON is a stable code; `botbox why reason CODE` says what it means and what to do.",
	"gate-refusal":     "HOST, PORT and CLASS say where the box wanted to go and which rule refused it.\n`botbox why host HOST:PORT --box ID` answers from the same code.",
	"gate-allowed":     "Only with OMB_LOG=…+debug. `botbox logs` has these, too.",
	"budget-spent":     "The spec's net.egress.max_bytes is used up. The box lives on without egress.",
	"box-learns":       "Its host and port lists only note what they would have refused. Addresses are judged as ever.\nUse it to write a list, not to work.",
	"box-learnt":       "ALLOW is the list that would have sufficed.",
	"signin-relayed":   "Somebody pasted the redirect of a sign-in; it went to PORT in this box and nowhere else.",
	"token-stolen":     "Code in BOX_ID showed a token that was made for another box, OWNER. The token is revoked.\nLook at what that box had read: tokens leave a box through a shared folder or a chat.",
	"check-failed":     "The checks FAILED did not hold in a box of this machine, or could not be carried out three times in a row.\nNo box is given until a good run. Run botbox check; it says what each failure means.",
	"report-refused":   "CID says where the last one was: 1 is this machine itself. TIMES says how many came since the line\nbefore. They got nothing; no box can be among them.",
	"key-echoed":       "The upstream's answer held the key that the broker had put into the request, and the box did not\nget it. The upstream should not do that; rotate the key if others can read its answers.",
}

// Catalog gives the events for systemd's message catalogue (journalctl -x).
func Catalog() string {
	var b strings.Builder
	b.WriteString("# Made from the worker's table of events by its tests.\n")
	for _, e := range Events() {
		fmt.Fprintf(&b, "\n-- %s\nSubject: %s\nDefined-By: botbox\n\n%s\n", e.ID, strings.ToUpper(e.Means[:1])+e.Means[1:], explanations[e.Name])
	}
	return b.String()
}
