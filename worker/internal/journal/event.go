package journal

import (
	"context"
	"log/slog"
)

// Event is something that people look for by name. The ID is the journal's
// MESSAGE_ID and never changes: journalctl MESSAGE_ID=….
type Event struct {
	Name  string
	ID    string // 128 bits in 32 hex digits
	Level slog.Level
	Means string // the log line's text
}

// The events.
var (
	WorkerStarted   = Event{"worker-started", "c06e203a2c275efae683457da5e9a5f3", slog.LevelInfo, "the worker has started"}
	WorkerStopped   = Event{"worker-stopped", "07741ba33a49fb21456771208bca1f31", slog.LevelInfo, "the worker has stopped"}
	HardeningFailed = Event{"hardening-failed", "077b9540728b0f2cb16b792b2f2dd6eb", slog.LevelError, "a hardening step failed"}
	BoxStarted      = Event{"box-started", "30f759ea0d5f884341ee4be2c61ad75f", slog.LevelInfo, "a box has started"}
	BoxEnded        = Event{"box-ended", "9e405a2ca611e93ec2dc80968f907df6", slog.LevelInfo, "a box has ended"}
	BoxReturned     = Event{"box-returned", "52b0c4cf8a1d4f3e9d6c7e21a80b5f94", slog.LevelInfo, "a box that outlived its worker is served again"}
	BoxLost         = Event{"box-lost", "e3d17f0a6b924c58a1c4d2907be86f3d", slog.LevelWarn, "a box that outlived its worker could not be taken back, and is killed"}
	BoxRefused      = Event{"box-refused", "a118e093e61f00a73a9c2dc923537255", slog.LevelWarn, "a box was refused"}
	GateRefusal     = Event{"gate-refusal", "05ce05b81a0ed829591b273b811a1d1b", slog.LevelWarn, "a gate refused a connection"}
	GateAllowed     = Event{"gate-allowed", "435d544555b0694edec5102d02b3e47d", slog.LevelDebug, "a gate let a connection through"}
	BudgetSpent     = Event{"budget-spent", "bc1967fefc0f612f04e17b7e176bcd6c", slog.LevelWarn, "a box has used up its bytes of egress, and its connections have ended"}
	BoxLearns       = Event{"box-learns", "1dc169f4a24bfb19372ed6886db8dad0", slog.LevelWarn, "a box learns: its egress lists and the machine's are noted and not held"}
	BoxLearnt       = Event{"box-learnt", "3b5ff52c15f2b56a99186405b3e30cd9", slog.LevelInfo, "a box that learnt has ended"}
	SigninRelayed   = Event{"signin-relayed", "e7a20076f0174a6097fe0257342c442f", slog.LevelInfo, "the redirect of a sign-in was sent into a box"}
	TokenStolen     = Event{"token-stolen", "4f4e0cdf6cd43a3d43fe8515451b621c", slog.LevelError, "a token came from a box that it was not made for, and is revoked"}
	CheckFailed     = Event{"check-failed", "e088b52b193442c79cd31ae73a3ba3d7", slog.LevelError, "the self-check failed: new boxes are refused unless OMB_CHECK_FAILED=warn"}
	ReportRefused   = Event{"report-refused", "5cabf162e4183c58a834d74af0e59023", slog.LevelWarn, "somebody who is not the host asked for the report over vsock"}
	KeyEchoed       = Event{"key-echoed", "a7b3f1c05d2e4c6f9b1f0e83d47a6c25", slog.LevelWarn, "an upstream sent a key back, and it was overwritten"}
)

// Events gives the table.
func Events() []Event {
	return []Event{WorkerStarted, WorkerStopped, HardeningFailed, BoxStarted, BoxEnded, BoxReturned, BoxLost, BoxRefused, GateRefusal, GateAllowed, BudgetSpent, BoxLearns, BoxLearnt, SigninRelayed, TokenStolen, KeyEchoed, CheckFailed, ReportRefused}
}

// Log writes the event with attrs. Keys are in lower case with underscores
// (box_id, reason) and become the journal's fields in upper case.
func (e Event) Log(to *slog.Logger, attrs ...slog.Attr) {
	to.LogAttrs(context.Background(), e.Level, e.Means, append([]slog.Attr{slog.Any("event", e)}, attrs...)...)
}
