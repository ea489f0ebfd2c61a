#!/bin/sh
# check.sh - runs in the container as a unit, writes CHK lines, powers off.
log=/out/log
say() { printf 'CHK %s %s\n' "$1" "$2" >>"$log"; }
note() { sed "s/^/# /" >>"$log"; }
# check NAME CMD…
check() {
	name=$1
	shift
	if "$@" >/tmp/said 2>&1; then say "$name" ok; else
		say "$name" FAIL
		note </tmp/said
	fi
}
prop() { systemctl show -P "$1" botbox.service; }
equal() { [ "$1" = "$2" ] || { echo "is '$1', not '$2'"; return 1; }; }
within() { # SECONDS CMD…
	end=$(($(date +%s) + $1))
	shift
	until "$@"; do
		[ "$(date +%s)" -lt "$end" ] || return 1
		sleep 0.2
	done
}

check account id maus
check starts systemctl start botbox.service
journalctl -o cat -u botbox.service | head -n 30 | note
check active equal "$(prop ActiveState)" active
check main-is-supervisor grep -q botbox-supervisor "/proc/$(prop MainPID)/cmdline"
check worker-is-maus pgrep -u maus -f 'botbox serve'
check control-group-delegated equal "$(prop Delegate)" yes
check box sh -c 'cd /var/lib/maus && out=$(botbox run -- sh -c "echo in the box; id -un") && [ "$out" = "in the box
maus" ]'
check refusal-has-a-reason sh -c 'cd /var/lib/maus && ! botbox run --ro /run/systemd -- true 2>/tmp/why && grep -q "reason: path_refused" /tmp/why'
journalctl --sync
check journal-has-fields sh -c 'journalctl -o json MESSAGE_ID=30f759ea0d5f884341ee4be2c61ad75f | grep "\"BOX_ID\":\"box_" | grep "\"SYSLOG_IDENTIFIER\":\"botbox\"" | grep -q "\"_SYSTEMD_UNIT\":\"botbox.service\""'
check journal-has-the-refusal sh -c 'journalctl -o json MESSAGE_ID=a118e093e61f00a73a9c2dc923537255 | grep -q "\"REASON\":\"path_refused\""'
journalctl --update-catalog
check catalogue-explains sh -c 'journalctl -x MESSAGE_ID=a118e093e61f00a73a9c2dc923537255 | grep -q "botbox why reason CODE"'
check report-shows-the-steps sh -c 'botbox report --json | grep -q "\"hidepid\""'

# The worker dies: the supervisor starts another, systemd notices nothing.
old=$(pgrep -u maus -f 'botbox serve' | head -n 1)
[ -z "$old" ] || kill -KILL "$old"
check worker-is-back within 20 sh -c 'new=$(pgrep -u maus -f "botbox serve" | head -n 1) && [ -n "$new" ] && [ "$new" != '"$old"' ]'
check no-restart-for-a-worker equal "$(prop NRestarts)" 0

# The supervisor hangs: the watchdog ends it and systemd starts it again.
main=$(prop MainPID)
[ "$main" -le 1 ] || kill -STOP "$main"
check watchdog within 30 sh -c '[ "$(systemctl show -P NRestarts botbox.service)" = 1 ] && systemctl is-active --quiet botbox.service'
check watchdog-is-the-cause sh -c 'journalctl -u botbox.service | grep -qi "watchdog timeout"'

check stops systemctl stop botbox.service
check stopped-well equal "$(prop Result)/$(prop ActiveState)" success/inactive
check nothing-left sh -c '! pgrep -u maus'
echo DONE >>"$log"
systemctl poweroff --force --force
