package vm_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/openmausbot/botbox/testbed/vsockhost"
)

// The ports of a machine's, as its inside has them.
const (
	reportPort  = 5005
	verdictPort = 5003
	freePort    = 5006
)

// tell asks a machine for its report, as the host and as others, and tells it
// what came of it, for the machine makes a check of that.
func tell(ctx context.Context, host *vsockhost.Host, key, work, programs string) {
	seen, err := fetch(ctx, host, key, work, filepath.Join(programs, "botbox"))
	word := "ok " + seen
	if err != nil {
		word = fmt.Sprintf("FAIL %v", err)
	}
	host.Ask(ctx, vsockhost.Me, verdictPort, word[:min(len(word), 1000)]+"\n")
}

// fetch is what a host can do.
func fetch(ctx context.Context, host *vsockhost.Host, key, work, botbox string) (string, error) {
	const nonce = "the-hosts-own-nonce_1"
	within := 20 * time.Second
	get := func(from uint64, port uint32, path string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return host.Ask(ctx, from, port, "GET "+path+" HTTP/1.0\r\n\r\n")
	}
	if answer, err := get(vsockhost.Me, freePort, "/v1/report"); !errors.Is(err, vsockhost.ErrRefused) {
		return "", fmt.Errorf("control: a port where nobody listens: %v %q", err, answer)
	}
	answer, err := get(vsockhost.Me, reportPort, "/v1/report?nonce="+nonce)
	if err != nil || !strings.HasPrefix(answer, "HTTP/1.0 200 OK\r\n") {
		return "", fmt.Errorf("no report: %v %.300q", err, answer)
	}
	verify := func(nonce string) (string, error) { // as the README does
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `sed '1,/^\r$/d' | "$0" report --verify - --key "$1" --nonce "$2"`, botbox, key, nonce)
		cmd.Env, cmd.Stdin = []string{"PATH=/usr/bin:/bin", "HOME=" + work}, strings.NewReader(answer)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	said, err := verify(nonce)
	if err != nil || !strings.Contains(said, "the report holds: it is what the machine signed") {
		return "", fmt.Errorf("the report does not verify: %v %s", err, said)
	}
	if said, err := verify(nonce + "2"); err == nil || !strings.Contains(said, "reason: report-forged") {
		return "", fmt.Errorf("control: the report verifies with another nonce: %v %s", err, said)
	}
	if answer, err := get(vsockhost.Me, reportPort, "/v1/boxes"); err != nil || !strings.Contains(answer, " 404 Not Found\r\n") {
		return "", fmt.Errorf("another route: %v %q", err, answer)
	}
	// The worker closes these, which the machine's kernel lets through.
	for _, from := range []uint64{vsockhost.Hypervisor, vsockhost.Sibling} {
		if answer, err := get(from, reportPort, "/v1/report"); err != nil || answer != "" {
			return "", fmt.Errorf("CID %d is served, or does not come so far: %v %.300q", from, err, answer)
		}
	}
	// And the kernel these: nobody outside is the machine itself. To itself by
	// number it does not even say so.
	if answer, err := get(vsockhost.Local, reportPort, "/v1/report"); !errors.Is(err, vsockhost.ErrRefused) {
		return "", fmt.Errorf("CID 1 from outside: %v %.300q", err, answer)
	}
	within = 2 * time.Second
	if answer, err := get(vsockhost.Guest, reportPort, "/v1/report"); !errors.Is(err, context.DeadlineExceeded) {
		return "", fmt.Errorf("the machine's own CID from outside: %v %.300q", err, answer)
	}
	within = 20 * time.Second
	if answer, err := get(vsockhost.Me, reportPort, "/v1/report"); err != nil || !strings.Contains(answer, " 200 OK\r\n") {
		return "", fmt.Errorf("after them the host: %v %.300q", err, answer)
	}
	return fmt.Sprintf("%d bytes, which verify; closed to CID 0 and 4, and by the kernel to 1 and 3", len(answer)), nil
}
