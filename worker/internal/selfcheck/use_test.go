package selfcheck

// mutatedUse is what each mutation must break of the checks that use the
// filter, the gates, the broker and the limits, beside what the other two name.
var mutatedUse = map[string]string{
	shareNet:     "N02 N04 N07 N09 N15 N16 N17",
	"broker-off": "B07 B08 B09 B10 B11 B12 B13 B14",
	"no-limits":  "L05 L06 L07",

	"seccomp-off":       "S01 S02 S03 S04 S05 S07 S08 S09 S10 S11 S12 S13 S17 S18 N06 P10",
	"seccomp-seed-only": "S02 S03 S04 S05 S11 S12 S13 S17 S18 N06 P10",
	"no-arch-kill":      "S07",
	"no-x32-kill":       "S08",
	"allow-mount":       "S01",
	"allow-keyring":     "S01 S10",
	"allow-uring":       "S02 S03",
	"clone3-eperm":      "S02 S04",
	"vsock-allowed":     "S11 N06",
	"netlink-open":      "S12",
	"pairs-open":        "S18",
	"old-personality":   "S13",
	"no-tty-rule":       "P10",
	"allow-userns":      "S05 S06 S17",
	"deny-too-much":     "S14",

	"no-egress":            "N10 N11 N12 N13 N19 N20",
	"egress-open":          "N11 N12 N19 N20",
	"egress-resolve-twice": "N12",
	"no-conn-cap":          "N13",
	"no-harness":           "N14 N15",
	"harness-open":         "N15",
	"listener-released":    "N08 N09 N14 N15",
	"no-relay":             "N17",
	"fd-hold":              "N18",
	"keep-score":           "L04",
	"broker-host":          "B07",
	"broker-no-revoke":     "B08",
	"broker-reflect":       "B09",
	"broker-unbound":       "B10",
	"broker-any-path":      "B11",
	"broker-any-method":    "B12",
	"broker-follow":        "B13",
	"broker-pathless":      "B14",
}
