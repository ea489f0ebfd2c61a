package spec

// checkBrowser holds a browser's box to what a browser needs: a profile, and
// nothing else of the machine's files. What belongs to one kind is refused for
// the other.
func (s *Spec) checkBrowser() error {
	if s.Kind != "browser" {
		switch {
		case s.Net.Mode == "shared":
			return bad("field net.mode: shared is for kind browser only")
		case s.Browser != Browser{}:
			return bad("field browser belongs to kind browser, and to no other")
		}
		return nil
	}
	for field, given := range map[string]bool{
		"engine":                s.Engine != "none",
		"cwd":                   s.Cwd != "",
		"home.mode":             s.Home.Mode != "private",
		"paths.rw":              len(s.Paths.RW) > 0,
		"paths.ro":              len(s.Paths.RO) > 0,
		"paths.argv_files":      len(s.Paths.ArgvFiles) > 0,
		"paths.perm_socket_dir": s.Paths.PermSocketDir != "",
		"broker.keys":           len(s.Broker.Keys) > 0,
		"net.harness.upstream":  s.Net.Harness.Upstream != "",
	} {
		if given {
			return bad("field %s is not for kind browser, whose box has a profile and nothing else", field)
		}
	}
	if s.Browser.Profile != nil && !isCleanPath(*s.Browser.Profile) {
		return bad("field browser.profile: it is not an absolute path without . .. // and NUL")
	}
	return nil
}
