package main

import (
	"context"
	"fmt"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
)

func mcpgo(ctx context.Context, address string, old bool) (string, error) {
	var c *client.Client
	var err error
	if old {
		c, err = client.NewSSEMCPClient(address)
	} else {
		c, err = client.NewStreamableHttpClient(address)
	}
	if err != nil {
		return "", fmt.Errorf("make: %w", err)
	}
	defer c.Close()
	if err := c.Start(ctx); err != nil {
		return "", fmt.Errorf("start: %w", err)
	}
	var begin mcp.InitializeRequest
	begin.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	begin.Params.ClientInfo = mcp.Implementation{Name: "mcpgo", Version: "1"}
	if _, err := c.Initialize(ctx, begin); err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	tools, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return "", fmt.Errorf("list: %w", err)
	}
	var call mcp.CallToolRequest
	call.Params.Name = tools.Tools[0].Name
	call.Params.Arguments = map[string]any{"text": "hello"}
	result, err := c.CallTool(ctx, call)
	if err != nil {
		return "", fmt.Errorf("call: %w", err)
	}
	text, ok := result.Content[0].(mcp.TextContent)
	if !ok {
		return "", fmt.Errorf("the result is a %T", result.Content[0])
	}
	if result.IsError {
		return "failed: " + text.Text, nil
	}
	return text.Text, nil
}
