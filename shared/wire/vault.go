package wire

// The vault is a SOCK_SEQPACKET pair of its own beside the control channel, so
// that files can ride with the frames of the verbs vault.*, one frame a packet:
//
//	worker                                       supervisor
//	vault.next                            ───►   at the start, again and again
//	       ◄───  vault.have box kinds text + files
//	       ◄───  vault.end                       then the worker is ready
//	vault.keep box kinds + files          ───►   a box is about to run
//	vault.note box text                   ───►   what it has used up changed
//	vault.drop box                        ───►   it is over
//
// A pair lives as long as one worker, so its frames are all of epoch 1.
const VaultEpoch = 1

// MaxDeposits is how many boxes the vault holds: as many as a worker opens.
const MaxDeposits = 512

// MaxVaultFiles bounds the files of one box: four, its listeners and spares.
const MaxVaultFiles = 40

// MaxVaultRecord bounds a box's record in bytes.
const MaxVaultRecord = 256 << 10

// NoNote is the text of a box of which nothing was noted.
const NoNote = "-"

// The kinds of files that the vault takes; the kinds of a deposit are one such
// letter for each of its files, the first of them a process.
const (
	VaultProcess  = 'p' // a pidfd; the first one's end is the box's
	VaultListener = 'l' // a TCP socket that listens
	VaultSpare    = 'u' // a TCP socket that is neither bound nor connected
	VaultStatus   = 's' // the read end of a pipe, on which bubblewrap tells how the box ended
	VaultRecord   = 'r' // a sealed memfd, which the supervisor does not read
)
