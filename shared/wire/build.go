package wire

// Build names the build that a program comes from. The Makefile sets it with
// -ldflags "-X …/shared/wire.Build=…"; programs of different builds refuse one
// another (reason version-skew).
var Build = "dev"
