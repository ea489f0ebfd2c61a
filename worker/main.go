package main

import (
	"os"

	"github.com/openmausbot/botbox/worker/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], loadSettings))
}
