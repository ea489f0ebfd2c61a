#!/bin/sh
# make.sh - make what the virtual machine of the tests is started from, and
# print the folder that it is in: vmlinuz, modules/, root.img, versions.
#
#   testbed/vm/make.sh [trixie|bookworm]
#
# The root file system is Debian's smallest with what a box needs, the kernel
# is the same Debian's for cloud machines; both come through apt from wherever
# this machine's mmdebstrap gets Debian (MMDEBSTRAP_MIRROR names another
# mirror). Nothing is installed here. The cache folder is <repository>/.cache/vm,
# or BOTBOX_VM_DIR; a second run finds everything there and does nothing. It
# is made anew when this recipe changes. What is done is said on stderr.
set -eu
export LC_ALL=C

suite=${1:-trixie}
packages=bubblewrap,util-linux,mount,procps,apparmor
# What the disk and vsock need. Some kernels have some of it built in.
modules='virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk
vsock vmw_vsock_virtio_transport_common vmw_vsock_virtio_transport vsock_loopback'

say() { printf 'make.sh: %s\n' "$1" >&2; }
fail() {
	say "$1"
	printf 'hint: %s\n' "$2" >&2
	exit 1
}

case $suite in
trixie | bookworm) ;;
*) fail "there is no recipe for $suite" "known: trixie, bookworm" ;;
esac
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
cache=${BOTBOX_VM_DIR:-$here/../../.cache/vm}
mkdir -p "$cache"
cache=$(CDPATH='' cd -- "$cache" && pwd)
final=$cache/$suite-$(sha256sum <"$here/make.sh" | cut -c1-12)

if [ -e "$final/versions" ]; then
	printf '%s\n' "$final"
	exit 0
fi

[ "$(id -u)" -eq 0 ] || fail "the owners of the files need root" "run it as root, once"
for tool in mmdebstrap mke2fs dpkg-deb; do
	command -v "$tool" >/dev/null || fail "$tool is not installed" "run testbed/setup.sh test"
done
# The folder ignores itself, so no clean checkout ever offers it to git.
[ -e "$cache/.gitignore" ] || printf '*\n' >"$cache/.gitignore"
# Made aside and renamed: a broken download never looks finished.
work=$(mktemp -d "$cache/.new.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
chmod 755 "$work"

say "making a Debian $suite with its cloud kernel in $final (some minutes, once)"
# The hook asks the new system's own apt which kernel is the newest, and takes
# the package without installing it: no boot loader, no initramfs of Debian's.
# shellcheck disable=SC2016
mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" \
	--customize-hook='chroot "$1" useradd --system --create-home --shell /usr/sbin/nologin maus' \
	--customize-hook='cd "'"$work"'" && export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" &&
		kernel=$(apt-cache depends "linux-image-cloud-$(dpkg --print-architecture)" | sed -n "s/^ *Depends: \(linux-image-[0-9].*\)/\1/p" | head -n 1) &&
		apt-get -qq -o APT::Sandbox::User=root download "$kernel"' \
	"$suite" "$work/root" ${MMDEBSTRAP_MIRROR:+"$MMDEBSTRAP_MIRROR"} >&2 ||
	fail "mmdebstrap could not make the root file system" "see its own lines above"

dpkg-deb -x "$work"/linux-image-*.deb "$work/kernel"
cp "$work"/kernel/boot/vmlinuz-* "$work/vmlinuz"
mkdir "$work/modules"
for module in $modules; do
	find "$work/kernel" -name "$module.ko*" -exec cp {} "$work/modules/" \;
done
truncate -s 700M "$work/root.img"
mke2fs -q -t ext4 -O '^has_journal,^metadata_csum' -d "$work/root" "$work/root.img" >&2
{
	basename "$work"/linux-image-*.deb .deb
	chroot "$work/root" dpkg-query -W -f '${Package} ${Version}\n' bubblewrap apparmor
} >"$work/versions"
rm -rf "$work/root" "$work/kernel" "$work"/*.deb
chmod -R a+rX "$work"
rm -rf -- "$final"
mv -- "$work" "$final"
trap - EXIT
printf '%s\n' "$final"
