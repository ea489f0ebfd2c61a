// Sweeper looks for a secret in everything that it can read: environments,
// command lines and memory of all processes that it sees, and files. The
// secret comes as two halves, so that no argument holds it. It prints where
// it found it, then a line "swept N".
package main

import (
	"fmt"
	"os"
)

func main() {
	secret := []byte(os.Args[1] + os.Args[2])
	swept := processes(secret)
	for _, dir := range os.Args[3:] {
		swept += files(dir, secret)
	}
	fmt.Println("swept", swept)
}
