package vsockhost

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

var le = binary.LittleEndian

// region is a part of the guest's memory.
type region struct {
	guest, user, size uint64 // where the guest and where QEMU has it
	mapped            []byte
	skip              uint64 // of mapped, before the region
}

type memory []region

// newMemory maps what SET_MEM_TABLE names. It closes the descriptors.
func newMemory(table []byte, fds []int) (m memory, err error) {
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	if len(table) < 8 || int(le.Uint32(table)) != len(fds) || len(table) < 8+32*len(fds) {
		return nil, fmt.Errorf("a memory table of %d bytes with %d descriptors", len(table), len(fds))
	}
	for i, fd := range fds {
		row := table[8+32*i:]
		r := region{guest: le.Uint64(row), size: le.Uint64(row[8:]), user: le.Uint64(row[16:]), skip: le.Uint64(row[24:])}
		if r.mapped, err = unix.Mmap(fd, 0, int(r.skip+r.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			m.unmap()
			return nil, fmt.Errorf("map the guest's memory: %w", err)
		}
		m = append(m, r)
	}
	return m, nil
}

func (m memory) unmap() {
	for _, r := range m {
		unix.Munmap(r.mapped)
	}
}

// at finds n bytes at an address of the guest's or, with user, of QEMU's.
func (m memory) at(addr, n uint64, user bool) ([]byte, error) {
	for _, r := range m {
		from := r.guest
		if user {
			from = r.user
		}
		if addr >= from && addr-from < r.size && n <= r.size-(addr-from) {
			at := r.skip + addr - from
			return r.mapped[at : at+n : at+n], nil
		}
	}
	return nil, fmt.Errorf("%d bytes at %#x are no memory of the guest", n, addr)
}
