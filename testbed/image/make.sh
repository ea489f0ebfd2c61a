#!/bin/sh
# make.sh - make a root file system of Debian's for the tests, and print its tar
# file.
#
#   testbed/image/make.sh slim        the base of the image
#   testbed/image/make.sh trixie      a fresh Debian 13, as testbed/fresh needs it
#   testbed/image/make.sh bookworm    a fresh Debian 12
#
# The first stands in for debian:trixie-slim, with the packages of our Dockerfile
# in it already and no place to get others from: the build then needs no network.
# The fresh ones have what every Debian has, the distribution's places to get
# packages from, and make. All come through apt from wherever this machine's
# mmdebstrap gets Debian (MMDEBSTRAP_MIRROR names another mirror). The cache folder is
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

case ${1-} in
slim) suite=trixie packages=bubblewrap,ca-certificates ;;
trixie | bookworm) suite=$1 packages=make,ca-certificates ;;
*) fail "there is no recipe for ${1:-nothing}" "known: slim, trixie, bookworm" ;;
esac
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
cache=${BOTBOX_IMAGE_DIR:-$here/../../.cache/image}
mkdir -p "$cache"
cache=$(CDPATH='' cd -- "$cache" && pwd)
final=$cache/$1-$(sha256sum <"$here/make.sh" | cut -c1-12).tar

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

say "making a Debian $suite in $final (a minute or two, once)"
if [ "$1" = slim ]; then
	# Without manuals and translations, as the slim image is.
	# shellcheck disable=SC2016
	set -- --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--dpkgopt='path-exclude=/usr/share/lintian/*' \
		--customize-hook='rm -rf "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* "$1"/var/lib/apt/lists/*'
else
	# shellcheck disable=SC2016
	set -- --customize-hook='rm -rf "$1"/var/lib/apt/lists/*'
fi
mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" "$@" \
	"$suite" "$work/base.tar" ${MMDEBSTRAP_MIRROR:+"$MMDEBSTRAP_MIRROR"} >&2 ||
	fail "mmdebstrap could not make the root file system" "see its own lines above"
chmod 644 "$work/base.tar"
mv -- "$work/base.tar" "$final"
printf '%s\n' "$final"
