package vsockhost

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"
)

// queue is a split virtqueue as the device sees it.
type queue struct {
	size              uint64
	descAt, availAt   uint64 // QEMU's addresses
	usedAt            uint64
	desc, avail, used []byte
	taken             uint16 // of the available ring
	kick, call        *os.File
	enabled           bool
}

const (
	descNext  = 1
	descWrite = 2
)

// find looks the rings up in the guest's memory.
func (q *queue) find(m memory) (err error) {
	if q.size == 0 || q.descAt == 0 {
		return nil
	}
	var errs [3]error
	q.desc, errs[0] = m.at(q.descAt, 16*q.size, true)
	q.avail, errs[1] = m.at(q.availAt, 4+2*q.size, true)
	q.used, errs[2] = m.at(q.usedAt, 4+8*q.size, true)
	return errors.Join(errs[:]...)
}

// word is the flags and the index of a ring, which the guest's processor reads
// and writes beside us.
func word(ring []byte) *uint32 { return (*uint32)(unsafe.Pointer(&ring[0])) }

// next gives the next chain that the guest has made available.
func (q *queue) next() (head uint16, ok bool) {
	if !q.enabled || q.desc == nil || uint16(atomic.LoadUint32(word(q.avail))>>16) == q.taken {
		return 0, false
	}
	return le.Uint16(q.avail[4+2*(uint64(q.taken)%q.size):]), true
}

// chain gives the buffers of a chain that the device may read or write.
func (q *queue) chain(m memory, head uint16, write bool) (all [][]byte, err error) {
	for at, n := uint64(head), uint64(0); ; n++ {
		if at >= q.size || n >= q.size {
			return nil, fmt.Errorf("descriptor %d, the %d. of a chain in a queue of %d", at, n, q.size)
		}
		d := q.desc[16*at:]
		flags := le.Uint16(d[12:])
		if flags&descWrite != 0 == write {
			b, err := m.at(le.Uint64(d), uint64(le.Uint32(d[8:])), false)
			if err != nil {
				return nil, err
			}
			all = append(all, b)
		}
		if flags&descNext == 0 {
			return all, nil
		}
		at = uint64(le.Uint16(d[14:]))
	}
}

// done gives a chain back, with what was written into it, and tells the guest.
func (q *queue) done(head uint16, written int) {
	index := uint16(atomic.LoadUint32(word(q.used)) >> 16)
	entry := q.used[4+8*(uint64(index)%q.size):]
	le.PutUint32(entry, uint32(head))
	le.PutUint32(entry[4:], uint32(written))
	q.taken++
	atomic.StoreUint32(word(q.used), uint32(index+1)<<16)
	if q.call != nil {
		q.call.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func closeFile(f *os.File) {
	if f != nil {
		f.Close()
	}
}
