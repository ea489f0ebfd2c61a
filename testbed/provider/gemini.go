package provider

import (
	"net/http"
	"strings"
)

// generate answers :generateContent, and :streamGenerateContent with one event.
func (x *exchange) generate() {
	part := obj{"text": x.opt.Reply}
	if x.call != nil {
		part = obj{"functionCall": obj{"name": x.call.name, "args": x.call.args}}
	}
	body := obj{
		"candidates": []any{obj{
			"index": 0, "finishReason": "STOP",
			"content": obj{"role": "model", "parts": []any{part}},
		}},
		"usageMetadata": obj{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	}
	switch {
	case !strings.HasSuffix(x.r.URL.Path, ":streamGenerateContent"):
		reply(x.w, http.StatusOK, body)
	case x.r.URL.Query().Get("alt") == "sse":
		x.events(event{"", body})
	default:
		// Without alt=sse the provider streams one JSON array.
		reply(x.w, http.StatusOK, []any{body})
	}
}
