package intercept

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// backdate allows for a clock that is set back while a box runs.
const backdate = time.Hour

// Identity is the certificate that a box's declared hosts have inside the box.
type Identity struct {
	Root  []byte // PEM: what the box has to trust
	hosts []string
	leaf  tls.Certificate
}

// NewIdentity makes an authority, lets it sign one certificate for the hosts,
// and forgets its key. Both are good until notAfter.
func NewIdentity(hosts []string, now, notAfter time.Time) (*Identity, error) {
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	root := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "botbox, this box only"},
		NotBefore: now.Add(-backdate), NotAfter: notAfter,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		// A client that trusts it trusts it for these names only (RFC 5280
		// §4.2.1.10).
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: hosts,
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &rootKey.PublicKey, rootKey)
	if err == nil {
		// As it was made: with the id of its key, which strict clients look for in
		// what it signs (Python 3.13).
		root, err = x509.ParseCertificate(rootDER)
	}
	if err != nil {
		return nil, fmt.Errorf("make the authority: %w", err)
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the certificate's key: %w", err)
	}
	leaf := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: hosts[0]}, DNSNames: hosts,
		NotBefore: now.Add(-backdate), NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, &leafKey.PublicKey, rootKey)
	if err != nil {
		return nil, fmt.Errorf("make the certificate: %w", err)
	}
	return &Identity{
		Root:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER}),
		hosts: hosts,
		leaf:  tls.Certificate{Certificate: [][]byte{leafDER, rootDER}, PrivateKey: leafKey},
	}, nil
}

// Marshal gives what a later worker needs to go on being these hosts: the
// certificate and its key, in the clear. The authority's key is not among it,
// for there is none.
func (id *Identity) Marshal() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(id.leaf.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("write the certificate's key: %w", err)
	}
	var out []byte
	for _, der := range id.leaf.Certificate {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return append(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), nil
}

// ParseIdentity reads what Marshal gave. The hosts are those of the
// certificate, and its root is not needed any more: the box has it.
func ParseIdentity(b []byte) (*Identity, error) {
	leaf, err := tls.X509KeyPair(b, b)
	if err != nil {
		return nil, errors.New("a box's certificate cannot be read") // and not in the parser's words: it had a key
	}
	if len(leaf.Leaf.DNSNames) == 0 {
		return nil, errors.New("a box's certificate is for no host")
	}
	return &Identity{hosts: leaf.Leaf.DNSNames, leaf: leaf}, nil
}

// Hosts are those that the certificate is for.
func (id *Identity) Hosts() []string { return id.hosts }

// serial is random: two boxes' authorities must not be taken for one another
// by a client that remembers serial numbers.
func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:])
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}
