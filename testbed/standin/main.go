// Command standin serves the stand-in model provider of testbed/provider.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/openmausbot/botbox/testbed/provider"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "the `address` to serve on")
	ready := flag.String("ready-file", "", "write the address to this `file` once it is served")
	log := flag.String("log", "", "append one JSON line a request to this `file`")
	key := flag.String("key", "standin-key", "the `credential` to expect")
	tool := flag.String("tool", "", "a shell `command` that the engine is told to run")
	reply := flag.String("reply", "done", "the `text` that ends the turn")
	flag.Parse()
	err := serve(*listen, *ready, *log, provider.Options{Key: *key, Tool: *tool, Reply: *reply})
	fmt.Fprintln(os.Stderr, "standin:", err)
	os.Exit(1)
}

func serve(listen, ready, log string, opt provider.Options) error {
	if log != "" {
		f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		opt.Log = f
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	if err := announce(ready, l.Addr().String()); err != nil {
		return err
	}
	return http.Serve(l, provider.New(opt))
}

// announce writes the address in one step, so no reader sees half of it.
func announce(file, address string) error {
	if file == "" {
		return nil
	}
	tmp := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".new")
	if err := os.WriteFile(tmp, []byte(address+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}
