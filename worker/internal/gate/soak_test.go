package gate_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openmausbot/botbox/worker/internal/gate"
	"github.com/openmausbot/botbox/worker/internal/gate/egress"
	"github.com/openmausbot/botbox/worker/internal/gate/gatetest"
)

// flooded counts the blocks that soakOrigin got rid of.
var flooded atomic.Int64

// soakOrigin sends without end what begins with an f, and everything else
// back.
func soakOrigin(t *testing.T) *gatetest.Origin {
	return gatetest.NewOrigin(t, func(o *gatetest.Origin, c net.Conn, br *bufio.Reader) {
		if word, _ := br.Peek(1); string(word) != "f" {
			gatetest.Echo(o, c, br)
			return
		}
		go io.Copy(io.Discard, br)
		for block := make([]byte, 64<<10); ; {
			if _, err := c.Write(block); err != nil {
				return
			}
			flooded.Add(1)
		}
	})
}

// stalled waits until nothing goes into the buffers any more: to fill them is
// work like any other.
func stalled() {
	for last := int64(-1); last != flooded.Load(); time.Sleep(30 * time.Millisecond) {
		last = flooded.Load()
	}
}

// box starts one box's gate in front of the origin.
func box(t *testing.T, o *gatetest.Origin, max int) (address string) {
	return gatetest.Start(t, egress.New(egress.Options{Max: max, Dialer: gate.Dialer{Except: []netip.AddrPort{o.Addr()}}}))
}

func tunnelTo(t *testing.T, address string, o *gatetest.Origin, first string) *net.TCPConn {
	c := gatetest.Dial(t, address)
	gatetest.Send(t, c, "CONNECT "+o.Addr().String()+" HTTP/1.1\r\n\r\n"+first)
	gatetest.Expect(t, c, "HTTP/1.1 200 Connection established\r\n\r\n")
	return c
}

// settled waits until what a test opened is closed again.
func settled(t *testing.T, files, routines int) {
	t.Helper()
	end := time.Now().Add(2 * time.Second)
	for gatetest.Descriptors(t) > files+5 || runtime.NumGoroutine() > routines+5 {
		if time.Now().After(end) {
			t.Fatalf("after 2 s: %d descriptors and %d goroutines more", gatetest.Descriptors(t)-files, runtime.NumGoroutine()-routines)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

const killed = "BOTBOX_TEST_KILLED_CLIENTS" // gate and origin, for the process that holds the clients

// TestSoakClients is the process that is killed; without its variable it holds
// nothing.
func TestSoakClients(t *testing.T) {
	where, isClient := os.LookupEnv(killed)
	if !isClient {
		return
	}
	address, origin, _ := strings.Cut(where, " ")
	for i := range 500 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		word := []string{"flood", "upload", "quiet"}[i%3]
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n%s", origin, word)
		gatetest.Expect(t, c, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() {
			for block := make([]byte, 4<<10); word == "upload"; time.Sleep(time.Millisecond) {
				if _, err := c.Write(block); err != nil {
					return
				}
			}
			io.CopyN(io.Discard, c, 1<<20)
		}()
	}
	fmt.Println("open")
	time.Sleep(time.Hour)
}

// 500 clients that a SIGKILL takes in the middle of their streams leave
// nothing behind.
func TestSoakKilledClients(t *testing.T) {
	o := soakOrigin(t)
	address := box(t, o, 600)
	tunnelTo(t, address, o, "x").Close() // what is made once is made
	time.Sleep(50 * time.Millisecond)
	files, routines := gatetest.Descriptors(t), runtime.NumGoroutine()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestSoakClients$")
	cmd.Env = append(os.Environ(), killed+"="+address+" "+o.Addr().String())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		cmd.Process.Kill()
		cmd.Wait()
		t.Fatalf("the clients say %q", line)
	}
	if n := gatetest.Descriptors(t) - files; n < 2*500 { // the control
		t.Errorf("500 tunnels hold %d descriptors", n)
	}
	cmd.Process.Kill()
	cmd.Wait()
	out.Close()
	settled(t, files, routines)
}

// 256 tunnels in each of four boxes. One box reads nothing of what it asked
// for; the others' round trips must not feel it. The two are measured in turn,
// so that what else the machine does meets both alike.
func TestSoakSlowBox(t *testing.T) {
	o := soakOrigin(t)
	const boxes, each, rounds = 4, 256, 15
	var open []*net.TCPConn
	var addresses []string
	for range boxes {
		addresses = append(addresses, box(t, o, each))
	}
	baseFiles, baseRoutines := gatetest.Descriptors(t), runtime.NumGoroutine()
	for _, address := range addresses[1:] {
		for range each {
			c := tunnelTo(t, address, o, "")
			c.SetDeadline(time.Time{})
			open = append(open, c)
		}
	}
	var with, without []float64
	for range rounds {
		without = append(without, p99(t, open))
		var slow []*net.TCPConn
		for i := range each {
			if i < each/2 {
				c := tunnelTo(t, addresses[0], o, "flood")
				c.SetReadBuffer(4 << 10)
				slow = append(slow, c)
				continue
			}
			c := gatetest.Dial(t, addresses[0])
			gatetest.Send(t, c, "CONNECT ") // and never the rest
			slow = append(slow, c)
		}
		stalled()
		with = append(with, p99(t, open))
		for _, c := range slow {
			c.SetLinger(0)
			c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	slices.Sort(with)
	slices.Sort(without)
	t.Logf("median of the rounds' p99: %.0f µs beside a slow box, %.0f µs without", with[rounds/2], without[rounds/2])
	if ratio := with[rounds/2] / without[rounds/2]; ratio > 2 {
		t.Errorf("a slow box makes the others' p99 %.2f times as long", ratio)
	}
	for _, c := range open {
		c.Close()
	}
	settled(t, baseFiles, baseRoutines)
}

// p99 of 300 round trips over the tunnels of all boxes, in µs.
func p99(t *testing.T, tunnels []*net.TCPConn) float64 {
	var took []float64
	for i := range 300 {
		c := tunnels[i*len(tunnels)/300]
		begin := time.Now()
		gatetest.Send(t, c, "p")
		gatetest.Expect(t, c, "p")
		took = append(took, float64(time.Since(begin).Nanoseconds())/1000)
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}
