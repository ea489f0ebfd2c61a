package vsockhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// CIDs of a packet's origin.
const (
	Hypervisor = 0
	Local      = 1
	Me         = 2 // the host
	Guest      = 3 // the machine's own
	Sibling    = 4 // another machine of the same host
)

// Errors of Ask.
var (
	ErrRefused = errors.New("the machine refuses the connection")
	ErrGone    = errors.New("there is no machine")
)

// The queues, as the guest names them.
const (
	toGuest = iota
	fromGuest
)

// Host speaks to one machine.
type Host struct {
	listener *net.UnixListener
	qemu     *net.UnixConn
	guest    uint64

	mu      sync.Mutex
	memory  memory
	queues  [2]queue
	waiting [][]byte // for buffers of the guest's
	talks   map[[2]uint64]*talk
	port    uint32
	fault   error
}

// Listen waits on a socket for QEMU, which is given it as a chardev of
// vhost-user-vsock-pci. The machine's memory must be shared.
func Listen(path string) (*Host, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	h := &Host{listener: l, guest: Guest, talks: map[[2]uint64]*talk{}, port: 5000}
	go h.serve()
	return h, nil
}

// serve is the device, until QEMU ends.
func (h *Host) serve() {
	qemu, err := h.listener.AcceptUnix()
	if err == nil {
		h.qemu = qemu
		for err == nil {
			var m message
			if m, err = h.receive(); err == nil {
				err = h.obey(m)
			}
		}
		qemu.Close()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail(fmt.Errorf("%w: %v", ErrGone, err))
	for i := range h.queues {
		closeFile(h.queues[i].kick)
		closeFile(h.queues[i].call)
		h.queues[i] = queue{}
	}
	h.memory.unmap()
	h.memory = nil
}

// fail ends every talk. The caller holds mu.
func (h *Host) fail(err error) {
	h.fault = err
	for _, t := range h.talks {
		t.changed()
	}
}

// Close ends the device. QEMU must have ended.
func (h *Host) Close() { h.listener.Close() }

// talk is one connection.
type talk struct {
	from            uint64
	port, guestPort uint32
	got             []byte
	open, ended     bool
	change          chan struct{}
}

func (t *talk) changed() {
	select {
	case t.change <- struct{}{}:
	default:
	}
}

// Ask connects to a port of the machine as one from a CID, sends a question, and
// gives what comes back until the machine closes the connection. from need not
// be the host's: what the machine's kernel makes of another is the machine's.
func (h *Host) Ask(ctx context.Context, from uint64, port uint32, question string) (string, error) {
	if len(question) > maxInAPacket {
		return "", fmt.Errorf("a question of %d bytes", len(question))
	}
	t := &talk{from: from, guestPort: port, change: make(chan struct{}, 1)}
	h.mu.Lock()
	h.port++
	t.port = h.port
	h.talks[t.name()] = t
	h.send(t, packet{op: opRequest})
	if h.fault != nil {
		t.changed()
	}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.talks, t.name())
		h.send(t, packet{op: opReset})
	}()
	for sent := false; ; {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-t.change:
		}
		h.mu.Lock()
		got, open, ended, fault := string(t.got), t.open, t.ended, h.fault
		if open && !ended && !sent {
			sent = true
			h.send(t, packet{op: opData, data: []byte(question)})
		}
		h.mu.Unlock()
		switch {
		case fault != nil:
			return got, fault
		case ended && !open:
			return "", ErrRefused
		case ended:
			return got, nil
		}
	}
}

// name finds a talk again: the machine answers to the CID and port of its peer.
func (t *talk) name() [2]uint64 { return [2]uint64{t.from, uint64(t.port)} }

// send queues a packet of a talk. The caller holds mu.
func (h *Host) send(t *talk, p packet) {
	p.fromCID, p.toCID, p.fromPort, p.toPort = t.from, h.guest, t.port, t.guestPort
	p.room, p.consumed = roomOfOurs, uint32(len(t.got))
	h.waiting = append(h.waiting, p.encode())
	h.deliver()
}

// deliver puts what waits into the buffers that the guest has made available.
func (h *Host) deliver() {
	q := &h.queues[toGuest]
	for len(h.waiting) > 0 {
		head, ok := q.next()
		if !ok {
			return
		}
		buffers, err := q.chain(h.memory, head, true)
		if err != nil {
			h.fail(err)
			return
		}
		left := h.waiting[0]
		written := len(left)
		for _, b := range buffers {
			left = left[copy(b, left):]
		}
		if len(left) > 0 {
			h.fail(fmt.Errorf("the guest's buffers are %d bytes too short", len(left)))
			return
		}
		h.waiting = h.waiting[1:]
		q.done(head, written)
	}
}

// collect takes the packets that the guest sends.
func (h *Host) collect() {
	q := &h.queues[fromGuest]
	for {
		head, ok := q.next()
		if !ok {
			return
		}
		buffers, err := q.chain(h.memory, head, false)
		if err != nil {
			h.fail(err)
			return
		}
		var whole []byte
		for _, b := range buffers {
			whole = append(whole, b...)
		}
		q.done(head, 0)
		if p, ok := decode(whole); ok {
			h.heard(p)
		}
	}
}

// heard is what a packet does to its connection.
func (h *Host) heard(p packet) {
	t := h.talks[[2]uint64{p.toCID, uint64(p.toPort)}]
	if t == nil || p.fromPort != t.guestPort {
		if p.op != opReset {
			h.send(&talk{from: p.toCID, port: p.toPort, guestPort: p.fromPort}, packet{op: opReset})
		}
		return
	}
	switch p.op {
	case opResponse:
		t.open = true
	case opData:
		t.got = append(t.got, p.data...)
		h.send(t, packet{op: opCreditUpdate})
	case opCreditRequest:
		h.send(t, packet{op: opCreditUpdate})
	case opShutdown:
		t.ended = t.ended || p.flags&sendsNoMore != 0
	case opReset:
		t.ended = true
	}
	t.changed()
}
