// Package fresh tries what a newcomer does in a Debian on which nothing is
// installed: the README's two commands, the Debian package, the page for a
// laptop.
//
// Zone: none; tests only.
//
// Given: root, and root file systems that testbed/image/make.sh makes. The Go
// tree and the modules are this machine's, packages come through apt.
//
// Authority: mount and process namespaces of its own, over a copy of the root
// file system that goes when the test ends. What `make test` installs is kept
// under the cache folder until the list of it changes.
//
// Refuses: to touch this machine's own packages, files or cgroups.
package fresh
