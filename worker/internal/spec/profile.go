package spec

import (
	"path/filepath"
	"strings"
)

// checkSignin wants each of a team's folders at a place of its own.
func (h *Home) checkSignin() error {
	if len(h.Signin) > 0 && h.Mode != "engine" {
		return bad("field home.signin belongs to home.mode engine, and to no other")
	}
	for i, folder := range h.Signin {
		switch {
		case folder.Mode != "rw-dir":
			return bad("field home.signin: mode %q is not rw-dir", folder.Mode)
		case !isCleanPath(folder.From):
			return bad("field home.signin: %q is not an absolute path without . .. // and NUL", folder.From)
		case !filepath.IsLocal(folder.As) || filepath.Clean(folder.As) != folder.As || folder.As == "." || strings.ContainsRune(folder.As, 0):
			return bad("field home.signin: %q is not a clean path below the engine home", folder.As)
		}
		for _, other := range h.Signin[:i] {
			if overlap(folder.As, other.As) {
				return bad("field home.signin: %q and %q are one place, or one is in the other", folder.As, other.As)
			}
		}
	}
	return nil
}

func overlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// checkProfile refuses what would bring in again what a profile takes away.
func (s *Spec) checkProfile() error {
	if s.Profile.Keys != "none" {
		return nil
	}
	for name, value := range s.Env {
		if value.Ref != "" {
			return bad("field env: %q is a secret, and profile.keys is none", name)
		}
	}
	for field, given := range map[string]bool{
		"broker.keys": len(s.Broker.Keys) > 0,
		"broker.mcp":  len(s.Broker.MCP) > 0,
		"home.mode":   s.Home.Mode != "private", // engines keep their sign-in in HOME
	} {
		if given {
			return bad("field %s brings keys in, and profile.keys is none", field)
		}
	}
	return nil
}
