package api

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/openmausbot/botbox/shared/reason"
)

// move has a bot's workspace, or a folder that the body names, change hands.
func (s *Server) move(back bool) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var body struct {
			Folder string `json:"folder"`
		}
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&body); err != nil || d.More() {
			return nil, reason.New(reason.Usage, `the body is not {"folder":"/…"} or {"folder":""}`)
		}
		bot := r.PathValue("bot")
		if strings.HasPrefix(bot, ".") || strings.ContainsAny(bot, "/\x00") {
			return nil, reason.New(reason.Usage, "that is no name of a bot")
		}
		return s.Move(bot, body.Folder, back)
	}
}
