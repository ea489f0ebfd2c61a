# What `make run` does in the box: a shell looks around, calls its model and
# tries three doors. The key comes as two halves, to be looked for.
say() { printf '  %-36s %s\n' "$1" "$2"; }
# ask URL: the answer's first line that says something, after the status.
ask() { curl -sS --max-time 5 -w '\n%{http_code}' "$@" 2>&1; }

echo 'In the box'
say 'who I am' "$(id -un), uid $(id -u), in $PWD"
say 'processes that exist for me' "$(ls /proc | grep -c '^[0-9]') (PID 1 is $(tr '\0' '\n' </proc/1/cmdline | head -1))"
say 'network interfaces' "$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | tr '\n' ' ')"
say 'capabilities, no_new_privs, seccomp' "$(awk '/^CapEff|^NoNewPrivs|^Seccomp:/ {printf "%s ", $2}' /proc/self/status)"
say 'HOME' "$HOME: $(ls -A "$HOME" | tr '\n' ' ')"
say '/tmp, /run' "$(ls -A /tmp | tr '\n' ' ') $(ls -A /run | tr '\n' ' ')"
say 'can I write /usr, /etc, / ?' "$(for d in /usr /etc /; do (: >"$d/x") 2>/dev/null && echo "$d"; done | grep . || echo no)"

echo 'A model call'
say 'what I hold for a key' "$(printf %.24s "$ANTHROPIC_API_KEY")…"
body='{"model":"stand-in","max_tokens":16,"messages":[{"role":"user","content":"hello"}]}'
say 'the model says' "$(ask -H "x-api-key: $ANTHROPIC_API_KEY" -H 'content-type: application/json' -d "$body" \
	"$ANTHROPIC_BASE_URL/v1/messages" | sed -n 's/.*"text":"\([^"]*\)".*/\1/p')"
say 'the real key in all I can read' "$("$SWEEPER" "$1" "$2" /etc /run /tmp /var "$HOME" | sed '$s/^swept \(.*\)/nowhere, in \1 places/')"

echo 'Three doors'
say 'cloud metadata' "$(ask http://169.254.169.254/latest/meta-data/ | sed -n '2s/Why: //p') ($(ask -o /dev/null http://169.254.169.254/ | tail -1))"
say 'the same without the gate' "$(ask --noproxy '*' http://169.254.169.254/ | head -1)"
say 'a route of the server' "$(ask http://127.0.0.1:8799/api/bots | sed -n '2s/Why: //p') ($(ask -o /dev/null http://127.0.0.1:8799/api/bots | tail -1))"
