package intercept

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/openmausbot/botbox/shared/reason"
)

// BundlePath is where a box with declared hosts has what it trusts: the
// machine's roots and its own one.
const BundlePath = "/run/botbox/roots.pem"

// trust are the variables by which programs are told which roots to trust. One
// that was passed with another file is overruled: its program would refuse the
// declared hosts.
var trust = []struct{ name, why string }{
	{"SSL_CERT_FILE", "OpenSSL and what is built on it (Python's ssl, Ruby, wget), Go, and Rust with the system's roots"},
	{"NODE_EXTRA_CA_CERTS", "Node and Bun, which have roots of their own and add these"},
	{"REQUESTS_CA_BUNDLE", "Python's requests, which brings its own roots"},
	{"CURL_CA_BUNDLE", "curl, whatever TLS it is built with"},
	{"GIT_SSL_CAINFO", "git"},
	{"PIP_CERT", "pip, which brings its own roots"},
	{"CARGO_HTTP_CAINFO", "cargo"},
	{"DENO_CERT", "Deno, which has roots of its own and adds these"},
	{"AWS_CA_BUNDLE", "the SDKs and the command line of AWS"},
	{"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "gRPC's C core, which brings its own roots"},
	{"CODEX_CA_CERTIFICATE", "Codex, before SSL_CERT_FILE"},
}

// TrustNames gives the variables that name the bundle in the box.
func TrustNames() []string {
	names := make([]string, len(trust))
	for i, row := range trust {
		names[i] = row.name
	}
	return names
}

// systemBundles are where distributions keep the roots that they trust, as Go
// and curl look for them.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Alpine, Arch, Gentoo
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL 6
	"/etc/ssl/ca-bundle.pem",                            // openSUSE
	"/etc/pki/tls/cacert.pem",                           // OpenELEC
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // RHEL 7 and newer
	"/etc/ssl/cert.pem",                                 // Alpine
}

// Bundle gives the roots that this machine trusts, and then the box's own. own
// is the worker's SSL_CERT_FILE; empty is the system's. Only certificates are
// copied, whatever else the file holds.
func Bundle(own string, root []byte) ([]byte, error) {
	paths := systemBundles
	if own != "" {
		paths = []string{own}
	}
	return bundle(paths, root)
}

func bundle(paths []string, root []byte) ([]byte, error) {
	var all []byte
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, reason.New(reason.System, "read the roots that this machine trusts: %w", err)
		}
		all = b
		break
	}
	var out bytes.Buffer
	for {
		var block *pem.Block
		if block, all = pem.Decode(all); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			pem.Encode(&out, &pem.Block{Type: block.Type, Bytes: block.Bytes}) // to a buffer: it cannot fail
		}
	}
	if out.Len() == 0 {
		return nil, reason.New(reason.System, "this machine has no file of the roots that it trusts, so a box with broker.hosts would trust nobody else").
			WithHint("install ca-certificates, or name a file in the worker's SSL_CERT_FILE")
	}
	return slices.Concat(out.Bytes(), root), nil
}
