package vsockhost

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPackets(t *testing.T) {
	p := packet{fromCID: 2, toCID: 3, fromPort: 5001, toPort: 5005, op: opData, flags: 3, room: 1 << 20, consumed: 7, data: []byte("hello")}
	b := p.encode()
	// struct virtio_vsock_hdr
	const want = "0200000000000000" + "0300000000000000" + "89130000" + "8d130000" + "05000000" + "0100" + "0500" + "03000000" + "00001000" + "07000000" + "68656c6c6f"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if back, ok := decode(append(b, "what a buffer holds behind it"...)); !ok || !reflect.DeepEqual(back, p) {
		t.Errorf("%+v", back)
	}
	for n := range b {
		if p, ok := decode(b[:n]); ok {
			t.Errorf("of %d bytes: %+v", n, p)
		}
	}
}

// driver is a guest with memory of its own and the two queues in it.
type driver struct {
	*testing.T
	qemu        *net.UnixConn
	memory      []byte
	kicks       [2]int
	made, given [2]uint16
}

const (
	memoryAt = 0x1000_0000 // the guest's
	qemuAt   = 0x7f00_0000_0000
	ringSize = 8
	bufferAt = 0x10000 // and those of the other queue behind it
)

// ring is where a queue's parts lie in the memory.
func ring(queue int) (desc, avail, used int) {
	base := 0x1000 * (1 + queue)
	return base, base + 0x400, base + 0x800
}

func (d *driver) tell(kind uint32, payload []byte, fds ...int) {
	d.Helper()
	head := make([]byte, 12)
	le.PutUint32(head, kind)
	le.PutUint32(head[4:], version)
	le.PutUint32(head[8:], uint32(len(payload)))
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := d.qemu.WriteMsgUnix(append(head, payload...), rights, nil); err != nil {
		d.Fatal(err)
	}
}

// vring is the payload of most messages about a queue.
func vring(queue int, value uint32) []byte {
	return le.AppendUint32(le.AppendUint32(nil, uint32(queue)), value)
}

// drive connects to a host as QEMU does for a machine that has started.
func drive(t *testing.T) (*driver, *Host) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vsock")
	h, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	qemu, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { qemu.Close() })
	d := &driver{T: t, qemu: qemu}
	const size = 1 << 20
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if d.memory, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(d.memory) })
	d.tell(getConfig, append(le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, 0), 8), 0), make([]byte, 8)...))
	answer := make([]byte, 32)
	if _, err := io.ReadFull(qemu, answer); err != nil || le.Uint64(answer[24:]) != Guest {
		t.Fatalf("the machine's CID: %v %x", err, answer)
	}
	table := le.AppendUint64(nil, 1)
	for _, n := range []uint64{memoryAt, size, qemuAt, 0} {
		table = le.AppendUint64(table, n)
	}
	d.tell(setMemTable, table, fd)
	for q := range 2 {
		desc, avail, used := ring(q)
		d.tell(setVringNum, vring(q, ringSize))
		d.tell(setVringBase, vring(q, 0))
		addr := le.AppendUint64(nil, uint64(q))
		for _, at := range []int{desc, used, avail, 0} {
			addr = le.AppendUint64(addr, qemuAt+uint64(at))
		}
		d.tell(setVringAddr, addr)
		if d.kicks[q], err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		d.tell(setVringKick, vring(q, 0), d.kicks[q])
		d.tell(setVringEnable, vring(q, 1))
	}
	return d, h
}

