// Command mcpclients is two MCP clients that other people wrote, for the tests.
// It runs in a box, finds the servers' addresses where every program of a box
// finds them, and prints a line for each.
//
//	mcpclients sdk            the official Go SDK, every BOTBOX_MCP_… in the environment
//	mcpclients mcpgo          mark3labs/mcp-go, the same
//	mcpclients stdio CMD ARG… the official Go SDK, with a server that it starts
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// asker connects, lists the tools, calls echo and ends its session.
type asker func(ctx context.Context, address string, old bool) (string, error)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	if len(os.Args) > 2 && os.Args[1] == "stdio" {
		said, err := sdkStdio(ctx, os.Args[2:])
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("ok", said)
		return
	}
	ask, known := map[string]asker{"sdk": sdk, "mcpgo": mcpgo}[strings.Join(os.Args[1:], " ")]
	if !known {
		fmt.Println("usage: mcpclients sdk|mcpgo|stdio CMD")
		os.Exit(2)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var lines []string
	for _, pair := range os.Environ() {
		name, address, _ := strings.Cut(pair, "=")
		name, ours := strings.CutPrefix(name, "BOTBOX_MCP_")
		if !ours {
			continue
		}
		wg.Go(func() {
			said, err := ask(ctx, address, strings.Contains(name, "2024"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				lines = append(lines, name+" error "+strings.ReplaceAll(err.Error(), "\n", " "))
			} else {
				lines = append(lines, name+" ok "+said)
			}
		})
	}
	wg.Wait()
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, "\n"))
}
