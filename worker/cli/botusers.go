package cli

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/botfiles"
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
	var err error
	if w.self, err = openSelf(); err != nil {
		return err
	}
	w.runner.Users = w.boxUser
	return nil
}

// openSelf holds this program, for the runs of it in users' namespaces.
func openSelf() (*os.File, error) {
	fd, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, reason.New(reason.System, "open our own program: %w", err)
	}
	return os.NewFile(uintptr(fd), "botbox"), nil
}

// hands are the bots whose files are changing hands just now.
type hands struct {
	mu   sync.Mutex
	bots map[string]bool
}

// boxUser gives a box its user.
func (w *worker) boxUser(bot string) (*box.User, error) {
	w.moving.mu.Lock()
	moving := w.moving.bots[bot]
	w.moving.mu.Unlock()
	if moving {
		return nil, reason.New(reason.BotUserBusy, "the files of the bot %s are changing hands", bot)
	}
	return w.user(bot)
}

// begin keeps boxes away from a bot while its files change hands.
func (w *worker) begin(bot string) error {
	w.moving.mu.Lock()
	defer w.moving.mu.Unlock()
	if w.moving.bots[bot] {
		return reason.New(reason.BotUserBusy, "the files of the bot %s are changing hands", bot)
	}
	for _, t := range w.runner.Running() {
		if t.Spec.Bot == bot {
			return reason.New(reason.BotUserBusy, "the bot %s has a box open (%s)", bot, t.ID)
		}
	}
	if w.moving.bots == nil {
		w.moving.bots = map[string]bool{}
	}
	w.moving.bots[bot] = true
	return nil
}

func (w *worker) end(bot string) {
	w.moving.mu.Lock()
	defer w.moving.mu.Unlock()
	delete(w.moving.bots, bot)
}

// moveWithin bounds a change of hands; what is left is done by the next one.
const moveWithin = 50 * time.Second

// moveFiles gives a folder to a bot's own user, or takes it back.
func (w *worker) moveFiles(bot, folder string, back bool) (botfiles.Done, error) {
	var done botfiles.Done
	if w.runner.Users == nil {
		return done, reason.New(reason.BotUsersOff, "the worker gives bots no users of their own")
	}
	if folder == "" {
		folder = filepath.Join(w.runner.Machine.Again().DataDir, "workspaces", bot)
	}
	if err := w.runner.Machine.Again().MayGive(folder); err != nil {
		return done, err
	}
	if err := w.begin(bot); err != nil {
		return done, err
	}
	defer w.end(bot)
	if err := w.killStrays(bot); err != nil {
		return done, err
	}
	u, err := w.user(bot)
	if err != nil {
		return done, err
	}
	defer u.Close()
	args := []string{"bot", "--inside", strconv.Itoa(u.Number) + ":" + strconv.Itoa(u.GroupNum), moveWord(back), bot, folder}
	out, err := w.runner.Spawner.AsAccount(moveWithin, u, w.self, args...)
	var said struct {
		Done  botfiles.Done
		Error *reason.Fault
	}
	if bad := json.Unmarshal(out, &said); bad != nil {
		return done, reason.New(reason.System, "the change of hands was cut off: %w", errors.Join(err, bad)).WithHint("ask again: what is done stays done")
	}
	if said.Error != nil {
		code := reason.Code(said.Error.Code)
		if _, known := reason.Lookup(code); !known {
			code = reason.Internal
		}
		return said.Done, reason.New(code, "%s", said.Error.Message).WithHint("%s", said.Error.Hint)
	}
	if err := w.mendWay(&said.Done, folder, u.UID, back); err != nil {
		return said.Done, err
	}
	w.log.Info("a folder has changed hands", slog.String("bot_id", bot), slog.String("word", moveWord(back)), slog.Int("changed", said.Done.Changed), slog.Int("uid", u.UID))
	return said.Done, nil
}

// mendWay opens or closes the folders on the way to one that has changed hands.
func (w *worker) mendWay(done *botfiles.Done, folder string, uid int, back bool) (err error) {
	if back {
		return botfiles.CloseWay(folder, uint32(uid))
	}
	done.Warnings, err = botfiles.LetThrough(folder, uint32(uid))
	return err
}

// openPipes lets a box of another user open its stdio anew, as scripts do with
// /dev/stderr. A pipe without a name is reached through /proc by processes
// that have it open, and nobody else; a file or a terminal has a name, and
// stays what it is.
func openPipes() {
	for fd := range 3 {
		var at unix.Statfs_t
		if unix.Fstatfs(fd, &at) == nil && at.Type == unix.PIPEFS_MAGIC {
			unix.Fchmod(fd, 0o666) // one that is not ours stays closed
		}
	}
}

// killStrays ends what is left of the bot's user: its boxes have ended, so
// there should be nothing.
func (w *worker) killStrays(bot string) error {
	lease, _, err := w.channel.LeaseUser(bot)
	if err != nil {
		return err
	}
	return w.channel.KillUser(lease)
}

func moveWord(back bool) string {
	if back {
		return "release"
	}
	return "adopt"
}

// botVerb has a bot's folder change hands. With --inside it is the worker's own
// run in the bot's namespace, which does it.
func botVerb(c *call, args []string) (int, error) {
	var inside string
	var asJSON bool
	words, err := c.parse("bot", args, func(set *flag.FlagSet) {
		set.StringVar(&inside, "inside", "", "`UID:GID` of the bot in its namespace: for the worker, which calls itself there")
		set.BoolVar(&asJSON, "json", false, "print JSON")
	})
	if err != nil {
		return 0, err
	}
	if len(words) < 2 || len(words) > 3 || words[0] != "adopt" && words[0] != "release" {
		return 0, reason.New(reason.Usage, "bot takes adopt or release, the name of a bot, and at most one folder")
	}
	folder := ""
	if len(words) == 3 {
		if folder, err = filepath.Abs(words[2]); err != nil {
			return 0, reason.New(reason.WorkFolder, "%w", err)
		}
	}
	if inside != "" {
		return 0, c.moveInside(inside, folder, words[0] == "release")
	}
	var done botfiles.Done
	if err := c.ask("POST", "/v1/bots/"+url.PathEscape(words[1])+"/"+words[0], map[string]string{"folder": folder}, &done); err != nil {
		return 0, err
	}
	if asJSON {
		return 0, json.NewEncoder(c.stdout).Encode(done)
	}
	for _, text := range done.Warnings {
		fmt.Fprintf(c.stderr, "botbox: warning: %s\n", text)
	}
	fmt.Fprintf(c.stdout, "%d files and folders changed hands\n", done.Changed)
	return 0, nil
}

// moveInside does it, as root of the bot's namespace, and says how it went.
func (c *call) moveInside(bot, folder string, back bool) error {
	uid, gid, _ := strings.Cut(bot, ":")
	u, err := strconv.ParseUint(uid, 10, 31)
	g, err2 := strconv.ParseUint(gid, 10, 31)
	if err != nil || err2 != nil || u == 0 || g == 0 || folder == "" {
		return reason.New(reason.Usage, "--inside is for the worker")
	}
	done, err := botfiles.Move{Folder: folder, Bot: botfiles.Owner{UID: uint32(u), GID: uint32(g)}, Back: back}.Make()
	said := map[string]any{"Done": done}
	if err != nil {
		said["Error"] = reason.FaultOf(err)
	}
	return json.NewEncoder(c.stdout).Encode(said)
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
