package cli

import (
	"os"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/box"
)

// giveUsers sees to it that each bot's boxes have a Linux user of their own,
// if that is what the machine is set to.
func (w *worker) giveUsers() error {
	if w.call.settings.BotUsers != "1" {
		return nil
	}
	if w.channel == nil {
		return reason.New(reason.BotUsersRefused, "OMB_BOT_USERS is 1, and no supervisor started this worker, which could write the maps of users").
			WithHint("start botbox-supervisor, which starts the worker, or set OMB_BOT_USERS=0")
	}
	w.runner.Users = w.user
	return nil
}

// user makes a user namespace for one box of a bot's, and has the supervisor
// put the bot's user into it.
func (w *worker) user(bot string) (*box.User, error) {
	nsenter, err := box.FindNsenter(w.runner.Path)
	if err != nil {
		return nil, err
	}
	lease, uid, err := w.channel.LeaseUser(bot)
	if err != nil {
		return nil, err
	}
	u := &box.User{UID: uid, Nsenter: nsenter, Number: os.Geteuid(), GroupNum: os.Getegid()}
	asked := false
	u.Space, err = w.runner.Spawner.Fresh(w.runner.Entry, func(pid int) error {
		asked = true
		return w.channel.MapUser(lease, pid)
	})
	if err == nil {
		return u, nil
	}
	if !asked {
		w.channel.ReleaseUser(lease)
	}
	return nil, err
}
