#!/bin/sh
# package.sh - make a Debian package of what `make install` installs, and print
# its file.
#
#   init/debian/package.sh FOLDER [VERSION]      or: make deb
#
# Two runs on one commit give the same bytes: every date is SOURCE_DATE_EPOCH,
# the commit's if it is not set (without git: CHANGELOG.md's). The version is the commit's day and name if
# none is given. DEBFULLNAME and DEBEMAIL say who vouches for the package, as
# for Debian's own tools.
set -eu
export LC_ALL=C TZ=UTC
umask 022

fail() {
	printf 'package.sh: %s\n' "$1" >&2
	printf 'hint: %s\n' "$2" >&2
	exit 1
}

[ $# -ge 1 ] || fail "say where the package shall be" "init/debian/package.sh bin"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
top=$(CDPATH='' cd -- "$here/../.." && pwd)
mkdir -p "$1"
out=$(CDPATH='' cd -- "$1" && pwd)
for tool in dpkg-deb dpkg gzip md5sum; do
	command -v "$tool" >/dev/null || fail "$tool is not installed" "make the package on Debian or Ubuntu"
done

export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct 2>/dev/null || stat -c %Y "$top/CHANGELOG.md")}"
build=${BUILD:-$(git -C "$top" rev-parse --short=12 HEAD 2>/dev/null || echo dev)}
# Older than any release, and newer with each day.
version=${2:-0~$(date -d "@$SOURCE_DATE_EPOCH" +%Y%m%d.%H%M%S).$build}
arch=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-whoever built it} <${DEBEMAIL:-botbox@localhost.localdomain}>"

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
tree=$work/botbox
doc=$tree/usr/share/doc/botbox
mkdir "$tree"
make -s -C "$top" install DESTDIR="$tree" BUILD="$build" >&2

# What Debian's rules want beside it.
install -d -m 755 "$doc/examples" "$tree/usr/share/lintian/overrides" "$tree/DEBIAN"
gzip -9n "$tree/usr/share/man/man1/botbox.1"
gzip -9nc "$top/CHANGELOG.md" >"$doc/NEWS.gz"
gzip -9nc >"$doc/changelog.gz" <<END
botbox ($version) unstable; urgency=medium

  * Build $build; NEWS.gz says what is in it.

 -- $maintainer  $(date -R -d "@$SOURCE_DATE_EPOCH")
END
install -m 644 "$top/init/apparmor/bwrap" "$doc/examples/apparmor-bwrap"
install -m 644 "$here/lintian-overrides" "$tree/usr/share/lintian/overrides/botbox"

# The programs are static, so they carry others' code: each licence goes along.
{
	cat <<END
botbox is under the Apache License, version 2.0; on Debian systems its text is
in /usr/share/common-licenses/Apache-2.0.

Copyright: the authors of botbox.

The programs are linked with the following, under these licences.
END
	{
		go version -m "$tree"/usr/libexec/botbox/* | awk '$1 == "dep" { print $2 }' | sort -u | while read -r module; do
			printf '%s %s\n' "$module" "$(cd "$top" && go list -m -f '{{.Dir}}' "$module")"
		done
		printf 'Go %s\n' "$(go env GOROOT)"
	} | while read -r name dir; do
		licence=$dir/LICENSE
		[ -f "$licence" ] || licence=$dir/LICENSE.md
		[ -f "$licence" ] || fail "$name has no LICENSE in $dir" "look for it under another name, and teach package.sh"
		printf '\n\n%s\n\n' "$name"
		# Debian says where this one is, and does not want it again.
		if grep -q 'Apache License' "$licence"; then
			echo "Apache License, version 2.0: /usr/share/common-licenses/Apache-2.0."
			[ ! -f "$dir/NOTICE" ] || cat "$dir/NOTICE"
		else
			cat "$licence"
		fi
	done
} >"$doc/copyright"

size=$(find "$tree" -type f -printf '%s\n' | awk '{ n += int(($1 + 1023) / 1024) } END { print n }')
sed -e "s|@VERSION@|$version|" -e "s|@ARCH@|$arch|" -e "s|@MAINTAINER@|$maintainer|" -e "s|@SIZE@|$size|" \
	"$here/control" >"$tree/DEBIAN/control"
for script in postinst prerm postrm; do
	install -m 755 "$here/$script" "$tree/DEBIAN/$script"
done
(cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"

# dpkg-deb cuts dates that are later than SOURCE_DATE_EPOCH, and only those.
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
package=$out/botbox_${version}_$arch.deb
dpkg-deb --root-owner-group -Zxz --build "$tree" "$package" >&2
printf '%s\n' "$package"
