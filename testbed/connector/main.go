// Connector is an engine whose first instructions are connects: it reaches
// every address that it is given, at once, or ends with 1.
package main

import (
	"net"
	"os"
	"time"
)

func main() {
	for _, addr := range os.Args[1:] {
		c, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		c.Close()
	}
}
