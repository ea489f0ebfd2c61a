package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The search reads at most so many bytes; beyond, it has not found out.
const (
	scanBytes = 512 << 20
	scanChunk = 1 << 16
)

// scan searches files for needles and keeps where it first found each.
type scan struct {
	needles [][]byte
	found   []string
	files   int
	bytes   int64
}

// search reads every regular file below the roots. What we may not read cannot
// leak to us, so it is no error.
func (s *scan) search(roots []string) error {
	for _, root := range roots {
		if root == "" {
			continue
		}
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil && entry != nil && entry.IsDir():
				return fs.SkipDir
			case err != nil:
				return nil
			case entry.IsDir():
				return skipDir(path)
			case entry.Type().IsRegular() && wanted(path):
				return s.file(path)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// skipDir keeps the walk through /proc to the processes' own folders.
func skipDir(path string) error {
	below, ok := strings.CutPrefix(path, "/proc/")
	if ok && (strings.Contains(below, "/") || strings.Trim(below, "0123456789") != "") {
		return fs.SkipDir
	}
	return nil
}

// wanted leaves out of /proc what does not come from a process's start: our
// own memory holds the key, for we look for it.
func wanted(path string) bool {
	if !strings.HasPrefix(path, "/proc/") {
		return true
	}
	name := filepath.Base(path)
	return name == "environ" || name == "cmdline"
}

// file searches one file chunk by chunk. Each chunk begins with the end of the
// one before, so that a needle across both is found.
func (s *scan) file(path string) error {
	// O_NONBLOCK, because the name may have become a FIFO since it was listed.
	in, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer in.Close()
	s.files++
	overlap := 0
	for _, needle := range s.needles {
		overlap = max(overlap, len(needle)-1)
	}
	buf, kept := make([]byte, scanChunk+overlap), 0
	for {
		n, err := io.ReadFull(in, buf[kept:])
		window := buf[:kept+n]
		for i, needle := range s.needles {
			if s.found[i] == "" && bytes.Contains(window, needle) {
				s.found[i] = path
			}
		}
		if s.bytes += int64(n); s.bytes > scanBytes {
			return errors.New("more to search than the probe does")
		}
		if err != nil {
			return nil
		}
		kept = copy(buf, window[len(window)-overlap:])
	}
}
