#!/bin/sh
# make.sh - make the base image of the image's tests, and print its tar file.
#
# It stands in for debian:trixie-slim, with the packages of our Dockerfile in it
# already and no place to get others from: the build then needs no network. It
# comes through apt from wherever this machine's mmdebstrap gets Debian
# (MMDEBSTRAP_MIRROR names another mirror). The cache folder is
# <repository>/.cache/image, or BOTBOX_IMAGE_DIR; a second run finds the file
# there and does nothing. It is made anew when this recipe changes. What is done
# is said on stderr.
set -eu
export LC_ALL=C

say() { printf 'make.sh: %s\n' "$1" >&2; }
fail() {
	say "$1"
	printf 'hint: %s\n' "$2" >&2
	exit 1
}

[ $# -eq 0 ] || fail "it takes no argument" "testbed/image/make.sh"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
cache=${BOTBOX_IMAGE_DIR:-$here/../../.cache/image}
mkdir -p "$cache"
cache=$(CDPATH='' cd -- "$cache" && pwd)
final=$cache/trixie-$(sha256sum <"$here/make.sh" | cut -c1-12).tar

if [ -e "$final" ]; then
	printf '%s\n' "$final"
	exit 0
fi

[ "$(id -u)" -eq 0 ] || fail "the owners of the files need root" "run it as root, once"
command -v mmdebstrap >/dev/null || fail "mmdebstrap is not installed" "run testbed/setup.sh test"
# The folder ignores itself, so no clean checkout ever offers it to git.
[ -e "$cache/.gitignore" ] || printf '*\n' >"$cache/.gitignore"
# Made aside and renamed: a broken download never looks finished.
work=$(mktemp -d "$cache/.new.XXXXXX")
trap 'rm -rf -- "$work"' EXIT

say "making a Debian trixie in $final (a minute or two, once)"
# Without manuals and translations, as the slim image is.
# shellcheck disable=SC2016
mmdebstrap --quiet --mode=root --variant=minbase --include=bubblewrap,ca-certificates \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--dpkgopt='path-exclude=/usr/share/lintian/*' \
	--customize-hook='rm -rf "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* "$1"/var/lib/apt/lists/*' \
	trixie "$work/base.tar" ${MMDEBSTRAP_MIRROR:+"$MMDEBSTRAP_MIRROR"} >&2 ||
	fail "mmdebstrap could not make the root file system" "see its own lines above"
chmod 644 "$work/base.tar"
mv -- "$work/base.tar" "$final"
printf '%s\n' "$final"
