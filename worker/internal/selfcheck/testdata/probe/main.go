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
	ids       string // of every check, the seed's with a star, comma separated
)

func passedOf(id string) string {
	return `{"id":"` + id + `","layer":"mounts","verdict":"pass","ms":0,"why":"says so"}`
}

var passed = passedOf("D1")

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
	case "repeats":
		fmt.Println(passed)
		end(1, wire.Build)
	case "invents-a-check":
		fmt.Println(passedOf("D99"))
		end(2, wire.Build)
	case "other-profile": // a check of full that nobody asked for
		fmt.Println(passedOf("S09"))
		end(2, wire.Build)
	case "invents-a-verdict":
		fmt.Println(strings.Replace(passedOf("D2"), `"pass"`, `"PASS"`, 1))
		end(2, wire.Build)
	case "half-a-line":
		fmt.Println(passedOf("D2")[:20])
		end(2, wire.Build)
	case "two-in-a-line":
		fmt.Println(passedOf("D2") + passedOf("D3"))
		end(3, wire.Build)
	case "one-huge-line":
		fmt.Println(strings.Replace(passedOf("D2"), "says so", strings.Repeat("x", 1<<15), 1))
		end(2, wire.Build)
	case "ends-twice":
		end(1, wire.Build)
		end(1, wire.Build)
	case "claims-all": // in due form, without having tried anything
		count := 0
		for id := range strings.SplitSeq(ids, ",") {
			id, ofSeed := strings.CutSuffix(id, "*")
			if !ofSeed && os.Args[2] == "seed" {
				continue
			}
			if count++; count > 1 {
				fmt.Println(passedOf(id))
			}
		}
		end(count, wire.Build)
	case "other-build":
		end(1, "of-another-build")
	case "hangs":
		os.WriteFile("hangs", nil, 0o600)
		time.Sleep(time.Hour)
	}
}
