package control

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/posture"
	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/shared/wire"
)

// fdStart is where the supervisor puts the pipe with its command, for the
// programs of ours that become it.
const fdStart = 3

// ReadStart reads what the supervisor has this process become. It writes that
// whole, and closes the pipe.
func ReadStart() (wire.StartSpec, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fdStart, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return wire.StartSpec{}, reason.New(reason.Usage, "descriptor %d is not what a supervisor hands over", fdStart).
			WithHint("--control is for botbox-supervisor; to box a command: botbox run -- CMD")
	}
	f := os.NewFile(fdStart, "start")
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, wire.MaxStartSpec+1))
	if err != nil {
		return wire.StartSpec{}, reason.New(reason.System, "read what to run: %w", err)
	}
	start, err := wire.DecodeStartSpec(b)
	if err != nil {
		return wire.StartSpec{}, reason.New(reason.Internal, "what to run cannot be read: %w", err)
	}
	return start, nil
}

// Plain becomes the supervisor's unboxed command. It returns only where that
// cannot be started, with the status that a shell would have.
func Plain() (status int, err error) {
	start, err := ReadStart()
	if err != nil {
		return reason.Exit(err), err
	}
	path, err := lookPath(start.Argv[0], os.Getenv("PATH"))
	if err == nil {
		runtime.LockOSThread() // it is the calling thread's, which the exec keeps
		unix.Prctl(unix.PR_SET_TIMERSLACK, posture.PlainTimerSlack, 0, 0, 0)
		err = syscall.Exec(path, start.Argv, plainEnv(start.Env))
	}
	status = reason.ExitNotRunnable
	if errors.Is(err, unix.ENOENT) {
		status = reason.ExitNotFound
	}
	return status, fmt.Errorf("start the command: %w", err)
}

// plainEnv is the container's environment, but what in it is root's is the
// account's.
func plainEnv(env []string) []string {
	own := map[string]string{"LOGNAME": os.Getenv("USER")}
	for _, name := range []string{"HOME", "USER", "OMB_RUN_DIR"} {
		own[name] = os.Getenv(name)
	}
	var out []string
	for name, value := range own {
		out = append(out, name+"="+value)
	}
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if _, ours := own[name]; !ours {
			out = append(out, e)
		}
	}
	return out
}

// lookPath finds a command as execvp does. Neither answer is our fault, so
// the error is the system's own: ENOENT or EACCES.
func lookPath(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	found := error(unix.ENOENT)
	for _, dir := range strings.Split(path, ":") {
		var st unix.Stat_t
		full := dir + "/" + name
		if dir == "" || unix.Stat(full, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if unix.Access(full, unix.X_OK) == nil {
			return full, nil
		}
		found = unix.EACCES
	}
	return "", found
}
