package internet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"
)

// certificates makes a root that nobody else trusts, and a server's
// certificate for every host of Domain.
func certificates() (root []byte, server tls.Certificate, err error) {
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test root"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, server, err
	}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, rootKey.Public(), rootKey)
	if err != nil {
		return nil, server, err
	}
	if authority, err = x509.ParseCertificate(der); err != nil {
		return nil, server, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: Domain}, DNSNames: []string{"*." + Domain},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, server, err
	}
	signed, err := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), rootKey)
	if err != nil {
		return nil, server, err
	}
	root = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return root, tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}, nil
}
