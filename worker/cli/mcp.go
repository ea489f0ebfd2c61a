package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/mcpprobe"
)

// headerFlags collects --header NAME=ref:SECRET.
type headerFlags map[string]any

func (h headerFlags) String() string { return "" }

func (h headerFlags) Set(s string) error {
	name, value, _ := strings.Cut(s, "=")
	// What stands on a command line, others can read.
	if !strings.HasPrefix(value, "ref:") || name == "" {
		return fmt.Errorf("a header is given as NAME=ref:SECRET, with a secret that the worker holds")
	}
	h[name] = map[string]string{"secret": value}
	return nil
}

func mcpVerb(c *call, args []string) (int, error) {
	var asJSON bool
	headers := headerFlags{}
	var words []string
	for rest := args; ; { // flags may stand before the address and behind it
		more, err := c.parse("mcp", rest, func(set *flag.FlagSet) {
			set.BoolVar(&asJSON, "json", asJSON, "print JSON")
			set.Var(headers, "header", "`NAME=ref:SECRET`: a header that the server wants, from one of the worker's secrets")
		})
		if err != nil {
			return 0, err
		}
		if len(more) == 0 {
			break
		}
		words, rest = append(words, more[0]), more[1:]
	}
	if len(words) != 2 || words[0] != "test" {
		return 0, reason.New(reason.Usage, "mcp takes: test URL")
	}
	var r mcpprobe.Result
	if err := c.ask("POST", "/v1/mcp/test", map[string]any{"url": words[1], "headers": headers}, &r); err != nil {
		return 0, err
	}
	if asJSON {
		if err := json.NewEncoder(c.stdout).Encode(r); err != nil {
			return 0, err
		}
		if r.OK {
			return 0, nil
		}
		return reason.ExitSystem, nil
	}
	if !r.OK {
		return 0, reason.New(reason.Code(r.Code), "%s", r.Message)
	}
	fmt.Fprintf(c.stdout, "%s (%s, MCP %s, %d ms)\n", r.Message, r.Server, r.Protocol, r.Ms)
	w := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	for _, t := range r.Tools {
		fmt.Fprintf(w, "%s\t%s\n", t.Name, t.Description)
	}
	return 0, w.Flush()
}
