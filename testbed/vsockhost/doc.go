// Package vsockhost is the host at the other end of a test machine's vsock: the
// back end of QEMU's vhost-user-vsock device. The guest's own kernel carries the
// connections and names their origin; what is not real is the host's kernel,
// whose part this process plays, so the tests need neither /dev/vhost-vsock nor
// a vsock of the machine that they run on.
//
// Zone: tests; linked into no program of ours.
//
// Given: the packets of a guest that the test itself started.
//
// Authority: it maps the guest's memory, which QEMU hands over on a socket.
//
// Refuses: what the guest asks of the host; it only asks itself, also as
// somebody that it is not, as no real host lets a machine do.
//
// Written after QEMU's docs/interop/vhost-user.rst and the sections "Split
// Virtqueues" and "Socket Device" of VIRTIO 1.2. Left out is what a device may
// leave out: indirect descriptors, event indexes, migration, several queues.
package vsockhost
