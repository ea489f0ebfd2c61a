package main

// unbroken are the checks that no mutation of botbox check breaks, and by which
// test each is seen to fail all the same.
var unbroken = map[string]struct{ why, shown string }{
	"F18": {"bubblewrap has no option that lets a setuid bit count", "boxprobe.TestWithoutABox"},
	"P15": {"bubblewrap has no option without no_new_privs", "boxprobe.TestWithoutABox"},
	"M04": {"a worker without privileges cannot make one that kept them", "worker/internal/selfcheck.TestWorkerItself"},
}

// outsideRows are tried by botbox check itself, for a box has no part in them:
// what the worker makes of a hostile bot's folders and specs, and what can be
// seen of the box from outside. They stand here so that there is one table.
func outsideRows() []Check {
	return []Check{
		{"F22", mounts, full, "ask for a box whose sign-in folder is a link that an earlier turn planted", "refused",
			[]string{"no-dest-check"}, "outside: the same box with a folder there is prepared", nil},
		{"F24", mounts, full, "ask for a box with a FIFO, a socket, a device and a link in place of a file", "refused within a second",
			[]string{"no-safe-open"}, "outside: the same box with a plain file is prepared", nil},
		{"F25", writable, full, "leave hooks, settings and programs in the bot's folders that others would run", "none has run when the box has ended",
			[]string{"worker-runs-git"}, "outside: one of them leaves its mark when it is run", nil},
		{"F26", writable, full, "look for files and folders that the box's mounts left in the bot's folders", "none",
			[]string{"litter"}, "outside: what the probe wrote there is found", nil},
		{"N18", netNS, full, "look for the box's listeners among the worker's open files when the box has ended", "none within a second, so that its network is gone",
			[]string{"fd-hold"}, "outside: three of them were there while it ran", nil},
		{"B15", broker, full, "call with the box's token when its engine has ended", "401",
			[]string{"token-lives"}, "outside: it was good before the engine ran", nil},
		{"P05", privileges, full, "read the environment of bubblewrap and of PID 1, and PID 1's open files", "empty; none but stdio and its eventfd",
			[]string{"outer-env", "share-pid"}, "outside: the engine's environment can be read", nil},
		{"P12", pidNS, full, "kill the process that started a box", "the box is gone within a second", []string{"no-die"},
			"outside: its engine runs before", nil},
		{"M03", mounts, full, "look at the bubblewrap that makes the boxes", "not setuid, no file capabilities, closed to our writing",
			[]string{"setuid-bwrap"}, "outside: it is a file and can be run", nil},
		{"M04", worker, full, "read the worker's own capabilities, user, no_new_privs and dumpable", "nothing in any set that counts, not root, 1, 0",
			nil, "outside: all lines are found", nil},
		{"M05", worker, full, "read the worker's environment, memory map and files as another process of its user", "EACCES",
			[]string{"worker-open"}, "outside: the same can be read of the canary", nil},
	}
}
