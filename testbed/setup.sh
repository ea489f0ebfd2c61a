#!/bin/sh
# setup.sh - make a Debian or Ubuntu machine ready for botbox.
#
#   testbed/setup.sh run     what a box needs to run
#   testbed/setup.sh test    plus what the tests need
#
# It can be run again at any time: what is there is left alone, and when
# nothing is missing nothing is done and nothing is printed. Everything that it
# does is said on stderr first. It works as root, or through sudo.
set -eu

say() { printf 'setup.sh: %s\n' "$1" >&2; }
fail() {
	say "$1"
	printf 'hint: %s\n' "$2" >&2
	exit 1
}

# as_root CMD ARG...
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		# With no terminal sudo must not ask, it would wait for ever.
		if [ -t 0 ]; then sudo -- "$@"; else sudo -n -- "$@"; fi
	else
		fail "this needs root, and there is no sudo: $*" "run testbed/setup.sh as root"
	fi
}

# Rows: the command or file that shows that it is there, and its package.
# A command is sought in the sbin folders too: on Debian they are in root's
# PATH only.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
run_rows='bwrap bubblewrap
curl curl'
test_rows='setpriv util-linux
unshare util-linux
ip iproute2
curl curl
git git
gcc gcc
/usr/include/stdlib.h libc6-dev
socat socat
chromium chromium
node nodejs
npm npm
python3 python3
/usr/lib/python3/dist-packages/pip python3-pip
/usr/lib/python3/dist-packages/requests python3-requests
wget wget
ssh openssh-client
dropbear dropbear-bin
/usr/bin/cargo cargo
dpkg-deb dpkg
openssl openssl
gdb gdb
strace strace
javac default-jdk-headless
less less
script bsdutils
systemd-nspawn systemd-container
journalctl systemd
pgrep procps
mandoc mandoc
zsh zsh
fish fish
qemu-system-x86_64 qemu-system-x86
mmdebstrap mmdebstrap
/usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
mke2fs e2fsprogs
podman podman
buildah buildah
runc runc
catatonit catatonit'

# missing ROWS: the packages whose command or file is not there, each once.
missing() {
	printf '%s\n' "$1" | while read -r proof package; do
		case $proof in
		/*) [ -e "$proof" ] || printf '%s\n' "$package" ;;
		*) command -v "$proof" >/dev/null || printf '%s\n' "$package" ;;
		esac
	done | sort -u | tr '\n' ' ' | sed 's/ $//'
}

install_packages() {
	packages=$(missing "$1")
	[ -n "$packages" ] || return 0
	command -v apt-get >/dev/null ||
		fail "missing: $packages" "this script knows apt-get only; install them by hand"
	say "installing $packages"
	as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
	# The list is split on purpose: one word a package.
	# shellcheck disable=SC2086
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
		--no-install-recommends $packages >&2
	packages=$(missing "$1")
	[ -z "$packages" ] || fail "still missing: $packages" "see apt-get's own lines above"
}

# The account that the worker and every box runs as.
make_user() {
	if id maus >/dev/null 2>&1; then return 0; fi
	say "creating the user maus"
	as_root useradd --system --create-home --shell /usr/sbin/nologin maus
}

# Ubuntu from 23.10 on gives a user namespace without capabilities to every
# program that no profile names, and bubblewrap then cannot set up a loopback.
allow_userns() {
	# DESTDIR is for the script's own tests.
	switch=${DESTDIR-}/proc/sys/kernel/apparmor_restrict_unprivileged_userns
	[ -r "$switch" ] && [ "$(cat "$switch")" = 1 ] || return 0
	ours=$(dirname -- "$0")/../init/apparmor/bwrap
	profiles=${DESTDIR-}/etc/apparmor.d
	if cmp -s "$ours" "$profiles/bwrap"; then return 0; fi
	# Never over somebody else's file, nor beside another profile for the same
	# program: two profiles that attach to one path are a conflict.
	other=$(grep -lsE '^[[:space:]]*profile[[:space:]].*/usr/bin/bwrap' "$profiles"/* | head -n 1) || true
	# The one that is there decides, so there is nothing to do and to say.
	[ -z "$other" ] || return 0
	command -v apparmor_parser >/dev/null ||
		fail "AppArmor restricts user namespaces, and apparmor_parser is missing" "install the package apparmor"
	say "installing $profiles/bwrap, so that bubblewrap may make user namespaces"
	as_root install -m 0644 "$ours" "$profiles/bwrap"
	as_root apparmor_parser -r "$profiles/bwrap"
}

case ${1-} in
run) rows=$run_rows ;;
test) rows="$run_rows
$test_rows" ;;
*) fail "say which: run or test" "testbed/setup.sh run" ;;
esac
[ "$(uname -s)" = Linux ] || fail "a box needs Linux" "use a Linux machine"
install_packages "$rows"
make_user
allow_userns
