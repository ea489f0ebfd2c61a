package turn

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/broker"
	"github.com/openmausbot/botbox/worker/internal/gate/intercept"
	"github.com/openmausbot/botbox/worker/internal/vault"
)

const declaredHost = "api.vendor.example"

func newIdentity(t *testing.T) *intercept.Identity {
	t.Helper()
	id, err := intercept.NewIdentity([]string{declaredHost}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func identity(t *testing.T) []byte {
	t.Helper()
	b, err := newIdentity(t).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sealedHosts is a box's certificate as a worker of that boot seals it.
func sealedHosts(t *testing.T, boot byte, box string) []byte {
	t.Helper()
	b, err := broker.New(broker.Options{BootKey: [32]byte{boot}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	return b.Seal(box, identity(t))
}

// A box that was taken back meets the same certificate at its declared hosts
// as before, and nobody but the broker behind it.
func TestDeclaredHostsAreTakenBack(t *testing.T) {
	r, _ := newRunner(t)
	before := newIdentity(t)
	l := leave(t, r, func(rec *record) {
		rec.Spec.Net.Egress.MaxBytes = 1e6 // a handshake takes more than the few bytes that are left of it
		old := &Turn{ID: rec.ID, runner: r, hosts: newDeclared(before)}
		var err error
		if rec.Hosts, err = old.hosts.sealed(old); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(rec.Hosts), "PRIVATE KEY") {
			t.Error("the key is in the record")
		}
	})
	r.TakeBack([]vault.Deposit{l.Deposit})
	if _, err := r.Find("box_old"); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "CONNECT %[1]s:443 HTTP/1.1\r\nHost: %[1]s:443\r\n\r\n", declaredHost)
	in := bufio.NewReader(conn)
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 200 || in.Buffered() != 0 {
		t.Fatalf("the gate said %v, %v", res, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(before.Root) // what the box has trusted since its start
	inner := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: declaredHost})
	fmt.Fprintf(inner, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", declaredHost)
	res, err := http.ReadResponse(bufio.NewReader(inner), nil)
	if err != nil || res.StatusCode != 401 { // its grant is not among those of this broker
		t.Errorf("the broker said %v, %v", res, err)
	}
	if got := r.Intercepted(); len(got) != 1 || got[0] != declaredHost {
		t.Errorf("the report names %v", got)
	}
}
