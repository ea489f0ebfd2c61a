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
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to int64
		var mode string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); n != 3 || mode[0] != 'r' || strings.Contains(lines.Text(), "[v") {
			continue
		}
		if find(io.NewSectionReader(mem, from, to-from), secret) {
			fmt.Println("found in the memory of", pid, lines.Text())
		}
		swept++
	}
	return swept
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
