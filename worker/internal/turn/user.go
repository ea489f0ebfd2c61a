package turn

import (
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
)

// user gives the turn's own Linux user, nil where boxes run as ours. What a
// spec says of it can only ask for what the machine does anyhow.
func (t *Turn) user() (*box.User, error) {
	users, s := t.runner.Users, t.Spec
	switch {
	case users == nil && s.User.Mode == "per-bot":
		return nil, reason.New(reason.BotUsersOff, "the spec wants a Linux user of the bot's own (user.mode)")
	case users == nil:
		return nil, nil
	case s.User.Mode == "maus":
		return nil, reason.New(reason.BotUsersRefused, "the spec wants the worker's own user (user.mode), and OMB_BOT_USERS=1 lets no box have it").
			WithHint("leave user.mode out of the spec")
	case s.Bot == "":
		return nil, reason.New(reason.BotUsersRefused, "the turn names no bot, and each bot has a Linux user of its own").
			WithHint("name it with --bot, or in the spec's field bot")
	case s.Bot[0] == '.' || strings.Contains(s.Bot, ":"):
		return nil, reason.New(reason.BotUsersRefused, "the bot's name %q is none that can have a Linux user", s.Bot).
			WithHint("letters, digits and . _ - only, with no dot in front")
	case s.Home.Mode == "server":
		return nil, reason.New(reason.BotUsersRefused, "the server's HOME belongs to the server's user, and this box has another").
			WithHint("use --home private, or home.mode engine with a folder of the bot's own")
	}
	return users(s.Bot)
}

// plan plans the turn's box, for the user that it has to itself if it has one.
func (t *Turn) plan() (*box.User, error) {
	r, s := t.runner, t.Spec
	user, err := t.user()
	if err != nil {
		return nil, err
	}
	machine, stays := r.Machine.For(s, pathOf(s)).OwnedBy(user, s.Engine)
	plan, err := box.NewPlan(s, machine, r.Ports)
	if err != nil {
		return user, err
	}
	plan.ID, t.Plan, plan.User = t.ID, plan, user
	plan.Warnings = append(plan.Warnings, stays...)
	return user, nil
}
