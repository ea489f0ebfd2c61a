package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
)

func (x *exchange) countTokens() { reply(x.w, http.StatusOK, obj{"input_tokens": 42}) }

// messages answers POST /v1/messages.
func (x *exchange) messages() {
	if len(x.calls) > 0 {
		x.manyCalls()
		return
	}
	block, stop := obj{"type": "text", "text": x.opt.Reply}, "end_turn"
	if x.call != nil {
		block, stop = obj{"type": "tool_use", "id": "toolu_standin", "name": x.call.name, "input": x.call.args}, "tool_use"
	}
	message := obj{
		"id": "msg_standin", "type": "message", "role": "assistant", "model": x.model,
		"content": []any{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": obj{"input_tokens": 1, "output_tokens": 1},
	}
	if !x.stream {
		message["content"], message["stop_reason"] = []any{block}, stop
		reply(x.w, http.StatusOK, message)
		return
	}
	// A streamed block starts empty; its content follows as a delta.
	var delta obj
	if x.call != nil {
		block["input"] = obj{}
		delta = obj{"type": "input_json_delta", "partial_json": x.call.arguments()}
	} else {
		block["text"] = ""
		delta = obj{"type": "text_delta", "text": x.opt.Reply}
	}
	x.events(
		event{"message_start", obj{"type": "message_start", "message": message}},
		event{"content_block_start", obj{"type": "content_block_start", "index": 0, "content_block": block}},
		event{"content_block_delta", obj{"type": "content_block_delta", "index": 0, "delta": delta}},
		event{"content_block_stop", obj{"type": "content_block_stop", "index": 0}},
		event{"message_delta", obj{"type": "message_delta", "delta": obj{"stop_reason": stop, "stop_sequence": nil}, "usage": obj{"output_tokens": 1}}},
		event{"message_stop", obj{"type": "message_stop"}},
	)
}

// manyCalls answers with one block for each call.
func (x *exchange) manyCalls() {
	message := obj{
		"id": "msg_standin", "type": "message", "role": "assistant", "model": x.model,
		"content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": obj{"input_tokens": 1, "output_tokens": 1},
	}
	var blocks []any
	events := []event{{"message_start", obj{"type": "message_start", "message": message}}}
	for i, c := range x.calls {
		id := fmt.Sprint("toolu_standin_", i)
		args, _ := json.Marshal(c.Args) // plain values always encode
		blocks = append(blocks, obj{"type": "tool_use", "id": id, "name": c.Name, "input": c.Args})
		events = append(events,
			event{"content_block_start", obj{"type": "content_block_start", "index": i, "content_block": obj{"type": "tool_use", "id": id, "name": c.Name, "input": obj{}}}},
			event{"content_block_delta", obj{"type": "content_block_delta", "index": i, "delta": obj{"type": "input_json_delta", "partial_json": string(args)}}},
			event{"content_block_stop", obj{"type": "content_block_stop", "index": i}})
	}
	if !x.stream {
		message["content"], message["stop_reason"] = blocks, "tool_use"
		reply(x.w, http.StatusOK, message)
		return
	}
	x.events(append(events,
		event{"message_delta", obj{"type": "message_delta", "delta": obj{"stop_reason": "tool_use", "stop_sequence": nil}, "usage": obj{"output_tokens": 1}}},
		event{"message_stop", obj{"type": "message_stop"}})...)
}
