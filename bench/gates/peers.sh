#!/bin/sh
# peers.sh - fetch the proxies that the gates are measured against, by name,
# and print the folder that they are in.
#
# The Go ones are built as their modules are published. The Debian ones are
# unpacked and not installed: an installed squid would be started, now and at
# each boot. The cache folder is <repository>/.cache/peers; a second run finds
# them there and does nothing. What is done is said on stderr.
set -eu

say() { printf 'peers.sh: %s\n' "$1" >&2; }
fail() {
	say "$1"
	printf 'hint: %s\n' "$2" >&2
	exit 1
}

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cache=$here/../../.cache
smokescreen=v0.1.0
goproxy=v1.9.4
final=$cache/peers-$smokescreen-$goproxy

if [ ! -d "$final" ]; then
	command -v go >/dev/null || fail "go is not installed" "install Go"
	command -v apt-get >/dev/null || fail "this script knows apt-get only" "use Debian or Ubuntu"
	mkdir -p "$cache"
	# Made aside and renamed: what is broken never looks finished.
	work=$(mktemp -d "$cache/.new.XXXXXX")
	trap 'chmod -R u+w -- "$work"; rm -rf -- "$work"' EXIT
	say "building smokescreen $smokescreen and goproxy $goproxy"
	GOBIN=$work go install "github.com/stripe/smokescreen@$smokescreen" >&2
	mkdir "$work/src" "$work/debs" "$work/debs/partial" "$work/root"
	cat >"$work/src/main.go" <<-'GO'
		package main

		import (
			"net/http"
			"os"

			"github.com/elazarl/goproxy"
		)

		func main() { panic(http.ListenAndServe(os.Args[1], goproxy.NewProxyHttpServer())) }
	GO
	(
		cd "$work/src"
		go mod init peer && go get "github.com/elazarl/goproxy@$goproxy" && go build -o ../goproxy .
	) >&2
	say "fetching squid and tinyproxy from the distribution's packages"
	(
		cd "$work/debs"
		# --reinstall, or a package that is installed would not be fetched.
		apt-get -qq -o Dir::Cache::Archives="$PWD" -o Debug::NoLocking=1 -o APT::Sandbox::User=root \
			install --reinstall --download-only -y --no-install-recommends squid squid-common tinyproxy-bin
	) >&2 || fail "apt-get could not fetch squid and tinyproxy-bin" "run apt-get update as root"
	for deb in "$work"/debs/*.deb; do
		dpkg-deb -x "$deb" "$work/root"
	done
	rm -rf "$work/src" "$work/debs"
	chmod -R a+rX "$work"
	mv -- "$work" "$final"
	trap - EXIT
fi
printf '%s\n' "$final"