// offer makes a buffer of a queue available to the device.
func (d *driver) offer(queue int, content []byte, flags uint16) {
	desc, avail, _ := ring(queue)
	slot := int(d.made[queue]) % ringSize
	at := bufferAt*(1+queue) + 0x1000*slot
	n := copy(d.memory[at:at+0x1000], content)
	if flags&descWrite != 0 {
		n = 0x1000
	}
	row := d.memory[desc+16*slot:]
	le.PutUint64(row, uint64(memoryAt+at))
	le.PutUint32(row[8:], uint32(n))
	le.PutUint16(row[12:], flags)
	le.PutUint16(row[14:], uint16(slot)) // the next one, if flags say so: itself
	le.PutUint16(d.memory[avail+4+2*slot:], uint16(slot))
	d.made[queue]++
	le.PutUint16(d.memory[avail+2:], d.made[queue])
	unix.Write(d.kicks[queue], []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// hear waits for the host's next packet.
func (d *driver) hear() packet {
	d.Helper()
	_, _, used := ring(toGuest)
	for end := time.Now().Add(10 * time.Second); le.Uint16(d.memory[used+2:]) == d.given[toGuest]; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			d.Fatal("the host says nothing")
		}
	}
	entry := d.memory[used+4+8*(int(d.given[toGuest])%ringSize):]
	d.given[toGuest]++
	at := bufferAt + 0x1000*int(le.Uint32(entry))
	p, ok := decode(d.memory[at : at+int(le.Uint32(entry[4:]))])
	if !ok {
		d.Fatal("no packet")
	}
	p.data = append([]byte(nil), p.data...)
	d.offer(toGuest, nil, descWrite)
	return p
}

func (d *driver) say(to packet, op uint16, flags uint32, data string) {
	d.offer(fromGuest, packet{fromCID: Guest, toCID: to.fromCID, fromPort: to.toPort, toPort: to.fromPort, op: op, flags: flags, room: 1 << 18, data: []byte(data)}.encode(), 0)
}

// A whole connection, with more packets than a ring has places.
func TestAConnection(t *testing.T) {
	d, h := drive(t)
	for range ringSize / 2 {
		d.offer(toGuest, nil, descWrite)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for round := range 2 * ringSize {
		type end struct {
			text string
			err  error
		}
		ended := make(chan end, 1)
		go func() {
			text, err := h.Ask(ctx, Sibling, 5005, "a question")
			ended <- end{text, err}
		}()
		r := d.hear()
		if r.op != opRequest || r.fromCID != Sibling || r.toCID != Guest || r.toPort != 5005 {
			t.Fatalf("%+v", r)
		}
		if round%2 == 1 {
			d.say(r, opReset, 0, "")
			if e := <-ended; !errors.Is(e.err, ErrRefused) {
				t.Fatalf("refused: %+v", e)
			}
			d.hear() // the host's own reset
			continue
		}
		d.say(r, opResponse, 0, "")
		if q := d.hear(); q.op != opData || string(q.data) != "a question" {
			t.Fatalf("%+v", q)
		}
		want := strings.Repeat("an answer ", 300)
		d.say(r, opData, 0, want)
		if c := d.hear(); c.op != opCreditUpdate || c.consumed != uint32(len(want)) {
			t.Fatalf("%+v", c)
		}
		d.say(r, opShutdown, 3, "")
		if e := <-ended; e.err != nil || e.text != want {
			t.Fatalf("%+v", e)
		}
		if c := d.hear(); c.op != opReset {
			t.Fatalf("%+v", c)
		}
	}
}

// What the host is asked for is refused, and a guest that lays its rings wrong
// ends the talks and nothing else.
func TestAGuestThatErrs(t *testing.T) {
	d, h := drive(t)
	for range ringSize / 2 {
		d.offer(toGuest, nil, descWrite)
	}
	d.say(packet{fromCID: Me, toPort: 9999, fromPort: 22}, opRequest, 0, "")
	if p := d.hear(); p.op != opReset || p.fromCID != Me || p.fromPort != 22 || p.toPort != 9999 {
		t.Errorf("%+v", p)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { _, err := h.Ask(ctx, Me, 5005, ""); ended <- err }()
	d.hear()
	d.offer(fromGuest, []byte("x"), descNext) // a chain without an end
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "of a chain") {
		t.Errorf("%v", err)
	}
	for name, c := range map[string]struct{ addr, n uint64 }{
		"before it": {memoryAt - 1, 1}, "behind it": {memoryAt + 1<<20, 1}, "over its end": {memoryAt + 1<<20 - 1, 2}, "around": {memoryAt, 1<<64 - 1},
	} {
		h.mu.Lock()
		b, err := h.memory.at(c.addr, c.n, false)
		h.mu.Unlock()
		if err == nil {
			t.Errorf("%s: %d bytes", name, len(b))
		}
	}
	d.qemu.Close()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := h.Ask(ctx, Me, 5005, ""); errors.Is(err, ErrGone) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the host speaks to a machine that is gone")
		}
	}
}
