// Stranger tries everything that one process can do to another one by its
// number: it reads, signals and traces it. Nothing that it tries changes the
// other one where it works. A line tells for each what came of it.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func main() {
	pid, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	for _, a := range attempts {
		err := a.do(pid)
		switch {
		case err == nil || a.in != nil && errors.Is(err, a.in):
			fmt.Printf("%s: in\n", a.name)
		case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT):
			fmt.Printf("%s: refused\n", a.name)
		default:
			fmt.Printf("%s: %v\n", a.name, err)
		}
	}
}
