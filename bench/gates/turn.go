package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	warm          = 300 // connects before anything is measured
	connectRounds = 40
	alone         = 25 // connects one after another
	clients       = 16 // at once
	each          = 5  // connects of each of them
	refusals      = 10
	forbidden     = "10.0.0.1:443"

	bulkRounds = 8
	idle       = 512      // tunnels that are open and silent
	bulk       = 64 << 20 // bytes of one transfer of a slow proxy
	fast       = 500      // MB/s; such a one moves four times as much, or its transfer is over in some 30 ms
)

// connecting is one round of opening tunnels, and of being refused.
func (c *contender) connecting() error {
	before := c.cpu()
	took, err := c.connects(alone)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := c.together(); err != nil {
		return err
	}
	c.note("connect", median(took))
	c.note("connects/s", clients*each/time.Since(begin).Seconds())
	c.note("cpu", float64((c.cpu()-before).Microseconds())/(alone+clients*each))
	if c.policy {
		return c.refusing()
	}
	return nil
}

// moving is one round of bulk, without and with idle tunnels beside it.
func (c *contender) moving() error {
	if c.bulk == 0 {
		c.bulk = bulk
		if err := c.transfers(" first"); err != nil {
			return err
		}
		if min(c.figures["down first"][0], c.figures["up first"][0]) >= fast {
			c.bulk = 4 * bulk
		}
	}
	if err := c.transfers(""); err != nil {
		return err
	}
	memory, files := c.weight()
	var open []net.Conn
	defer func() {
		for _, t := range open {
			t.(*net.TCPConn).SetLinger(0)
			t.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}()
	for range idle {
		t, err := c.tunnel()
		if err != nil {
			return fmt.Errorf("idle tunnel %d: %w", len(open), err)
		}
		open = append(open, t)
	}
	memoryThen, filesThen := c.weight()
	c.note("KiB a tunnel", (memoryThen-memory)/idle)
	c.note("fds a tunnel", float64(filesThen-files)/idle)
	return c.transfers(" +512")
}

// transfers measures one tunnel's throughput down and up.
func (c *contender) transfers(beside string) error {
	for _, way := range []string{"down", "up"} {
		t, err := c.tunnel()
		if err != nil {
			return err
		}
		before, begin := c.cpu(), time.Now()
		if err := transfer(t, way[0], c.bulk); err != nil {
			return fmt.Errorf("bulk %s: %w", way, err)
		}
		c.note(way+beside, float64(c.bulk)/1e6/time.Since(begin).Seconds())
		c.note(way+" cpu"+beside, float64((c.cpu()-before).Milliseconds())/(float64(c.bulk)/1e9))
		t.Close()
	}
	return nil
}

// tunnel opens one through the proxy. Its first byte is not sent yet.
func (c *contender) tunnel() (net.Conn, error) {
	t, err := net.Dial("tcp", c.address)
	if err != nil {
		return nil, err
	}
	t.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(t, "CONNECT "+origin+" HTTP/1.1\r\nHost: "+origin+"\r\n\r\n"); err != nil {
		return t, err
	}
	head := make([]byte, 0, 512)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		n, err := t.Read(head[len(head):cap(head)]) // the origin says nothing before it is asked
		head = head[:len(head)+n]
		if err != nil || len(head) == cap(head) {
			return t, fmt.Errorf("%q: %w", head, err)
		}
	}
	if !bytes.Contains(head[:12], []byte(" 200")) {
		return t, fmt.Errorf("%q", head)
	}
	return t, nil
}

func transfer(t net.Conn, way byte, size int64) error {
	if _, err := t.Write(binary.BigEndian.AppendUint64([]byte{way}, uint64(size))); err != nil {
		return err
	}
	if way == 'd' {
		return drain(t, size)
	}
	for n := int64(0); n < size; n += int64(len(block)) {
		if _, err := t.Write(block); err != nil {
			return err
		}
	}
	return drain(t, 1)
}

// once is a whole connect: dial, CONNECT, one byte there and back, reset.
func (c *contender) once() error {
	t, err := c.tunnel()
	if err != nil {
		return err
	}
	defer t.Close()
	t.(*net.TCPConn).SetLinger(0)
	if _, err := t.Write([]byte("ex")); err != nil {
		return err
	}
	return drain(t, 1)
}

// connects gives how many µs each took.
func (c *contender) connects(n int) (took []float64, err error) {
	for range n {
		begin := time.Now()
		if err := c.once(); err != nil {
			return nil, err
		}
		took = append(took, float64(time.Since(begin).Nanoseconds())/1000)
	}
	return took, nil
}

func (c *contender) together() error {
	var wg sync.WaitGroup
	failed := make(chan error, clients)
	for range clients {
		wg.Go(func() {
			if _, err := c.connects(each); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}

// refusing measures a "no" from the dial to its first line, and counts the
// connections that the proxy began for it.
func (c *contender) refusing() error {
	opens := activeOpens()
	var took []float64
	for range refusals {
		begin := time.Now()
		t, err := net.Dial("tcp", c.address)
		if err != nil {
			return err
		}
		io.WriteString(t, "CONNECT "+forbidden+" HTTP/1.1\r\nHost: "+forbidden+"\r\n\r\n")
		line := make([]byte, 12)
		if _, err := io.ReadFull(t, line); err != nil || line[9] != '4' {
			return fmt.Errorf("%q: %w", line, err)
		}
		took = append(took, float64(time.Since(begin).Nanoseconds())/1000)
		t.Close()
	}
	c.note("refusal", median(took))
	c.note("opens", float64(activeOpens()-opens-refusals))
	return nil
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	if len(list) == 0 {
		return 0
	}
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
