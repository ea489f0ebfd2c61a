#!/bin/sh
# enter.sh - run a command in a fresh machine. It is the first process of
# namespaces of its own (unshare --mount --pid --fork --propagation private).
#
#   enter.sh FOLDER LOWER CMD…
#
# In FOLDER are upper, work and var-tmp, which keep what is written, and an empty root;
# LOWER is what lies under them, as overlayfs names it. From this machine come
# the kernel, the network, and in /srv/lent the Go tree (GOROOT), the modules
# (GOMODCACHE), a copy of what Go compiled before (GOCACHE) and the roots.
set -eu
dir=$1 lower=$2 root=$1/root
shift 2

mount -t overlay -o "lowerdir=$lower,upperdir=$dir/upper,workdir=$dir/work" overlay "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
# Not recursive: no cgroups of this machine. The beds of containers and of
# systemd need some, there as here.
mount --bind /sys "$root/sys"
mount -o remount,bind,ro "$root/sys"
[ "${BOTBOX_FRESH-}" != all ] || mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
	: >"$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for row in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${row%:*}" "$root/dev/${row#*:}"; done
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
# No overlay: podman makes one of its own there.
mount --bind "$dir/var-tmp" "$root/var/tmp"
chmod 1777 "$root/var/tmp"

mkdir -p "$root/srv/lent/go" "$root/srv/lent/modules" "$root/srv/lent/compiled"
mount --bind "$GOROOT" "$root/srv/lent/go"
mount --bind "$GOMODCACHE/cache/download" "$root/srv/lent/modules"
mount -t overlay -o "lowerdir=$GOCACHE,upperdir=$dir/compiled/upper,workdir=$dir/compiled/work" overlay "$root/srv/lent/compiled"
# The roots that this machine trusts belong to its network.
roots=/etc/ssl/certs/ca-certificates.crt
[ -e "$roots" ] || roots=/dev/null
: >"$root/srv/lent/roots.pem"
mount --bind "$roots" "$root/srv/lent/roots.pem"
# Whoever works in there may add to the copy.
find "$root/srv/lent/compiled" -maxdepth 1 -type d -exec chmod 1777 {} +
# Bound, not written: no file of this machine's is left in the tree.
for file in resolv.conf hosts; do
	[ -e "$root/etc/$file" ] || : >"$root/etc/$file"
	mount --bind "/etc/$file" "$root/etc/$file"
done

cd "$root"
pivot_root . mnt
umount -l /mnt
cd /
exec env -i PATH=/srv/lent/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
	GOTOOLCHAIN=local GOPROXY=file:///srv/lent/modules GOCACHE=/srv/lent/compiled NODE_EXTRA_CA_CERTS=/srv/lent/roots.pem BOTBOX_MUST_RUN=1 "$@"
