package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	reportPort  = 5005 // OMB_VSOCK_PORT of the course
	verdictPort = 5003 // where the host says what it has seen
	freePort    = 5006
	hostCID     = unix.VMADDR_CID_HOST
	selfCID     = unix.VMADDR_CID_LOCAL
	machineCID  = 3 // as testbed/vsockhost gives it
)

// listenVsock opens a port of the machine's.
func listenVsock(port uint32) (int, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: port}), unix.Listen(fd, 4)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listen: %w", err)
	}
	return fd, nil
}

// reportToHost lets the host ask for the report as it likes, and gives what it
// says that it got. The key that it verifies with goes by another way, over the
// serial port.
func reportToHost(b *bed) (string, error) {
	key := b.botbox("report", "--public-key")
	if key.code != 0 {
		return key.String(), errors.New("no key")
	}
	fd, err := listenVsock(verdictPort)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	fmt.Println("HOST ASKS", strings.TrimSpace(key.stdout))
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000); n != 1 {
		return "", fmt.Errorf("the host says nothing: %v", err)
	}
	conn, peer, err := unix.Accept(fd)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(conn), "host")
	defer f.Close()
	words := make([]byte, 2048)
	n, err := f.Read(words)
	said := strings.TrimSpace(string(words[:n]))
	if from, ok := peer.(*unix.SockaddrVM); err != nil || !ok || from.CID != hostCID || !strings.HasPrefix(said, "ok ") {
		return said, fmt.Errorf("from %+v: %v", peer, err)
	}
	return said, nil
}

// dialVsock is a program that asks a port for the report, and prints where it
// ended. struct sockaddr_vm: family, reserved, port, CID, flags and zeroes.
func dialVsock(cid, port uint32) string {
	return fmt.Sprintf(`socket(my $s, 40, 1, 0) or do { print "socket: $!"; exit };
		connect($s, pack("SSLLx4", 40, 0, %d, %d)) or do { print "connect: $!"; exit };
		$SIG{PIPE} = "IGNORE"; syswrite($s, "GET /v1/report HTTP/1.0\r\n\r\n"); my $n = sysread($s, my $b, 100); print "got: ", $b // ""`, port, cid)
}

// reportToNobodyElse asks for it from this machine, as CID 1 and under the
// machine's own number, and from a box.
func reportToNobodyElse(b *bed) (string, error) {
	ask := func(cid, port uint32) output { return b.maus("perl", "-e", dialVsock(cid, port)) }
	for _, cid := range []uint32{selfCID, machineCID} {
		if out := ask(cid, freePort); !strings.HasPrefix(out.stdout, "connect: ") {
			return out.String(), errors.New("control: somebody listens where nobody does")
		}
		if out := ask(cid, reportPort); out.stdout != "got: " {
			return out.String(), fmt.Errorf("maus outside a box, at CID %d, is answered or finds nobody", cid)
		}
		if out := alone("perl", "-e", dialVsock(cid, reportPort)); out.stdout != "got: " {
			return out.String(), fmt.Errorf("root, at CID %d, is answered or finds nobody", cid)
		}
	}
	var boxed []string
	for _, cid := range []uint32{selfCID, hostCID, machineCID} {
		out := b.botbox("run", "--", "perl", "-e", dialVsock(cid, reportPort))
		if boxed = append(boxed, out.stdout); !strings.HasPrefix(out.stdout, "socket: ") {
			return out.String(), errors.New("a box has such a socket")
		}
	}
	return "closed to maus and root at CID 1 and 3; in a box " + boxed[0], nil
}

// noPortForTheReport starts workers that cannot have the port that they are
// told to have, and one that can.
func noPortForTheReport(b *bed) (string, error) {
	serve := func(port uint32) *running {
		r := b.command("", programs+"/botbox", "serve")
		r.Env = append(r.Env, "OMB_RUN_DIR="+work+"/other", "OMB_STATE_DIR="+work+"/state", fmt.Sprintf("OMB_VSOCK_PORT=%d", port))
		return r
	}
	var seen []string
	refused := func(port uint32, code int, reason string) error {
		r := serve(port)
		if err := r.startIn(b.part("botbox-worker")); err != nil {
			return err
		}
		out := r.end()
		seen = append(seen, out.stderr)
		if out.code != code || !strings.Contains(out.stderr, "reason: "+reason+"\n") || !strings.Contains(out.stderr, "hint: ") {
			return fmt.Errorf("port %d: %v", port, out)
		}
		return nil
	}
	if err := refused(reportPort, 111, "port_taken"); err != nil {
		return "", err
	}
	if err := refused(freePort%1024, 100, "bad-setting"); err != nil {
		return "", err
	}
	if err := os.Rename("/dev/vsock", "/dev/away"); err != nil {
		return "", err
	}
	err := refused(freePort, 100, "no-vsock")
	if err := errors.Join(err, os.Rename("/dev/away", "/dev/vsock")); err != nil {
		return "", err
	}
	r := serve(freePort)
	if err := r.startIn(b.part("botbox-worker")); err != nil {
		return "", err
	}
	defer r.kill()
	var last output
	if err := eventually(20*time.Second, func() bool {
		last = alone("perl", "-e", dialVsock(selfCID, freePort))
		return last.stdout == "got: "
	}); err != nil {
		return last.String() + r.err.String(), errors.New("control: a worker with a free port does not listen")
	}
	return strings.Join(seen, "; "), nil
}
