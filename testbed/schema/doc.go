// Package schema holds the files of init/ to the types of those who read them:
// Kubernetes' own types, Docker's own filter of system calls, Fly's settings.
//
// Zone: none; tests only, in a module of its own.
//
// Given: the files of init/.
//
// Authority: the test's own.
//
// Refuses: fields that no type has.
package schema
