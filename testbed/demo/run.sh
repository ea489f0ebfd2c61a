#!/bin/sh
# run.sh - what `make run` does.
#
#   run.sh                   the demonstration: a stand-in model, a worker, a
#                            box, three doors, the self-check
#   run.sh ARGS...           botbox run ARGS...
#
# It needs no network and no key. As root, the box's user is maus.
set -eu
top=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
bin=$top/bin

# as_user CMD ARG...: as the user that boxes run as.
user=$(id -un)
[ "$user" != root ] || user=maus
as_user() {
	if [ "$(id -u)" -eq 0 ]; then
		setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups env HOME="$scratch/home" "$@"
	else
		"$@"
	fi
}

# A place of this run's own, that the user can reach and that goes with it.
scratch=$(mktemp -d /tmp/botbox.XXXXXX)
worker='' standin=''
clean_up() {
	status=$?
	for pid in $worker $standin; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	rm -rf -- "$scratch"
	exit $status
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
mkdir -m 700 "$scratch/work" "$scratch/run" "$scratch/state" "$scratch/home"
chmod 755 "$scratch"
[ "$(id -u)" -ne 0 ] || chown "$user" "$scratch/work" "$scratch/run" "$scratch/state" "$scratch/home"

# A checkout in /root is closed to the user: take the programs along.
if ! as_user test -x "$bin/botbox"; then
	mkdir -m 755 "$scratch/bin"
	cp "$bin"/* "$scratch/bin/"
	bin=$scratch/bin
fi

if [ $# -gt 0 ]; then
	# Where the user cannot write there is no work folder: use an empty one.
	case " $* " in
	*' --cwd'*) ;;
	*)
		if ! as_user test -w "$PWD"; then
			printf 'run.sh: %s cannot write %s; the box works in an empty folder instead\n' "$user" "$PWD" >&2
			set -- --cwd "$scratch/work" "$@"
		fi
		;;
	esac
	"$bin/botbox" run "$@"
	exit
fi

# wait_for FILE: ten seconds at most.
wait_for() {
	i=0
	until [ -e "$1" ]; do
		i=$((i + 1))
		[ $i -lt 1000 ] || { printf 'run.sh: %s did not appear\n' "$1" >&2; cat "$scratch"/*.log >&2; exit 1; }
		sleep 0.01
	done
}

# The key is random, and only the stand-in and the worker know it whole.
half() { od -An -N8 -tx1 /dev/urandom | tr -d ' \n'; }
a=sk-$(half) b=$(half)
"$bin/standin" --listen 127.0.0.1:0 --ready-file "$scratch/standin" --key "$a$b" --reply 'Hello from the stand-in model.' >"$scratch/standin.log" 2>&1 &
standin=$!
wait_for "$scratch/standin"

export OMB_RUN_DIR="$scratch/run" OMB_STATE_DIR="$scratch/state" OMB_BOT_BOX=1
as_user "$bin/botbox" serve >"$scratch/worker.log" 2>&1 &
worker=$!
wait_for "$scratch/run/api.sock"

ANTHROPIC_API_KEY=$a$b ANTHROPIC_BASE_URL=http://$(cat "$scratch/standin") \
	as_user "$bin/botbox" run --bot demo --cwd "$scratch/work" --ro "$bin/sweeper" --env "SWEEPER=$bin/sweeper" \
	-- sh -c "$(cat "$top/testbed/demo/inside.sh")" sh "$a" "$b"

echo 'The self-check, in boxes of its own'
if checks=$(as_user "$bin/botbox" check); then
	printf '  %s\n' "$(printf '%s\n' "$checks" | tail -1)"
else
	printf '%s\n' "$checks"
	exit 1
fi
