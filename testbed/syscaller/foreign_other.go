//go:build !amd64

package main

var foreign = map[string]func() int64{}
