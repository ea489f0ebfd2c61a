package hostreport

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// A port that nobody could ever use is refused, and so is one for lack of
// knowledge alone not.
func TestAMachineWithoutAHost(t *testing.T) {
	device := func(err error) error { return &fs.PathError{Op: "open", Path: "/dev/vsock", Err: err} }
	for name, c := range map[string]struct {
		cid  uint32
		err  error
		says string // empty: the port is opened
	}{
		"a virtual machine":          {3, nil, ""},
		"with a large number":        {1 << 31, nil, ""},
		"the device is root's alone": {0, device(unix.EACCES), ""},
		"or a container's rule":      {0, device(unix.EPERM), ""},
		"no device":                  {0, device(unix.ENOENT), "there is no /dev/vsock"},
		"a device without a driver":  {0, device(unix.ENXIO), "does not tell"},
		"only itself":                {vsock.Local, nil, "leads to no host"},
		"the host of others":         {vsock.Host, nil, "leads to no host"},
		"no transport":               {unix.VMADDR_CID_ANY, nil, "leads to no host"},
	} {
		err := hostless(c.cid, c.err)
		if c.says == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || reason.Of(err).Code != reason.NoVsock || !strings.Contains(err.Error(), c.says) || reason.Exit(err) != reason.ExitUsage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the library says of a port that is not open, in the form that it says it.
func TestWhyThePortIsNotOpen(t *testing.T) {
	for name, c := range map[string]struct {
		call  string
		errno unix.Errno
		code  reason.Code
		exit  int
		hint  string
	}{
		"taken":            {"bind", unix.EADDRINUSE, reason.PortTaken, reason.ExitSystem, "OMB_VSOCK_PORT"},
		"no family":        {"socket", unix.EAFNOSUPPORT, reason.NoVsock, reason.ExitUsage, "OMB_VSOCK_PORT"},
		"a filter":         {"socket", unix.EPERM, reason.NoVsock, reason.ExitUsage, "filter"},
		"a rule":           {"socket", unix.EACCES, reason.NoVsock, reason.ExitUsage, "filter"},
		"something else":   {"socket", unix.EMFILE, reason.System, reason.ExitSystem, "again"},
		"an address of no": {"bind", unix.EADDRNOTAVAIL, reason.System, reason.ExitSystem, "again"},
	} {
		err := fault(&net.OpError{Op: "listen", Net: "vsock", Addr: &vsock.Addr{ContextID: unix.VMADDR_CID_ANY, Port: 5005}, Err: os.NewSyscallError(c.call, c.errno)}, 5005)
		if reason.Of(err).Code != c.code || reason.Exit(err) != c.exit || !strings.Contains(reason.FaultOf(err).Hint, c.hint) || !errors.Is(err, c.errno) {
			t.Errorf("%s: %v, %+v", name, err, reason.FaultOf(err))
		}
	}
}
