#!/usr/bin/env bash
# A program that is set-user-ID takes no settings from the environment: the user that starts it could
# have it read and write files, or join other ranks. Needs root, to make such a program.
set -euo pipefail
fail() { echo "$*" >&2; exit 1; }
tutti=$TEST_BUILD_DIR/tools/tutti
[ "$(id -u)" = 0 ] || { echo "skipped: only root can make a set-user-ID program of another user"; exit 77; }
nobody=$(id -u nobody)
work=$(mktemp -d "$TEST_BUILD_DIR/secure-XXXXXX")
trap 'rm -rf "$work"' EXIT
export TUTTI_TIMEOUT_MS=abc
said=$("$tutti" info 2>&1) && fail "a wrong setting is not seen at all"
grep -q "TUTTI_TIMEOUT_MS='abc' is not valid" <<<"$said" || fail "it says: $said"
cp "$tutti" "$work/tutti"
chown "$nobody" "$work/tutti"
chmod u+s "$work/tutti"
"$work/tutti" info >"$work/out" 2>&1 || { cat "$work/out"; fail "a set-user-ID program reads the environment"; }
