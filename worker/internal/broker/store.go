package broker

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/openmausbot/botbox/shared/reason"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	lockTimeout = time.Second
	// countersEvery is how long a counter alone may wait for its write.
	countersEvery = 5 * time.Second
)

var (
	countersBucket = []byte("counters")
	grantsBucket   = []byte("grants")
)

// Store is the broker's file: counters, and living tokens sealed under the
// boot key, which is on no disk.
//
// A commit is an fsync, milliseconds on the path of a spawn. So there is one
// writer behind the callers' backs; what it still has to write is a map, not a
// queue: a revocation replaces the record that it ends, nothing is dropped,
// nobody waits, and the memory is bounded by the living tokens. bbolt's NoSync
// was the other way; it can leave a file that no longer opens after a power
// cut. What is lost when the worker dies before a write is a token that nobody
// adopts, or a record of a box that is gone: no listener, no use.
type Store struct {
	db   *bbolt.DB
	wake chan struct{} // there are grants to write
	stop chan struct{}
	done chan struct{}

	mu       sync.Mutex
	counters map[string]uint64
	dirty    bool
	grants   map[digest][]byte // nil = delete
	err      error             // of the last write
	begun    uint64            // writes
	over     uint64            // writes that are over
	wrote    *sync.Cond
	closing  sync.Once
}

// OpenStore opens or makes the file. Its folder must be the caller's own with
// mode 0700, the file 0600. One process has it at a time.
func OpenStore(path string) (*Store, error) {
	if err := private(filepath.Dir(path), fs.ModeDir|0o700); err != nil {
		return nil, err
	}
	if err := private(path, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, reason.New(reason.StoreLocked, "%s is in use", path)
	}
	if err != nil {
		return nil, reason.New(reason.System, "open %s: %w", path, err)
	}
	s := &Store{
		db: db, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		counters: map[string]uint64{}, grants: map[digest][]byte{},
	}
	s.wrote = sync.NewCond(&s.mu)
	if err := db.Update(s.load); err != nil {
		db.Close()
		return nil, reason.New(reason.System, "read %s: %w", path, err)
	}
	go s.write()
	return s, nil
}

// private tells whether path is what mode says, and the caller's own.
func private(path string, mode fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return reason.New(reason.System, "look at %s: %w", path, err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) != os.Geteuid() || info.Mode().Type() != mode.Type() || info.Mode().Perm()&^mode.Perm() != 0 {
		return reason.New(reason.NotYours, "%s must be yours, with mode %#o", path, mode.Perm())
	}
	return nil
}

func (s *Store) load(tx *bbolt.Tx) error {
	if _, err := tx.CreateBucketIfNotExists(grantsBucket); err != nil {
		return err
	}
	counters, err := tx.CreateBucketIfNotExists(countersBucket)
	if err != nil {
		return err
	}
	return counters.ForEach(func(name, value []byte) error {
		if len(value) == 8 {
			s.counters[string(name)] = binary.BigEndian.Uint64(value)
		}
		return nil
	})
}

// Add counts n more. It is written within seconds, or with the next grant.
func (s *Store) Add(name string, n uint64) {
	s.mu.Lock()
	s.counters[name] += n
	s.dirty = true
	s.mu.Unlock()
}

// Counters gives all counters as they stand.
func (s *Store) Counters() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counters)
}

// put asks the writer to write a sealed record, or with nil to delete it.
func (s *Store) put(d digest, sealed []byte) {
	s.mu.Lock()
	s.grants[d] = sealed
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // it is awake already and will see the map
	}
}

// settle returns when every grant of this moment has been written once; one
// that could not be written waits for the next time, and nobody for it.
func (s *Store) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	need := s.begun // the write that is under way, or the last one
	if len(s.grants) > 0 {
		need++
	}
	for s.over < need {
		s.wrote.Wait()
	}
}

func (s *Store) write() {
	defer close(s.done)
	tick := time.NewTicker(countersEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.wake:
		case <-tick.C:
		case <-s.stop:
			s.flush()
			return
		}
		s.flush()
	}
}

// flush writes everything that waits, in one transaction. What could not be
// written waits for the next one, unless something newer took its place.
func (s *Store) flush() {
	s.mu.Lock()
	grants, dirty, counters := s.grants, s.dirty, maps.Clone(s.counters)
	s.grants, s.dirty = map[digest][]byte{}, false
	s.begun++
	s.mu.Unlock()
	var err error
	if len(grants) > 0 || dirty {
		err = s.db.Update(func(tx *bbolt.Tx) error { return commit(tx, grants, counters) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = s.begun
	s.wrote.Broadcast()
	if len(grants) == 0 && !dirty {
		return
	}
	s.err = err
	if err == nil {
		return
	}
	s.dirty = true
	maps.Copy(grants, s.grants)
	s.grants = grants
}

func commit(tx *bbolt.Tx, grants map[digest][]byte, counters map[string]uint64) error {
	for name, n := range counters {
		if err := tx.Bucket(countersBucket).Put([]byte(name), binary.BigEndian.AppendUint64(nil, n)); err != nil {
			return err
		}
	}
	bucket := tx.Bucket(grantsBucket)
	for d, sealed := range grants {
		err := error(nil)
		if sealed == nil {
			err = bucket.Delete(d[:])
		} else {
			err = bucket.Put(d[:], sealed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Recover gives the living tokens of the workers that had the same boot key.
// What cannot be unsealed is deleted and counted. Call it before the first
// Issue.
func (s *Store) Recover(bootKey [32]byte) (records []Record, dropped int, err error) {
	sealer, err := newSealer(bootKey)
	if err != nil {
		return nil, 0, err
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(grantsBucket)
		var lost [][]byte
		err := bucket.ForEach(func(k, v []byte) error {
			if r, err := sealer.record(k, v); err == nil {
				records = append(records, r)
			} else {
				lost = append(lost, bytes.Clone(k))
			}
			return nil
		})
		for _, k := range lost {
			err = errors.Join(err, bucket.Delete(k))
		}
		dropped = len(lost)
		return err
	})
	if err != nil {
		return nil, 0, reason.New(reason.System, "read the stored grants: %w", err)
	}
	return records, dropped, nil
}

// Close writes what waits and gives the file back. The error is the last
// write's.
func (s *Store) Close() error {
	s.closing.Do(func() { close(s.stop) })
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.err, s.db.Close())
}

// sealer is AES-256-GCM under a key of its own, derived from the boot key. The
// record's place in the file is authenticated, too: records cannot be swapped.
type sealer struct{ aead cipher.AEAD }

func newSealer(bootKey [32]byte) (*sealer, error) {
	return newSealerFor(bootKey, "botbox broker grants v1")
}

func newSealerFor(bootKey [32]byte, use string) (*sealer, error) {
	key, err := hkdf.Key(sha256.New, bootKey[:], nil, use, 32)
	if err != nil {
		return nil, reason.New(reason.Internal, "derive the store's key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, reason.New(reason.Internal, "derive the store's key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, reason.New(reason.Internal, "derive the store's key: %w", err)
	}
	return &sealer{aead}, nil
}

func (s *sealer) seal(d digest, plain []byte) []byte { return s.aead.Seal(nil, nil, plain, d[:]) }

func (s *sealer) record(key, sealed []byte) (Record, error) {
	plain, err := s.aead.Open(nil, nil, sealed, key)
	if err != nil {
		return Record{}, err
	}
	r, err := decodeRecord(plain)
	if err == nil && string(r.Digest[:]) != string(key) {
		err = errors.New("the record stands in another's place")
	}
	return r, err
}
