package broker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func scanned(body string, step int) string {
	var s rpcScan
	for i := 0; i < len(body); i += step {
		s.Write([]byte(body[i:min(i+step, len(body))]))
	}
	var words []string
	for _, c := range s.calls {
		words = append(words, string(c.id)+" "+c.method)
	}
	return fmt.Sprintf("%v %v %s", s.whole(), s.batch, strings.Join(words, ","))
}

func TestCallsAreFound(t *testing.T) {
	long := strings.Repeat("x", 600)
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`:                     "true false 1 tools/call",
		`{"method":"tools/call","params":{"id":9,"method":"x"},"id":"a\"b"}`: `true false "a\"b" tools/call`,
		` {"id" : -1.5e3 , "method":"m"} `:                                   "true false -1.5e3 m",
		`{"\u0069d":7,"m\u0065thod":"m"}`:                                    "true false 7 m",
		`{"id":1,"id":2,"method":"m"}`:                                       "true false 2 m",
		`{"id":null,"method":"m"}`:                                           "true false ",
		`{"id":{"a":1},"method":"m"}`:                                        "true false ",
		`{"id":[1],"method":"m"}`:                                            "true false ",
		`{"id":true,"method":"m"}`:                                           "true false ",
		`{"id":1,"method":2}`:                                                "true false ",
		`{"id":01,"method":"m"}`:                                             "true false ",
		`{"method":"notifications/initialized"}`:                             "true false ",
		`{"id":1,"result":{}}`:                                               "true false ",
		`[{"id":1,"method":"a"},{"method":"n"},{"id":"2","method":"b"}]`:     `true true 1 a,"2" b`,
		`[]`: "true true ",
		`{"id":1,"method":"m","params":{"t":"` + long + `}],\""}}`: "true false 1 m",
		`{"` + long + `":1,"id":1,"method":"m"}`:                   "true false 1 m",
		`{"id":"` + long + `","method":"m"}`:                       "true false ",
		`{"params":["{","}","\\"],"id":3,"method":"m"}`:            "true false 3 m",
		``:                       "false false ",
		`{"id":1,"method":"m"`:   "false false ",
		`{"id":1,"method":"m"}}`: "false false 1 m",
		`nonsense`:               "true false ",
	} {
		for _, step := range []int{1, 2, 7, len(body) + 1} {
			if got := scanned(body, step); got != want {
				t.Errorf("%s in steps of %d: %s, want %s", body, step, got, want)
			}
		}
	}
}

// FuzzRPC compares with encoding/json, and feeds it in pieces.
func FuzzRPC(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"id":2}}`), 3)
	f.Add([]byte(`[{"id":"a","method":"b"},{"method":"c"}]`), 1)
	f.Add([]byte(`{"\u0069d":"\ud800","method":"\n"}`), 2)
	f.Fuzz(func(t *testing.T, body []byte, step int) {
		if len(body) > 1<<16 {
			return
		}
		step = max(1, step&0xff)
		got := scanned(string(body), step)
		if whole := scanned(string(body), len(body)+1); got != whole {
			t.Fatalf("in pieces %s, at once %s", got, whole)
		}
		if !json.Valid(body) {
			return
		}
		var one map[string]json.RawMessage
		var all []json.RawMessage
		want := "true false "
		if json.Unmarshal(body, &all) == nil && all != nil {
			want = "true true "
		} else {
			all = []json.RawMessage{body}
		}
		var words []string
		for _, m := range all {
			one = nil
			if json.Unmarshal(m, &one) != nil {
				continue
			}
			var method string
			id := strings.TrimSpace(string(one["id"]))
			raw := one["method"]
			scalar := id != "" && strings.ContainsAny(id[:1], `"-0123456789`)
			if len(id) > rpcTokenMost || len(raw) > rpcTokenMost || len(words) >= rpcCallsMost {
				return
			}
			if scalar && string(raw) != "null" && json.Unmarshal(raw, &method) == nil {
				words = append(words, id+" "+method)
			}
		}
		for key := range one {
			if len(key) > 40 { // a name that is too long is none of ours
				return
			}
		}
		if want += strings.Join(words, ","); got != want {
			t.Fatalf("%q: %s, want %s", body, got, want)
		}
	})
}
