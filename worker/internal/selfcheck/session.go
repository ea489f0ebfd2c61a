package selfcheck

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// plantSessionKey gives the thread that starts the box a session of its own
// with a key in it. Keyrings are not namespaced: whatever the thread starts
// inherits the session, and only the filter keeps a box from reading it.
func (o *outside) plantSessionKey() (err error) {
	o.spawner.On(func() {
		// Without a name it is nobody else's. The wrapper would pass an empty one.
		if _, err = unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err == nil {
			_, err = unix.AddKey("user", o.keyName(), []byte(o.Marker), unix.KEY_SPEC_SESSION_KEYRING)
		}
	})
	switch {
	case err == nil:
		o.SessionKey = o.keyName() // the session, and the key with it, goes with the thread
		return nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		// A kernel without keyrings, or a container's filter around us, which
		// then is around the box, too.
		o.NoSessionKey = err.Error()
		return nil
	}
	return fmt.Errorf("plant a session key: %w", err)
}

func (o *outside) keyName() string { return "botbox-check:" + o.Marker }

// readSessionKey is the control: in the session itself the key can be read.
func (o *outside) readSessionKey() (err error) {
	if o.NoSessionKey != "" {
		return nil
	}
	o.spawner.On(func() {
		var id, n int
		var content [256]byte
		if id, err = unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", o.SessionKey, 0); err != nil {
			return
		}
		if n, err = unix.KeyctlBuffer(unix.KEYCTL_READ, id, content[:], 0); err == nil && !strings.Contains(string(content[:n]), o.Marker) {
			err = errors.New("another key has its name")
		}
	})
	return err
}
