package provider

import "net/http"

// responses answers POST …/responses.
func (x *exchange) responses() {
	item := obj{
		"type": "message", "id": "msg_standin", "role": "assistant", "status": "completed",
		"content": []any{obj{"type": "output_text", "text": x.opt.Reply, "annotations": []any{}}},
	}
	if x.call != nil {
		item = obj{
			"type": "function_call", "id": "fc_standin", "call_id": "call_standin", "status": "completed",
			"name": x.call.name, "arguments": x.call.arguments(),
		}
	}
	done := obj{
		"id": "resp_standin", "object": "response", "model": x.model, "status": "completed", "output": []any{item},
		"usage": obj{
			"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
			"input_tokens_details":  obj{"cached_tokens": 0},
			"output_tokens_details": obj{"reasoning_tokens": 0},
		},
	}
	if !x.stream {
		reply(x.w, http.StatusOK, done)
		return
	}
	// An item's text comes between its two ends; some clients show that only.
	text := []event{}
	if x.call == nil {
		where := func(kind, name string, value any) event {
			return event{kind, obj{"type": kind, "item_id": "msg_standin", "output_index": 0, "content_index": 0, name: value}}
		}
		text = []event{
			where("response.content_part.added", "part", obj{"type": "output_text", "text": "", "annotations": []any{}}),
			where("response.output_text.delta", "delta", x.opt.Reply),
			where("response.output_text.done", "text", x.opt.Reply),
		}
	}
	begun := obj{"id": "resp_standin", "object": "response", "model": x.model, "status": "in_progress", "output": []any{}}
	events := []event{
		{"response.created", obj{"type": "response.created", "response": begun}},
		{"response.output_item.added", obj{"type": "response.output_item.added", "output_index": 0, "item": item}},
	}
	x.events(append(append(events, text...),
		event{"response.output_item.done", obj{"type": "response.output_item.done", "output_index": 0, "item": item}},
		event{"response.completed", obj{"type": "response.completed", "response": done}})...)
}

// chat answers POST …/chat/completions.
func (x *exchange) chat() {
	message, finish := obj{"role": "assistant", "content": x.opt.Reply}, "stop"
	if x.call != nil {
		message, finish = obj{"role": "assistant", "content": nil, "tool_calls": []any{obj{
			"index": 0, "id": "call_standin", "type": "function",
			"function": obj{"name": x.call.name, "arguments": x.call.arguments()},
		}}}, "tool_calls"
	}
	body := func(object, part string, content obj, finish any) obj {
		return obj{
			"id": "chatcmpl-standin", "object": object, "created": 1, "model": x.model,
			"choices": []any{obj{"index": 0, part: content, "finish_reason": finish}},
			"usage":   obj{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
		}
	}
	if !x.stream {
		reply(x.w, http.StatusOK, body("chat.completion", "message", message, finish))
		return
	}
	x.events(
		event{"", body("chat.completion.chunk", "delta", message, nil)},
		event{"", body("chat.completion.chunk", "delta", obj{}, finish)},
		event{"", "[DONE]"},
	)
}
