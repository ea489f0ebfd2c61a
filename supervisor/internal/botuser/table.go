package botuser

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// MaxBots bounds the table.
const MaxBots = 8192

const (
	fileName = "bot-users"
	newName  = ".bot-users.new" // no bot's name begins with a dot, and no file of ours is this one's name
	maxFile  = 64 + MaxBots*(len("365535 ")+maxBot+1)
	maxBot   = 128
)

// ErrFull says that no id is left.
var ErrFull = errors.New("every user id of the range belongs to a bot")

// Table says which user each bot is. A user is never given to a second bot,
// for whatever is on a disk still belongs to the first.
type Table struct {
	ids  Range
	bots []string // the i-th is user First+i
	at   map[string]uint32
	dir  int
}

// Open reads the table in a folder that root alone can enter. Without a file
// the table is empty.
func Open(dir string, ids Range) (*Table, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the folder of the table: %w", err)
	}
	text, err := readFile(fd)
	var t *Table
	if err == nil {
		t, err = parse(text, ids)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	t.dir = fd
	return t, nil
}

// readFile gives the file's text, empty if there is none. O_NONBLOCK: the open
// of a planted FIFO must not hang.
func readFile(dir int) (string, error) {
	fd, err := unix.Openat(dir, fileName, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("open the table: %w", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 || st.Size > int64(maxFile) {
		return "", errors.New("the table is not a plain file of our own that is closed to others")
	}
	b := make([]byte, st.Size)
	n, err := unix.Pread(fd, b, 0)
	if err != nil || n != len(b) {
		return "", fmt.Errorf("the table cannot be read whole: %w", err)
	}
	return string(b), nil
}

// parse reads a whole table or none of it:
//
//	bot-users 1 300000-365535
//	300000 alice
//	300001 bob
func parse(text string, ids Range) (*Table, error) {
	t := &Table{ids: ids, at: map[string]uint32{}, dir: -1}
	if text == "" {
		return t, nil
	}
	lines := strings.Split(text, "\n")
	if had, ok := strings.CutPrefix(lines[0], "bot-users 1 "); !ok || lines[len(lines)-1] != "" {
		return nil, errors.New("the table is malformed")
	} else if had != ids.String() {
		return nil, fmt.Errorf("the table was made for %.32q, and files on the disk belong to its users", had)
	}
	for i, line := range lines[1 : len(lines)-1] {
		id, bot, _ := strings.Cut(line, " ")
		if i >= MaxBots || id != fmt.Sprint(uint64(ids.First)+uint64(i)) || !ids.holds(ids.First+uint32(i)) || !isBot(bot) || t.at[bot] != 0 {
			return nil, fmt.Errorf("line %d of the table is malformed", i+2)
		}
		t.add(bot)
	}
	return t, nil
}

func (t *Table) add(bot string) uint32 {
	id := t.ids.First + uint32(len(t.bots))
	t.bots = append(t.bots, bot)
	t.at[bot] = id
	return id
}

func (t *Table) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "bot-users 1 %s\n", t.ids)
	for i, bot := range t.bots {
		fmt.Fprintf(&b, "%d %s\n", t.ids.First+uint32(i), bot)
	}
	return b.String()
}

// isBot is the grammar of the channel's names, held once more where it becomes
// a line of a file.
func isBot(name string) bool {
	if name == "" || len(name) > maxBot || name[0] == '.' {
		return false
	}
	return strings.IndexFunc(name, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-')
	}) < 0
}

// Close lets go of the folder.
func (t *Table) Close() { unix.Close(t.dir) }

// Bots is how many bots have a user.
func (t *Table) Bots() int { return len(t.bots) }

// User gives the bot's user, a new one where it has none. It is on the disk
// before anybody hears of it.
func (t *Table) User(bot string) (uint32, error) {
	if id, ok := t.at[bot]; ok {
		return id, nil
	}
	if !isBot(bot) {
		return 0, errors.New("that is no name of a bot")
	}
	if len(t.bots) >= MaxBots || !t.ids.holds(t.ids.First+uint32(len(t.bots))) {
		return 0, ErrFull
	}
	id := t.add(bot)
	if err := t.save(); err != nil {
		t.bots = t.bots[:len(t.bots)-1]
		delete(t.at, bot)
		return 0, fmt.Errorf("write the table: %w", err)
	}
	return id, nil
}

// save puts a new file in the old one's place.
func (t *Table) save() error {
	if err := unix.Unlinkat(t.dir, newName, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	fd, err := unix.Openat(t.dir, newName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), newName)
	_, err = f.WriteString(t.text())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := unix.Renameat(t.dir, newName, t.dir, fileName); err != nil {
		return err
	}
	return unix.Fsync(t.dir)
}
