package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// reachChecks are about the network namespace itself, beyond the seed's.
func reachChecks() []Check {
	mutation := []string{"share-net"}
	return []Check{
		{"N02", netNS, full, "connect to the host's loopback by ::1 and by ::ffff:127.0.0.1", "refused or unreachable", mutation,
			"outside: both answer", otherLoopbacks},
		{"N04", netNS, full, "ask a name server on the host's loopback, by datagram", "ECONNREFUSED", mutation,
			"outside: it answers", noDatagram},
		{"N07", netNS, full, "connect to an abstract socket of the host's", "ECONNREFUSED", mutation,
			"outside: a connect is answered", noAbstract},
		{"N08", netNS, full, "bind the ports of the gates, also shared and on every address", "EADDRINUSE", []string{"listener-released"},
			"inside: another port can be bound so", gatePortsTaken},
		{"N09", netNS, full, "list what listens; connect to it", "the three ports of the gates and nothing else", append(mutation, "listener-released"),
			"inside: each of the three takes a connection", onlyGatesListen},
		{"N16", netNS, full, "list unix sockets", "none but our own", mutation,
			"inside: one of our own is in the list", noChannel},
	}
}

func otherLoopbacks(f *Fixture) Result {
	if f.MappedPort == 0 {
		return unclear("the fixture names no port")
	}
	// By system call: package net writes a mapped address as the plain one.
	mapped := &unix.SockaddrInet6{Port: f.MappedPort, Addr: [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}}
	results := []Result{refusedConnect(unix.AF_INET6, mapped)}
	if f.LoopbackV6 != 0 {
		results = append(results, refusedConnect(unix.AF_INET6, &unix.SockaddrInet6{Port: f.LoopbackV6, Addr: [16]byte{15: 1}}))
	}
	if r := worst(results...); r.Verdict != Pass {
		return r
	}
	if f.LoopbackV6 == 0 {
		return pass("refused by the mapped address; the host has no ::1 either")
	}
	return pass("refused by both")
}

// refusedConnect does not wait: to an address of this machine a stream connects
// at once or not at all.
func refusedConnect(family int, to unix.Sockaddr) Result {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == unix.EAFNOSUPPORT && family == unix.AF_INET6 {
		return pass("this kernel has no IPv6")
	}
	if err != nil {
		return unclear("make a socket: %v", err)
	}
	defer unix.Close(fd)
	switch err := unix.Connect(fd, to); err {
	case nil:
		return fail("it answers")
	case unix.ECONNREFUSED, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL:
		return pass("%v", err)
	default:
		return unclear("connect: %v", err)
	}
}

// noDatagram sends to our own loopback. In a box that has none of its own the
// host's answers, where the fixture stands for a resolver.
func noDatagram(f *Fixture) Result {
	if f.UDPPort == 0 {
		return unclear("the fixture names no port")
	}
	conn, err := net.Dial("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(f.UDPPort)))
	if err != nil {
		return unclear("there is no route to our own loopback: %v", errno(err))
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err = conn.Write([]byte(f.Marker)); err == nil {
		_, err = conn.Read(make([]byte, 64))
	}
	switch {
	case err == nil:
		return fail("it answers")
	case errors.Is(err, unix.ECONNREFUSED):
		return pass("refused")
	}
	return unclear("neither an answer nor a refusal: %v", errno(err))
}

// noAbstract has Landlock before it as a second wall. It does not make up for
// the first: whoever hears EPERM is in the socket's network namespace.
func noAbstract(f *Fixture) Result {
	if f.Abstract == "" {
		return unclear("the fixture names no socket")
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return unclear("make a socket: %v", err)
	}
	defer unix.Close(fd)
	switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + f.Abstract}); err {
	case nil:
		return fail("it answers")
	case unix.ECONNREFUSED:
		return pass("there is none of this name")
	case unix.EPERM:
		return fail("it is there, and only Landlock keeps it closed")
	default:
		return unclear("connect: %v", err)
	}
}

