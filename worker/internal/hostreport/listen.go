package hostreport

import (
	"errors"
	"io/fs"
	"net"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"github.com/openmausbot/botbox/shared/reason"
)

// Ports that can be asked for. Those below need CAP_NET_BIND_SERVICE, which
// the worker has not; the one above stands for any.
const (
	FirstPort = 1024
	LastPort  = unix.VMADDR_PORT_ANY - 1
)

// Listen opens the port, on every CID that this machine has now or later.
func Listen(port uint32) (net.Listener, error) {
	if err := hostless(vsock.ContextID()); err != nil {
		return nil, err
	}
	l, err := vsock.ListenContextID(unix.VMADDR_CID_ANY, port, nil)
	if err != nil {
		return nil, fault(err, port)
	}
	return l, nil
}

// hostless refuses a machine above which there is no host, where a port would
// be open that nobody could ever use. It takes what /dev/vsock says of the
// machine's own CID.
func hostless(cid uint32, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil // the device is root's alone here, and binding does not need it
	case errors.Is(err, fs.ErrNotExist):
		return reason.New(reason.NoVsock, "OMB_VSOCK_PORT is set, and there is no /dev/vsock")
	case err != nil:
		return reason.New(reason.NoVsock, "OMB_VSOCK_PORT is set, and /dev/vsock does not tell this machine's CID: %w", err)
	case cid == vsock.Local, cid == vsock.Host, cid == unix.VMADDR_CID_ANY:
		return reason.New(reason.NoVsock, "OMB_VSOCK_PORT is set, and this machine's vsock leads to no host above it")
	}
	return nil
}

// fault names why the port is not open.
func fault(err error, port uint32) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return reason.New(reason.PortTaken, "listen on vsock port %d: %w", port, err).
			WithHint("name another port in OMB_VSOCK_PORT")
	case errors.Is(err, unix.EAFNOSUPPORT):
		return reason.New(reason.NoVsock, "this kernel has no AF_VSOCK: %w", err)
	case errors.Is(err, fs.ErrPermission):
		return reason.New(reason.NoVsock, "vsock is refused to this process: %w", err).
			WithHint("a container's system-call filter refuses AF_VSOCK; allow it there, or unset OMB_VSOCK_PORT")
	}
	return reason.New(reason.System, "listen on vsock port %d: %w", port, err)
}
