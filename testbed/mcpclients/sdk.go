package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func sdk(ctx context.Context, address string, old bool) (string, error) {
	if old {
		return sdkTalk(ctx, &mcp.SSEClientTransport{Endpoint: address})
	}
	return sdkTalk(ctx, &mcp.StreamableClientTransport{Endpoint: address})
}

func sdkStdio(ctx context.Context, argv []string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	return sdkTalk(ctx, &mcp.CommandTransport{Command: cmd})
}

func sdkTalk(ctx context.Context, transport mcp.Transport) (string, error) {
	c := mcp.NewClient(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	session, err := c.Connect(ctx, transport, nil)
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer session.Close()
	tools, err := session.ListTools(ctx, nil)
	if err != nil {
		return "", fmt.Errorf("list: %w", err)
	}
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tools.Tools[0].Name, Arguments: map[string]any{"text": "hello"}})
	if err != nil {
		return "", fmt.Errorf("call: %w", err)
	}
	text, ok := result.Content[0].(*mcp.TextContent)
	if !ok {
		return "", fmt.Errorf("the result is a %T", result.Content[0])
	}
	if result.IsError {
		return "failed: " + text.Text, nil
	}
	return text.Text, nil
}
