package main

import (
	"fmt"
	"os"
	"syscall"
)

// local does with unix sockets what tools do: a pair with sendto and
// SO_PASSCRED, and a server on a path.
func local([]string) error {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := syscall.SetsockoptInt(pair[0], syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1); err != nil {
		return err
	}
	if err := syscall.Sendmsg(pair[1], []byte("x"), nil, nil, 0); err != nil {
		return err
	}
	at := &syscall.SockaddrUnix{Name: "/tmp/syscaller.sock"}
	defer os.Remove(at.Name)
	server, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := syscall.Bind(server, at); err != nil {
		return err
	}
	if err := syscall.Listen(server, 1); err != nil {
		return err
	}
	client, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := syscall.Connect(client, at); err != nil {
		return err
	}
	fmt.Println("works")
	return nil
}
