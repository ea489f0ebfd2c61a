#!/bin/sh
# figures.sh - say how large an image is, how soon its first box stands, and what
# the supervisor and its worker hold at rest.
#
#   figures.sh CONTAINER IMAGE [FLAG…]
#
# CONTAINER is docker or podman, with options if need be; FLAG is for its run.
# The image is started; what is started ends.
set -eu
[ $# -ge 2 ] || {
	printf 'figures.sh: say what starts containers, and the image\nhint: figures.sh docker botbox\n' >&2
	exit 1
}
container=$1 image=$2
shift 2
flags="--cap-add SYS_ADMIN --security-opt seccomp=$(dirname -- "$0")/../../init/docker-seccomp.json
--security-opt systempaths=unconfined --security-opt apparmor=unconfined"

# Unquoted on purpose: one word an option.
# shellcheck disable=SC2086
size=$($container image inspect --format '{{.Size}}' "$image")

# From before the supervisor's first moment to the first one of a program in a
# box; the best of five, for the machine does other things, too.
best=
for _ in 1 2 3 4 5; do
	# shellcheck disable=SC2086
	took=$($container run --rm $flags "$@" --entrypoint /bin/sh "$image" -c \
		'from=$(date +%s%N); to=$(/usr/libexec/botbox/botbox-supervisor -- date +%s%N) && echo $(((to - from) / 1000))')
	if [ -z "$best" ] || [ "$took" -lt "$best" ]; then best=$took; fi
done

# shellcheck disable=SC2086
id=$($container run --detach $flags "$@" "$image")
# shellcheck disable=SC2086
trap '$container rm --force "$id" >/dev/null' EXIT
# At rest: after the self-check of its start. The kernel keeps 15 letters of a
# name.
# shellcheck disable=SC2086,SC2016
rest=$($container exec --privileged "$id" sh -c '
	for _ in $(seq 60); do
		if botbox report --json 2>/dev/null | grep -q "\"verdict\":\"pass\""; then
			sleep 2
			cat $(grep -lE "^botbox(-supervis)?$" /proc/[0-9]*/comm | sed s/comm/smaps_rollup/) | sed -n "s/^Pss: *\([0-9]*\) kB/\1/p"
			exit
		fi
		sleep 0.5
	done
	exit 1')
# shellcheck disable=SC2086
printf '%s\n' $rest | awk -v size="$size" -v best="$best" '
	{ n++; kB += $1 }
	END {
		if (n != 2) { print "figures.sh: " n " processes are at rest, not two" >"/dev/stderr"; exit 1 }
		printf "the image is %.0f MB, the first box stands after %.0f ms, supervisor and worker hold %.1f MB at rest\n", size / 1e6, best / 1e3, kB / 1e3
	}'
