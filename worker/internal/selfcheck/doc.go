// Package selfcheck tries to get out of a box, and says which of its walls
// held. It lays out what a hostile bot would like to reach, has boxprobe try
// to reach it from a box that is made as every turn's is, and proves from
// outside that each attempt could have worked.
//
//	layOut → Prepare → controls → Start, Attend → controls → judge
//
// Zone: worker.
//
// It has a broker of its own: what the probe does to its tokens is nothing that
// the worker's may count, log or keep. Its egress gate is the machine's without
// the operator's lists, and lets through one server of ours, which stands for
// the public ones: the self-check sends nothing to anybody.
//
// Given: the worker's runner and our own boxprobe, open; the names of
// mutations by whoever typed them; and what boxprobe prints, which comes out
// of a box and is not trusted to be well-formed or complete.
//
// Authority: it makes folders of its own in /tmp, /var/tmp and /run, listens
// on loopback and on one address of this machine for as long as it runs, puts a
// key into a session of its own, and alone may take a protection away, from its
// own box only: by a change of its plan, or by what stands before its gates.
//
// Refuses: to call a check passed that did not report, whose control outside
// failed, or whose probe did not live to its last line; a boxprobe of another
// build; a mutation that it does not know.
package selfcheck
