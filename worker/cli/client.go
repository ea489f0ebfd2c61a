package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"github.com/openmausbot/botbox/worker/internal/api"
)

// ask sends one request to the worker's API. into may be nil.
func (c *call) ask(method, path string, body, into any) error {
	client := c.client()
	client.Timeout = time.Minute
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, "http://worker"+path, bytes.NewReader(b))
	if err != nil {
		return reason.New(reason.Usage, "%w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return c.noWorker(err)
	}
	defer resp.Body.Close()
	return readAnswer(resp, into)
}

func (c *call) apiSocket() string { return filepath.Join(c.settings.runDir(), api.SocketName) }

// noWorker says why a worker did not answer. One whose folder is closed to us
// may well be there.
func (c *call) noWorker(cause error) error {
	if errors.Is(cause, fs.ErrPermission) {
		return reason.New(reason.NoWorker, "%s is closed to user %d", c.apiSocket(), os.Geteuid()).
			WithHint("call botbox as the user that the worker runs as; as root that takes CAP_DAC_OVERRIDE, which a container may lack")
	}
	return reason.New(reason.NoWorker, "no worker answers on %s", c.apiSocket())
}

// client speaks to the worker's API, whatever proxy the environment names.
func (c *call) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", c.apiSocket())
		},
		Proxy: nil,
	}}
}

func readAnswer(resp *http.Response, into any) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return reason.New(reason.System, "read the worker's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		var f reason.Fault
		if json.Unmarshal(b, &f) != nil {
			return reason.New(reason.Internal, "the worker answered %s", resp.Status)
		}
		if _, known := reason.Lookup(reason.Code(f.Code)); !known {
			f.Code = string(reason.Internal)
		}
		return reason.New(reason.Code(f.Code), "%s", f.Message).WithHint("%s", f.Hint)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(b, into)
}

// jsonFlag parses the flags of a verb that only has --json.
func (c *call) jsonFlag(name string, args []string) (bool, error) {
	var asJSON bool
	rest, err := c.parse(name, args, func(set *flag.FlagSet) {
		set.BoolVar(&asJSON, "json", false, "print JSON")
	})
	if err == nil {
		err = noWords(rest)
	}
	return asJSON, err
}

func psVerb(c *call, args []string) (int, error) {
	asJSON, err := c.jsonFlag("ps", args)
	if err != nil {
		return 0, err
	}
	boxes := []api.Box{}
	if err := c.ask("GET", "/v1/boxes", nil, &boxes); err != nil {
		return 0, err
	}
	if asJSON {
		return 0, json.NewEncoder(c.stdout).Encode(boxes)
	}
	w := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "BOX\tBOT\tCONVERSATION\tENGINE\tPID\tSINCE")
	for _, b := range boxes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", b.ID, b.Bot, b.Conversation, b.Engine, b.Pid, b.Since.Format(time.RFC3339))
	}
	return 0, w.Flush()
}

func killVerb(c *call, args []string) (int, error) {
	rest, err := c.parse("kill", args, func(*flag.FlagSet) {})
	if err != nil {
		return 0, err
	}
	if len(rest) != 1 {
		return 0, reason.New(reason.Usage, "kill takes the name of one box")
	}
	return 0, c.ask("DELETE", "/v1/boxes/"+rest[0], nil, nil)
}
