#!/usr/bin/env bash
# scripts/netns: hosts come up, reach each other, run ranks, and leave nothing behind.
set -euo pipefail
netns=$TEST_SOURCE_DIR/scripts/netns
bench=$TEST_BUILD_DIR/perf/tcp_bench
export TUTTI_NETNS=tuttitest$$

reason=$("$netns" check 2>&1) || { echo "skipped: $reason"; exit 77; }
trap '"$netns" down' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
# What there is now that is ours: of this test, or of a run.
left() { ip netns list | awk '{print $1}' | grep -E "^$TUTTI_NETNS|^tuttirun$1-" || true; }

# Up, twice: the second time replaces the first.
"$netns" up 3
"$netns" up 2
wanted=$(printf '%s\n' "$TUTTI_NETNS-0" "$TUTTI_NETNS-1" "$TUTTI_NETNS-switch")
[ "$(left x | sort)" = "$(sort <<<"$wanted")" ] ||
  fail "up 3, up 2 left: $(left x)"
[ "$("$netns" exec 1 -- hostname)" = host1 ] || fail "host 1 has another name"
"$netns" exec 1 -- ip -br address show eth0 | grep "10.77.0.2/24" >/dev/null || fail "host 1 has no address"
if "$netns" exec 7 -- true 2>/dev/null; then fail "there is no host 7"; fi
# The machine's own network has nothing of it.
if ip -br link | grep -Eq '^(port[0-9]|bridge)'; then fail "links outside of the namespaces"; fi
"$netns" down
[ -z "$(left x)" ] || fail "down left: $(left x)"

# Ranks in order, two on each host, each with the environment of a launcher.
# shellcheck disable=SC2016 # The ranks are to expand them.
said=$("$netns" run 2 2 -- bash -c 'echo "$(hostname) $TUTTI_RANK $TUTTI_RANK_COUNT $TUTTI_LOCAL_RANK"')
[ "$(sort <<<"$said")" = "$(printf 'host0 0 4 0\nhost0 1 4 1\nhost1 2 4 0\nhost1 3 4 1')" ] ||
  fail "ranks said: $said"
status=0
# shellcheck disable=SC2016
"$netns" run 2 1 -- bash -c 'exit $((TUTTI_RANK * 7))' || status=$?
[ "$status" = 7 ] || fail "the exit code of rank 1 was 7, that of run $status"

# A run that is killed leaves its hosts behind; the next call removes them, and what runs in them.
# shellcheck disable=SC2016
"$netns" run 2 1 -- sleep 1000 &
run=$!
for ((i = 0; i < 500; ++i)); do
  [ -n "$(ip netns pids "tuttirun$run-1" 2>/dev/null)" ] && break
  sleep 0.02
done
sleeper=$(ip netns pids "tuttirun$run-1" | head -n 1)
kill -9 "$run"
wait "$run" 2>/dev/null || true
[ -n "$(left "$run")" ] || fail "nothing was left behind that could be removed"
"$netns" down
[ -z "$(left "$run")" ] || fail "the next call left: $(left "$run")"
# A process that nobody has waited for yet is no process any more.
runs() { grep -qs '^State:[[:space:]]*[^ZX]' "/proc/$sleeper/status"; }
for ((i = 0; i < 500; ++i)); do
  runs || break
  sleep 0.02
done
if runs; then fail "a rank of the killed run still runs: $(ps -fp "$sleeper")"; fi

# Two hosts speak TCP over the addresses that were meant for it.
said=$("$netns" run 2 1 -- "$bench" --rounds 2 --pings 50 --mebibytes 2 --connections 2)
grep -q "^rank 1 (host1) over eth0, 10.77.0.1:[0-9]* to 10.77.0.2:[0-9]*$" <<<"$said" || fail "$said"
grep -q "^frames, poll " <<<"$said" || fail "$said"
said=$("$netns" run 2 1 -- "$bench" --rounds 2 --pings 50 --mebibytes 2 --interfaces fd77::/64)
grep -q "^rank 1 (host1) over eth0, \[fd77::1\]:[0-9]* to \[fd77::2\]:" <<<"$said" || fail "$said"
echo "ok"
