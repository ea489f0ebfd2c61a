package main

import (
	"fmt"
	"os"
	"strings"
)

func brokerChecks() []Check {
	mutation := []string{"broker-off"}
	return []Check{
		{"B1", broker, seed, "look for the key in our environment", "absent", mutation,
			"outside: the worker was given this key; inside: the variable that holds the token is found", keyNotInEnv},
		{"B2", broker, seed, "search every readable file of the box's own folders, /etc and /proc for the key", "absent", mutation,
			"outside: the worker was given this key; inside: a decoy is found by the same search", keyNotInFiles},
		{"B3", broker, seed, "read the base URL and the key variable", "the broker's address and a token", mutation,
			"inside: both variables are set", baseIsBroker},
		{"B4", broker, seed, "call the provider with the token, and a credential of our own", "the upstream's answer", append(mutation, "broker-passthrough"),
			"outside: the upstream saw the real key in its own header, and nothing of ours", func(f *Fixture) Result { return tokenCall(f, "B4") }},
		{"B5", broker, seed, "the same call with a wrong token", "401", append(mutation, "broker-open"),
			"inside: the right token is answered; outside: the upstream was not called", wrongToken},
		{"B6", broker, seed, "the same token with a grant that it lacks", "403", append(mutation, "broker-any-grant"),
			"inside: the right grant is answered; outside: the upstream was not called", ungranted},
	}
}

const tokenPrefix = "omb_t0_"

func keyNotInEnv(f *Fixture) Result {
	key, err := f.key()
	if err != nil || len(key) == 0 || f.KeyName == "" {
		return unclear("the fixture has no key")
	}
	if os.Getenv(f.KeyName) == "" {
		return unclear("%s is not set", f.KeyName)
	}
	for _, entry := range os.Environ() {
		if strings.Contains(entry, string(key)) {
			name, _, _ := strings.Cut(entry, "=")
			return fail("%s holds it", name)
		}
	}
	return pass("no variable holds it")
}

func keyNotInFiles(f *Fixture) Result {
	key, err := f.key()
	if err != nil || len(key) == 0 {
		return unclear("the fixture has no key")
	}
	// The decoy must be found by the search that finds no key.
	decoy := []byte("decoy " + f.Marker)
	file, err := os.CreateTemp("/tmp", "boxprobe")
	if err != nil {
		return unclear("write the decoy: %v", errno(err))
	}
	defer os.Remove(file.Name())
	_, err = file.Write(decoy)
	file.Close()
	if err != nil {
		return unclear("write the decoy: %v", errno(err))
	}
	roots := append([]string{f.WorkDir, f.BotDir, f.DataDir, os.Getenv("HOME"),
		"/tmp", "/var/tmp", "/run", "/etc", "/proc"}, f.ScanExtra...)
	s := scan{needles: [][]byte{key, decoy}, found: make([]string, 2)}
	if err := s.search(roots); err != nil {
		return unclear("%v", err)
	}
	switch {
	case s.found[0] != "":
		return fail("%s holds it", s.found[0])
	case s.found[1] == "":
		return unclear("the search finds not even the decoy")
	}
	return pass("none of %d files holds it", s.files)
}

// base gives the path of the broker's address and the token in it.
func (f *Fixture) base() (path, token string, ok bool) {
	if f.BaseName == "" || f.BrokerPort == 0 {
		return "", "", false
	}
	host := fmt.Sprintf("http://127.0.0.1:%d", f.BrokerPort)
	path, ok = strings.CutPrefix(os.Getenv(f.BaseName), host)
	rest, below := strings.CutPrefix(path, "/b/")
	token, _, _ = strings.Cut(rest, "/")
	if !ok || !below || !strings.HasPrefix(token, tokenPrefix) {
		return "", "", false
	}
	return strings.TrimSuffix(path, "/"), token, true
}

func baseIsBroker(f *Fixture) Result {
	if f.BaseName == "" || f.KeyName == "" {
		return unclear("the fixture names no variable")
	}
	if os.Getenv(f.BaseName) == "" || os.Getenv(f.KeyName) == "" {
		return fail("%s or %s is not set", f.BaseName, f.KeyName)
	}
	if _, _, ok := f.base(); !ok {
		return fail("%s is not the broker's address", f.BaseName)
	}
	if !strings.HasPrefix(os.Getenv(f.KeyName), tokenPrefix) {
		return fail("%s holds no token", f.KeyName)
	}
	return pass("%s is the broker's address, %s holds a token", f.BaseName, f.KeyName)
}

func tokenCall(f *Fixture, id string) Result {
	path, _, ok := f.base()
	if !ok || f.Call == "" || f.UpstreamOK == "" {
		return unclear("there is no broker's address, or the fixture names no call")
	}
	a, err := get(f.BrokerPort, path+f.call(id)+"&key=boxprobe-own",
		"Authorization: Bearer boxprobe-own", "x-api-key: "+os.Getenv(f.KeyName), "Cookie: boxprobe=own")
	switch {
	case err != nil:
		return fail("the broker does not answer: %v", errno(err))
	case a.status != 200:
		return fail("the broker answers %d", a.status)
	case !strings.Contains(a.text, f.UpstreamOK):
		return fail("the answer is not the one that the upstream gives to the real key")
	}
	return pass("answered by the upstream")
}

func wrongToken(f *Fixture) Result {
	path, token, ok := f.base()
	if !ok {
		return unclear("there is no broker's address")
	}
	// One that is wrong from its beginning, and one that is right but for its
	// end. The very last letter is not all of a token's.
	wrong := tokenPrefix + strings.Repeat("A", len(token)-len(tokenPrefix))
	other := []byte(token)
	if at := len(other) - 2; other[at] == 'A' {
		other[at] = 'B'
	} else {
		other[at] = 'A'
	}
	return refusedCall(f, "B5", 401, strings.Replace(path, token, wrong, 1), strings.Replace(path, token, string(other), 1))
}

func ungranted(f *Fixture) Result {
	_, token, ok := f.base()
	if !ok || f.Ungranted == "" {
		return unclear("there is no broker's address, or the fixture names no grant")
	}
	return refusedCall(f, "B6", 403, "/b/"+token+"/"+f.Ungranted)
}

func refusedCall(f *Fixture, id string, want int, paths ...string) Result {
	if r := f.answered(id); r.Verdict != Pass {
		return r
	}
	for _, path := range paths {
		a, err := get(f.BrokerPort, path+f.call(id+refusedTag))
		switch {
		case err != nil:
			return unclear("the broker does not answer: %v", errno(err))
		case a.status != want:
			return fail("the broker answers %d, want %d", a.status, want)
		}
	}
	return pass("the broker answers %d", want)
}
