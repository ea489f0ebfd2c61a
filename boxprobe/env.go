package main

import (
	"os"
	"strings"
)

func envChecks() []Check {
	mutation := []string{"env-all"}
	const control = "outside: the names were set where the box was asked for; inside: BOTBOX is set"
	return []Check{
		{"E1", environ, seed, "look for settings of a Cloud home", "no name begins with OMB_CLOUD_", mutation, control,
			func(f *Fixture) Result { return absent(f.EnvCloud, "OMB_CLOUD_") }},
		{"E2", environ, seed, "look for workspace credentials", "absent", mutation, control,
			func(f *Fixture) Result { return absent(f.EnvCredentials, "") }},
		{"E3", environ, seed, "look for names that no list has", "absent", mutation, control,
			func(f *Fixture) Result { return absent(f.EnvUnlisted, "") }},
	}
}

// absent looks for names, in any letter case, and for a prefix, both in our
// environment and in the one that the kernel shows to others.
func absent(names []string, prefix string) Result {
	if len(names) == 0 {
		return unclear("the fixture names no variable")
	}
	shown, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return unclear("read our environment: %v", errno(err))
	}
	if os.Getenv("BOTBOX") != "1" || !strings.Contains("\x00"+string(shown), "\x00BOTBOX=1\x00") {
		return unclear("BOTBOX is not set: this environment is not a box's")
	}
	for _, entry := range append(os.Environ(), strings.Split(string(shown), "\x00")...) {
		name, _, _ := strings.Cut(entry, "=")
		if prefix != "" && strings.HasPrefix(strings.ToUpper(name), prefix) {
			return fail("%s is set", name)
		}
		for _, forbidden := range names {
			if strings.EqualFold(name, forbidden) {
				return fail("%s is set", name)
			}
		}
	}
	return pass("none of %d names is set", len(names))
}
