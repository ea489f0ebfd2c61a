package main

import (
	"bytes"
	"os"
	"slices"
	"strconv"
)

func environmentRows() []Check {
	mutation := []string{"env-all"}
	const control = "outside: the names were set where the box was asked for; inside: BOTBOX is set"
	return []Check{
		{"E02", environ, full, "look for names by which loaders, shells and interpreters run what they are told", "absent", mutation, control,
			func(f *Fixture) Result { return absent(f.EnvLoaders, "") }},
		{"E05", environ, full, "look for the sockets of agents, of D-Bus and of displays", "absent", mutation, control,
			func(f *Fixture) Result { return absent(f.EnvAgents, "") }},
		{"E06", environ, full, "look for two hundred names that nobody has heard of", "absent", mutation, control,
			func(f *Fixture) Result { return absent(f.EnvRandom, "") }},
		{"E03", environ, full, "read the names that every box has: the proxies in both letter cases, HOME, PATH, a listed one of the caller's",
			"their values", []string{"env-none"}, "inside: BOTBOX is set", listedPresent},
		{"E04", environ, full, "look for our token, and for what the key is, in the command line of every process", "absent", []string{"argv-secrets"},
			"inside: the token is in our environment; our own command line can be read, and PID 1's", nothingInArgv},
	}
}

// listedPresent wants the egress gate in every name that a client may read.
func listedPresent(f *Fixture) Result {
	if os.Getenv("BOTBOX") != "1" {
		return unclear("BOTBOX is not set: this environment is not a box's")
	}
	if f.EgressPort == 0 || f.EnvListed == "" {
		return unclear("the fixture names no gate or no variable")
	}
	gate := "http://127.0.0.1:" + strconv.Itoa(f.EgressPort)
	var missing []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		if os.Getenv(name) != gate {
			missing = append(missing, name)
		}
	}
	for _, name := range []string{"HOME", "PATH", "NO_PROXY", "no_proxy", "TMPDIR"} {
		if os.Getenv(name) == "" {
			missing = append(missing, name)
		}
	}
	if os.Getenv(f.EnvListed) != f.Marker {
		missing = append(missing, f.EnvListed)
	}
	if len(missing) > 0 {
		return fail("not as they must be: %s", listed(missing))
	}
	return pass("twelve are as they must be")
}

// nothingInArgv reads what every user of the machine can read of a process.
func nothingInArgv(f *Fixture) Result {
	token := os.Getenv(f.KeyName)
	key, err := f.key()
	if f.KeyName == "" || token == "" || err != nil || len(key) == 0 {
		return unclear("there is no token in our environment, or no key in the fixture")
	}
	tree, err := readTree()
	if err != nil {
		return unclear("list processes: %v", err)
	}
	if own := cmdline(os.Getpid()); len(own) == 0 || len(cmdline(1)) == 0 {
		return unclear("our own command line cannot be read, or PID 1's")
	}
	for pid := range tree {
		line := cmdline(pid)
		if slices.ContainsFunc([][]byte{[]byte(token), key}, func(secret []byte) bool { return bytes.Contains(line, secret) }) {
			return fail("process %d has one of them", pid)
		}
	}
	return pass("in none of %d", len(tree))
}
