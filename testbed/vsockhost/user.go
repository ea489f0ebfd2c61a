package vsockhost

import (
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// The messages of vhost-user that QEMU sends to such a device.
const (
	getFeatures         = 1
	setFeatures         = 2
	setOwner            = 3
	setMemTable         = 5
	setVringNum         = 8
	setVringAddr        = 9
	setVringBase        = 10
	getVringBase        = 11
	setVringKick        = 12
	setVringCall        = 13
	setVringErr         = 14
	getProtocolFeatures = 15
	setProtocolFeatures = 16
	setVringEnable      = 18
	getConfig           = 24
)

const (
	features         = 1<<32 | 1<<30 // VIRTIO_F_VERSION_1, and that there are protocol features
	protocolFeatures = 1 << 9        // CONFIG: the guest's CID is asked of us
	version          = 1
	isReply          = 4
	maxMessage       = 4 << 10
)

// message is one of QEMU's, with the descriptors that came along.
type message struct {
	kind    uint32
	payload []byte
	fds     []int
}

// receive reads the next message.
func (h *Host) receive() (m message, err error) {
	head, control := make([]byte, 12), make([]byte, unix.CmsgSpace(8*4))
	n, oob, _, _, err := h.qemu.ReadMsgUnix(head, control)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err == nil {
		_, err = io.ReadFull(h.qemu, head[n:])
	}
	if err != nil {
		return m, err
	}
	parts, _ := syscall.ParseSocketControlMessage(control[:oob])
	for _, part := range parts {
		fds, _ := syscall.ParseUnixRights(&part)
		m.fds = append(m.fds, fds...)
	}
	size := le.Uint32(head[8:])
	if size > maxMessage {
		return m, fmt.Errorf("a message of %d bytes", size)
	}
	m.kind, m.payload = le.Uint32(head), make([]byte, size)
	_, err = io.ReadFull(h.qemu, m.payload)
	return m, err
}

func (h *Host) reply(kind uint32, payload []byte) error {
	b := make([]byte, 12, 12+len(payload))
	le.PutUint32(b, kind)
	le.PutUint32(b[4:], version|isReply)
	le.PutUint32(b[8:], uint32(len(payload)))
	_, err := h.qemu.Write(append(b, payload...))
	return err
}

func number(n uint64) []byte { return le.AppendUint64(nil, n) }

// obey does what a message says.
func (h *Host) obey(m message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch m.kind {
	case getFeatures:
		return h.reply(m.kind, number(features))
	case getProtocolFeatures:
		return h.reply(m.kind, number(protocolFeatures))
	case setFeatures, setProtocolFeatures, setOwner:
		return nil
	case setMemTable:
		return h.remember(m)
	case getConfig:
		if len(m.payload) < 12 {
			return fmt.Errorf("a question for %d bytes of the configuration", len(m.payload))
		}
		copy(m.payload[12:], number(h.guest))
		return h.reply(m.kind, m.payload)
	}
	return h.arrange(m)
}

// remember takes over the guest's memory.
func (h *Host) remember(m message) error {
	mapped, err := newMemory(m.payload, m.fds)
	if err != nil {
		return err
	}
	h.memory.unmap()
	h.memory = mapped
	for i := range h.queues {
		if err := h.queues[i].find(h.memory); err != nil {
			return err
		}
	}
	return nil
}

// arrange does what a message says of one queue. The third one, for events, is
// QEMU's own.
func (h *Host) arrange(m message) error {
	if len(m.payload) < 8 || m.payload[0] >= byte(len(h.queues)) {
		return fmt.Errorf("message %d with %x", m.kind, m.payload)
	}
	q, value := &h.queues[m.payload[0]], uint64(le.Uint32(m.payload[4:]))
	var file *os.File
	if len(m.fds) == 1 {
		file = os.NewFile(uintptr(m.fds[0]), "eventfd")
	}
	switch m.kind {
	case setVringNum:
		q.size = value
		return q.find(h.memory)
	case setVringBase:
		q.taken = uint16(value)
	case setVringAddr:
		if len(m.payload) < 40 {
			return fmt.Errorf("addresses of %d bytes", len(m.payload))
		}
		q.descAt, q.usedAt, q.availAt = le.Uint64(m.payload[8:]), le.Uint64(m.payload[16:]), le.Uint64(m.payload[24:])
		return q.find(h.memory)
	case setVringKick:
		closeFile(q.kick)
		if q.kick = file; file != nil {
			go h.kicked(q, file)
		}
	case setVringCall:
		closeFile(q.call)
		q.call = file
	case setVringErr:
		closeFile(file)
	case setVringEnable:
		q.enabled = value == 1
		h.collect() // a hint may have come before
		h.deliver()
	case getVringBase:
		q.enabled = false
		closeFile(q.kick)
		q.kick = nil
		le.PutUint32(m.payload[4:], uint32(q.taken))
		return h.reply(m.kind, m.payload)
	default:
		return fmt.Errorf("message %d is not one that we know", m.kind)
	}
	return nil
}

// kicked waits for the guest's hints that there is something in a queue.
func (h *Host) kicked(q *queue, kick *os.File) {
	for hint := make([]byte, 8); ; {
		if _, err := kick.Read(hint); err != nil {
			return
		}
		h.mu.Lock()
		if q == &h.queues[fromGuest] {
			h.collect()
		}
		h.deliver()
		h.mu.Unlock()
	}
}
