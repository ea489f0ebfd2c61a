// Package image builds the repository's Dockerfile and runs what comes of it,
// with buildah, podman and runc as Debian has them, without an engine's daemon
// and without a network.
//
// Zone: none; tests only.
//
// Given: root, the tools, and a base image that make.sh makes.
//
// Authority: containers in a storage of its own that goes when the tests end.
// What runc makes of cgroups for a container goes with the container.
//
// Refuses: to read this machine's own images and containers, or to pull any.
package image
