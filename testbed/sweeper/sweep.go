package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func processes(secret []byte) (swept int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, name := range []string{"environ", "cmdline"} {
			if b, err := os.ReadFile(filepath.Join("/proc", e.Name(), name)); err == nil {
				swept++
				report(b, secret, e.Name()+"/"+name)
			}
		}
		swept += memory(e.Name(), secret)
	}
	return swept
}

// memory reads every readable mapping, in pieces that overlap by the secret.
// Of memory that is backed by no file only the pages that exist are read:
// engines reserve tens of gigabytes that they never touch.
func memory(pid string, secret []byte) (swept int) {
	maps, err := os.Open(filepath.Join("/proc", pid, "maps"))
	if err != nil {
		return 0
	}
	defer maps.Close()
	mem, err := os.Open(filepath.Join("/proc", pid, "mem"))
	if err != nil {
		return 0
	}
	defer mem.Close()
	pages, err := os.Open(filepath.Join("/proc", pid, "pagemap"))
	if err != nil {
		return 0
	}
	defer pages.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to, offset, inode int64
		var mode, device string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d", &from, &to, &mode, &offset, &device, &inode); n != 6 || mode[0] != 'r' || strings.Contains(lines.Text(), "[v") {
			continue
		}
		parts := []span{{from, to}}
		if inode == 0 {
			parts = existing(pages, from, to)
		}
		for _, part := range parts {
			if find(io.NewSectionReader(mem, part.from, part.to-part.from), secret) {
				fmt.Println("found in the memory of", pid, lines.Text())
			}
		}
		swept++
	}
	return swept
}

type span struct{ from, to int64 }

// existing gives the runs of pages that are in memory or in swap.
func existing(pagemap *os.File, from, to int64) (runs []span) {
	size := int64(os.Getpagesize())
	entries := bufio.NewReaderSize(io.NewSectionReader(pagemap, from/size*8, (to-from)/size*8), 1<<20)
	var entry [8]byte
	for at := from; at < to; at += size {
		if _, err := io.ReadFull(entries, entry[:]); err != nil {
			return append(runs, span{at, to}) // read what cannot be told
		}
		const presentOrSwapped = 0xc0
		switch {
		case entry[7]&presentOrSwapped == 0:
		case len(runs) > 0 && runs[len(runs)-1].to == at:
			runs[len(runs)-1].to += size
		default:
			runs = append(runs, span{at, at + size})
		}
	}
	return runs
}

func files(dir string, secret []byte) (swept int) {
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer f.Close()
		if find(f, secret) {
			fmt.Println("found in", path)
		}
		swept++
		return nil
	})
	return swept
}

func find(r io.Reader, secret []byte) bool {
	buf := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := io.ReadFull(r, buf[kept:])
		if bytes.Contains(buf[:kept+n], secret) {
			return true
		}
		if err != nil {
			return false
		}
		kept = copy(buf, buf[len(buf)-len(secret):])
	}
}

func report(b, secret []byte, where string) {
	if bytes.Contains(b, secret) {
		fmt.Println("found in", where)
	}
}
