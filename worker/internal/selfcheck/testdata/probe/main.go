// Probe is a boxprobe that does not come back as it should. Outside it is the
// real one; inside a box it behaves as it was linked to.
package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/openmausbot/botbox/shared/wire"
)

// Set by the linker.
var (
	real      string // path of the real boxprobe
	behaviour string
)

const passed = `{"id":"D1","layer":"mounts","verdict":"pass","ms":0,"why":"says so"}`

func end(count int, build string) {
	fmt.Printf("{\"done\":true,\"count\":%d,\"build\":%q}\n", count, build)
}

func main() {
	if os.Args[1] == "--list" || os.Args[1] == "canary" {
		fmt.Fprintln(os.Stderr, syscall.Exec(real, os.Args, os.Environ()))
		os.Exit(1)
	}
	fmt.Println(passed)
	switch behaviour {
	case "killed":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "no-last-line":
	case "short": // comes back, without most checks
		end(1, wire.Build)
	case "miscounts":
		end(29, wire.Build)
	case "fails":
		end(1, wire.Build)
		os.Exit(111)
	case "goes-on":
		end(1, wire.Build)
		fmt.Println(passed)
	case "floods":
		for {
			fmt.Println(strings.Repeat("x", 1<<20))
		}
	case "other-build":
		end(1, "of-another-build")
	case "hangs":
		os.WriteFile("hangs", nil, 0o600)
		time.Sleep(time.Hour)
	}
}
