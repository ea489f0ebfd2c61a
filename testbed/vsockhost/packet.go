package vsockhost

// The operations of a packet.
const (
	opRequest = iota + 1
	opResponse
	opReset
	opShutdown
	opData
	opCreditUpdate
	opCreditRequest
)

const (
	headLen      = 44
	streamType   = 1
	sendsNoMore  = 2       // a flag of opShutdown
	roomOfOurs   = 1 << 20 // for what a guest answers to one question
	maxInAPacket = 2 << 10
)

// packet is a packet's head, as it lies in memory, with what follows it.
type packet struct {
	fromCID, toCID   uint64
	fromPort, toPort uint32
	op               uint16
	flags            uint32
	room, consumed   uint32 // of the sender's buffer
	data             []byte
}

func (p packet) encode() []byte {
	b := make([]byte, headLen, headLen+len(p.data))
	le.PutUint64(b, p.fromCID)
	le.PutUint64(b[8:], p.toCID)
	le.PutUint32(b[16:], p.fromPort)
	le.PutUint32(b[20:], p.toPort)
	le.PutUint32(b[24:], uint32(len(p.data)))
	le.PutUint16(b[28:], streamType)
	le.PutUint16(b[30:], p.op)
	le.PutUint32(b[32:], p.flags)
	le.PutUint32(b[36:], p.room)
	le.PutUint32(b[40:], p.consumed)
	return append(b, p.data...)
}

func decode(b []byte) (p packet, ok bool) {
	if len(b) < headLen || uint64(len(b)-headLen) < uint64(le.Uint32(b[24:])) {
		return p, false
	}
	return packet{
		fromCID: le.Uint64(b), toCID: le.Uint64(b[8:]), fromPort: le.Uint32(b[16:]), toPort: le.Uint32(b[20:]),
		op: le.Uint16(b[30:]), flags: le.Uint32(b[32:]), room: le.Uint32(b[36:]), consumed: le.Uint32(b[40:]),
		data: b[headLen : headLen+int(le.Uint32(b[24:]))],
	}, true
}
