package main

import (
	"io"
	"os"
)

// canary is what the probe must not find: a process outside every box, with
// the words after the first as its mark. It answers what it is told, so that
// its starter sees that it runs, and ends when its starter does.
func canary(args []string) bool {
	if len(args) == 0 || args[0] != "canary" {
		return false
	}
	io.Copy(os.Stdout, os.Stdin)
	return true
}
