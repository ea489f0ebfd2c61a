package internet

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
)

// Each registry holds one package, fruit 1.0.0, and knows the few addresses
// that its client asks for.

// Number is what fruit gives.
const Number = "42"

// file is one of an archive's.
type file struct{ name, text string }

// static serves bytes by path; a path that it does not have is 404.
type static map[string][]byte

func (s static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, ok := s[strings.Replace(r.URL.Path, "/./", "/", 1)] // as apt asks for a flat archive's files
	if !ok {
		http.NotFound(w, r)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/") {
		w.Header().Set("Content-Type", "text/html")
	}
	w.Write(b)
}

func npm() http.Handler {
	pack := tarball(file{"package/package.json", `{"name":"fruit","version":"1.0.0"}`}, file{"package/index.js", "module.exports = " + Number})
	sum := sha512.Sum512(pack)
	return static{
		"/fruit": fmt.Appendf(nil, `{"name":"fruit","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"fruit","version":"1.0.0",
			"dist":{"tarball":"https://npm.%s/fruit/-/fruit-1.0.0.tgz","integrity":"sha512-%s"}}}}`, Domain, base64.StdEncoding.EncodeToString(sum[:])),
		"/fruit/-/fruit-1.0.0.tgz": pack,
	}
}

func pypi() http.Handler {
	const wheel = "fruit-1.0.0-py3-none-any.whl"
	const info = "fruit-1.0.0.dist-info/"
	return static{
		"/simple/fruit/": fmt.Appendf(nil, `<!DOCTYPE html><a href="/files/%s">%s</a>`, wheel, wheel),
		"/files/" + wheel: zipped(file{"fruit.py", "n = " + Number + "\n"},
			file{info + "METADATA", "Metadata-Version: 2.1\nName: fruit\nVersion: 1.0.0\n"},
			file{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
			file{info + "RECORD", "fruit.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"}),
	}
}

func goproxy() http.Handler {
	const module = Domain + "/fruit"
	const mod = "module " + module + "\n\ngo 1.21\n"
	return static{
		"/" + module + "/@v/list":        []byte("v1.0.0\n"),
		"/" + module + "/@v/v1.0.0.info": []byte(`{"Version":"v1.0.0"}`),
		"/" + module + "/@v/v1.0.0.mod":  []byte(mod),
		"/" + module + "/@v/v1.0.0.zip": zipped(file{module + "@v1.0.0/go.mod", mod},
			file{module + "@v1.0.0/fruit.go", "package fruit\n\nconst N = " + Number + "\n"}),
	}
}

func crates() http.Handler {
	crate := tarball(file{"fruit-1.0.0/Cargo.toml", "[package]\nname = \"fruit\"\nversion = \"1.0.0\"\n"},
		file{"fruit-1.0.0/src/lib.rs", "pub const N: u32 = " + Number + ";\n"})
	return static{
		"/index/config.json": []byte(`{"dl":"https://crates.` + Domain + `/dl/{crate}-{version}"}`),
		"/index/fr/ui/fruit": fmt.Appendf(nil, `{"name":"fruit","vers":"1.0.0","deps":[],"cksum":"%s","features":{},"yanked":false}`, sum256(crate)),
		"/dl/fruit-1.0.0":    crate,
	}
}

func debian() http.Handler {
	control := "Package: fruit\nVersion: 1.0.0\nArchitecture: all\nMaintainer: nobody <nobody@" + Domain + ">\nDescription: a fixture\n"
	deb := archive(file{"debian-binary", "2.0\n"}, file{"control.tar.gz", string(tarball(file{"./control", control}))},
		file{"data.tar.gz", string(tarball(file{"./usr/share/fruit", Number + "\n"}))})
	packages := fmt.Appendf(nil, "%sFilename: ./fruit.deb\nSize: %d\nSHA256: %s\n", control, len(deb), sum256(deb))
	release := fmt.Appendf(nil, "Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n %s %d Packages\n", sum256(packages), len(packages))
	return static{"/Release": release, "/Packages": packages, "/fruit.deb": deb}
}

func sum256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// must is for writers into memory, which do not fail.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func tarball(files ...file) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range files {
		must(w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))}))
		_, err := w.Write([]byte(f.text))
		must(err)
	}
	must(w.Close())
	must(z.Close())
	return b.Bytes()
}

func zipped(files ...file) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		entry, err := w.Create(f.name)
		must(err)
		_, err = entry.Write([]byte(f.text))
		must(err)
	}
	must(w.Close())
	return b.Bytes()
}

// archive is what ar(5) makes, which a Debian package is.
func archive(files ...file) []byte {
	b := []byte("!<arch>\n")
	for _, f := range files {
		b = fmt.Appendf(b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", f.name, 0, 0, 0, "100644", len(f.text), f.text)
		if len(f.text)%2 == 1 {
			b = append(b, '\n')
		}
	}
	return b
}
