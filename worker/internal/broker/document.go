package broker

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

var errNotSettings = errors.New("is not a JSON object of settings")

// document lays settings over base, a JSON document of the driver's, and gives
// the whole. Where both say something, the settings win.
func document(settings []string, base string) (string, error) {
	root := map[string]any{}
	if base != "" {
		if json.Unmarshal([]byte(base), &root) != nil || root == nil {
			return "", errNotSettings // without the decoder's words: they quote it
		}
	}
	for _, row := range settings {
		path, text, _ := strings.Cut(row, "=")
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return "", errors.New("has a value that is no JSON: " + path)
		}
		set(root, path, value)
	}
	text, err := json.Marshal(root) // sorted, so that a box is reproducible
	return string(text), err
}

// set writes a value at a path; "[]" at its end adds to the list there. What
// is in the way, of another type, is replaced.
func set(root map[string]any, path string, value any) {
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		below, ok := root[name].(map[string]any)
		if !ok {
			below = map[string]any{}
			root[name] = below
		}
		root = below
	}
	name, adds := strings.CutSuffix(names[len(names)-1], "[]")
	if !adds {
		root[name] = value
		return
	}
	list, _ := root[name].([]any)
	root[name] = append(list, value)
}

// holdsKey tells whether a document may have a key of the driver's: under the
// name that engines give it, other than the token and the name of a variable,
// or among the headers and the environment of what it starts.
func holdsKey(text, token string) bool {
	var root any
	return json.Unmarshal([]byte(text), &root) == nil && anyKey(root, token)
}

func anyKey(v any, token string) bool {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			key, text := inner.(string)
			several, _ := inner.(map[string]any)
			switch {
			case name == "apiKey" && text && key != token && !strings.HasPrefix(key, "{"),
				(name == "headers" || name == "environment") && len(several) > 0,
				anyKey(inner, token):
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(inner any) bool { return anyKey(inner, token) })
	}
	return false
}
