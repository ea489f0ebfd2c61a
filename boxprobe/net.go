package main

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func netChecks() []Check {
	mutation := []string{"share-net"}
	return []Check{
		{"N1", netNS, seed, "connect to a port of the host's loopback", "ECONNREFUSED", mutation,
			"outside: the port answers", hostLoopback},
		{"N2", netNS, seed, "ask the harness gate for a route that is not internal", "403 from the gate",
			[]string{"share-net", "harness-open", "no-harness", "listener-released"},
			"inside: an internal route is answered 200; outside: the server was asked for that one only", harnessGate},
		{"N3", netNS, seed, "connect to an address of the host's interface", "refused or unreachable", mutation,
			"outside: it answers", hostAddress},
		{"N4", netNS, seed, "ask for a route to metadata and link-local addresses", "none", mutation,
			"inside: there is a route to our own loopback; outside: there is one to each address", noRoute},
		{"N5", netNS, seed, "list interfaces and routes", "lo only", mutation,
			"inside: lo is in both lists", onlyLoopback},
	}
}

func hostLoopback(f *Fixture) Result {
	if f.LoopbackPort == 0 {
		return unclear("the fixture names no port")
	}
	return refusedDial(net.JoinHostPort("127.0.0.1", strconv.Itoa(f.LoopbackPort)))
}

func hostAddress(f *Fixture) Result {
	if _, err := netip.ParseAddrPort(f.HostAddress); err != nil {
		return unclear("the fixture names no address")
	}
	return refusedDial(f.HostAddress)
}

func refusedDial(address string) Result {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		conn.Close()
		return fail("it answers")
	}
	for _, refusal := range []error{unix.ECONNREFUSED, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL} {
		if errors.Is(err, refusal) {
			return pass("%v", errno(err))
		}
	}
	return unclear("connect: %v", errno(err)) // a time-out may be a route with a slow end
}

func harnessGate(f *Fixture) Result {
	if f.HarnessPort == 0 || f.InternalRoute == "" || f.OtherRoute == "" {
		return unclear("the fixture names no gate or no route")
	}
	good, err := get(f.HarnessPort, f.InternalRoute)
	if err != nil {
		return unclear("the harness gate does not answer: %v", errno(err))
	}
	if good.status != 200 {
		return unclear("the gate answers %d for an internal route", good.status)
	}
	other, err := get(f.HarnessPort, f.OtherRoute)
	switch {
	case err != nil:
		return unclear("the harness gate answers one route and not the other: %v", errno(err))
	case other.status != 403:
		return fail("another route is answered %d", other.status)
	}
	return pass("200 for an internal route, 403 for the other")
}

// noRoute connects datagram sockets: the kernel looks the route up and sends
// nothing.
func noRoute(f *Fixture) Result {
	if err := route("127.0.0.1"); err != nil {
		return unclear("there is no route to our own loopback either: %v", errno(err))
	}
	if len(f.Routed) == 0 && !f.NoRouteOutside {
		return unclear("the fixture names no address that the host reaches")
	}
	always := []string{"169.254.169.254", "fd00:ec2::254", "198.51.100.1", "2001:db8::1"}
	for _, address := range append(always, f.Routed...) {
		if route(address) == nil {
			return fail("there is a route to %s", address)
		}
	}
	if len(f.Routed) == 0 {
		return pass("none; but the host has none either")
	}
	return pass("none")
}

func route(address string) error {
	conn, err := net.Dial("udp", net.JoinHostPort(address, "9"))
	if err == nil {
		conn.Close()
	}
	return err
}

func onlyLoopback(*Fixture) Result {
	interfaces, err := net.Interfaces()
	if err != nil || len(interfaces) == 0 {
		return unclear("list interfaces: %v", err)
	}
	for _, i := range interfaces {
		if i.Name != "lo" {
			return fail("interface %s is there", i.Name)
		}
	}
	// A second opinion, which does not ride on netlink. Both files name the
	// interface in one column: the first one of dev and route, the last one of
	// ipv6_route.
	dev, err := os.ReadFile("/proc/self/net/dev")
	if err != nil || !strings.Contains(string(dev), "lo:") {
		return unclear("/proc/self/net/dev does not name lo: %v", err)
	}
	v4, _ := os.ReadFile("/proc/self/net/route")
	v6, _ := os.ReadFile("/proc/self/net/ipv6_route") // absent without IPv6
	if name := foreign(string(dev), 2, first); name != "" {
		return fail("interface %s is there", name)
	}
	if name := foreign(string(v4), 1, first) + foreign(string(v6), 0, last); name != "" {
		return fail("a route over %s is there", name)
	}
	return pass("lo only")
}

func first(columns []string) string { return strings.TrimSuffix(columns[0], ":") }
func last(columns []string) string  { return columns[len(columns)-1] }

// foreign gives the first interface of a table that is not lo, or "".
func foreign(table string, head int, column func([]string) string) string {
	for line := range strings.Lines(table) {
		columns := strings.Fields(line)
		if head--; head >= 0 || len(columns) == 0 {
			continue
		}
		if name := column(columns); name != "lo" {
			return name
		}
	}
	return ""
}