func (f *Fixture) gatePorts() ([]int, bool) {
	ports := []int{f.EgressPort, f.BrokerPort, f.HarnessPort}
	slices.Sort(ports)
	return ports, ports[0] != 0
}

// gatePortsTaken binds and never listens. A port that can be bound is one on
// which a program in the box could be taken for a gate.
func gatePortsTaken(f *Fixture) Result {
	ports, ok := f.gatePorts()
	if !ok {
		return unclear("the fixture names no gates")
	}
	addresses := map[string]func(int) unix.Sockaddr{
		"127.0.0.1": func(port int) unix.Sockaddr { return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}} },
		"0.0.0.0":   func(port int) unix.Sockaddr { return &unix.SockaddrInet4{Port: port} },
		"[::]":      func(port int) unix.Sockaddr { return &unix.SockaddrInet6{Port: port} },
	}
	for name, at := range addresses {
		if err := bind(at(0)); err != nil {
			if name == "[::]" && (err == unix.EADDRNOTAVAIL || err == unix.EAFNOSUPPORT) {
				continue // a kernel without IPv6
			}
			return unclear("bind a free port of %s: %v", name, err)
		}
		for _, port := range ports {
			switch err := bind(at(port)); err {
			case unix.EADDRINUSE:
			case nil:
				return fail("port %d of a gate can be bound at %s", port, name)
			default:
				return unclear("bind port %d at %s: %v", port, name, err)
			}
		}
	}
	return pass("all in use")
}

func bind(at unix.Sockaddr) error {
	family := unix.AF_INET
	if _, ok := at.(*unix.SockaddrInet6); ok {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
			return err
		}
	}
	return unix.Bind(fd, at)
}

func onlyGatesListen(f *Fixture) Result {
	want, ok := f.gatePorts()
	if !ok {
		return unclear("the fixture names no gates")
	}
	v4, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		return unclear("list sockets: %v", errno(err))
	}
	v6, _ := os.ReadFile("/proc/self/net/tcp6") // absent without IPv6
	found := append(listening(string(v4)), listening(string(v6))...)
	slices.Sort(found)
	if !slices.Equal(found, want) {
		return fail("what listens is %v, the gates are %v", found, want)
	}
	for _, port := range want {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), time.Second)
		if err != nil {
			return unclear("port %d of a gate takes no connection: %v", port, errno(err))
		}
		conn.Close()
	}
	return pass("the three gates")
}

// listening gives the ports of a table of the kernel's that are in the state
// LISTEN.
func listening(table string) (ports []int) {
	for line := range strings.Lines(table) {
		columns := strings.Fields(line)
		if len(columns) < 4 || columns[3] != "0A" {
			continue
		}
		_, hex, _ := strings.Cut(columns[1], ":")
		if port, err := strconv.ParseUint(hex, 16, 16); err == nil {
			ports = append(ports, int(port))
		}
	}
	return ports
}

// noChannel looks for a way to the worker that a box could see.
func noChannel(f *Fixture) Result {
	own := fmt.Sprintf("@boxprobe-%s-%d", f.Marker, os.Getpid())
	l, err := net.Listen("unix", own)
	if err != nil {
		return unclear("make a socket: %v", errno(err))
	}
	defer l.Close()
	table, err := os.ReadFile("/proc/self/net/unix")
	if err != nil {
		return unclear("list sockets: %v", errno(err))
	}
	seen, others := false, 0
	for i, line := range strings.Split(strings.TrimSpace(string(table)), "\n") {
		switch {
		case i == 0: // the head
		case strings.HasSuffix(line, " "+own):
			seen = true
		default:
			others++
		}
	}
	switch {
	case others > 0:
		return fail("%d are there", others)
	case !seen:
		return unclear("our own is not in the list")
	}
	return pass("none")
}
