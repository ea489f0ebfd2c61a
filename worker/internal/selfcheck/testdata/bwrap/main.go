// Bwrap is a bubblewrap that does not do all that it is told: it leaves one
// option out, or takes another in its place, and says nothing of it.
package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Set by the linker.
var (
	real    string // path of the real one
	option  string // what it passes over
	words   string // how many words of its own the option has
	instead string // what it takes in its place; empty: nothing, and not those words either
)

func main() {
	args := os.Args[1:]
	if len(args) > 1 && args[0] == "--args" {
		fd, err := strconv.Atoi(args[1])
		exitOn(err)
		exitOn(rewrite(fd))
	} else {
		args = without(args)
	}
	exitOn(syscall.Exec(real, append([]string{"bwrap"}, args...), os.Environ()))
}

// rewrite puts a file with other options where the caller's is.
func rewrite(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	text := make([]byte, st.Size)
	if _, err := unix.Pread(fd, text, 0); err != nil {
		return err
	}
	other, err := unix.MemfdCreate("options", 0)
	if err != nil {
		return err
	}
	kept := without(strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"))
	if _, err := unix.Pwrite(other, []byte(strings.Join(kept, "\x00")+"\x00"), 0); err != nil {
		return err
	}
	return unix.Dup2(other, fd)
}

func without(args []string) []string {
	more, _ := strconv.Atoi(words)
	for at := 0; at < len(args) && args[at] != "--"; at++ {
		switch {
		case args[at] != option:
		case instead != "":
			args[at] = instead
		default:
			args = slices.Delete(args, at, at+1+more)
			at--
		}
	}
	return args
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bwrap:", err)
		os.Exit(1)
	}
}
