package secret

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestNothingPrintsASecret(t *testing.T) {
	const key = "sk-canary-0123456789"
	type turn struct {
		Key  Text
		Keys map[string]Text
		Ptr  *Text
		own  Text
	}
	ptr := New(key)
	v := turn{Key: New(key), Keys: map[string]Text{"a": New(key)}, Ptr: &ptr, own: New(key)}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", v)
		fmt.Fprintf(&out, verb+"\n", v.Key)
		fmt.Fprintf(&out, verb+"\n", v.Ptr)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(b)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "key", v.Key, "turn", v)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "key", v.Key, "turn", v)
	hex := fmt.Sprintf("%x", key)
	for _, form := range []string{key, hex, strings.ToUpper(hex)} {
		if strings.Contains(out.String(), form) {
			t.Errorf("the secret was printed as %q in:\n%s", form, out.String())
		}
	}
	if !strings.Contains(out.String(), Redacted) {
		t.Error("positive control: nothing was redacted")
	}
	if v.Key.Reveal() != key {
		t.Error("Reveal does not give the secret back")
	}
}
