package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// boxes is how many stay open while memory is read.
const boxes = 20

// printWeight shows what a box weighs beside bare bubblewrap: processes and
// proportional memory of everything in it but the engine.
func (p *place) printWeight() error {
	botbox := filepath.Join(p.bin, "botbox")
	options, err := p.sameMounts(botbox)
	if err != nil {
		return err
	}
	bare := append(append([]string{"/usr/bin/bwrap"}, options...), "--", "/bin/sleep", "60")
	bareN, bareKB, err := p.weigh(bare)
	if err != nil {
		return err
	}
	oursN, oursKB, err := p.weigh([]string{botbox, "run", "--", "/bin/sleep", "60"})
	if err != nil {
		return err
	}
	fmt.Printf("\nper box, of %d open: bwrap %.1f processes, %.0f KiB; botbox %.1f processes, %.0f KiB; ours %+.1f processes, %+.0f KiB\n",
		boxes, bareN, bareKB, oursN, oursKB, oursN-bareN, oursKB-bareKB)
	fmt.Println("promise: 0 processes and ≤ 100 KiB of ours")
	return nil
}

// weigh gives processes and KiB of PSS per box.
func (p *place) weigh(argv []string) (processes, kb float64, err error) {
	var open []*exec.Cmd
	defer func() {
		for _, cmd := range open {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}()
	for range boxes {
		cmd := p.command(argv...)
		if err := cmd.Start(); err != nil {
			return 0, 0, err
		}
		open = append(open, cmd)
	}
	time.Sleep(time.Second)
	for _, cmd := range open {
		for _, pid := range tree(cmd.Process.Pid) {
			processes++
			kb += pss(pid)
		}
	}
	return processes / boxes, kb / boxes, nil
}

// tree lists a process and all its descendants.
func tree(pid int) []int {
	all := []int{pid}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, word := range strings.Fields(string(b)) {
		if child, err := strconv.Atoi(word); err == nil {
			all = append(all, tree(child)...)
		}
	}
	return all
}

func pss(pid int) float64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if w := strings.Fields(lines.Text()); len(w) > 1 && w[0] == "Pss:" {
			n, _ := strconv.ParseFloat(w[1], 64)
			return n
		}
	}
	return 0
}
