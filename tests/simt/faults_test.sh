#!/usr/bin/env bash
# simt/faults_test.sh PROGRAM: what a wrong kernel gets to hear.
set -euo pipefail
program=$1
failures=0
export SIMT_TIMEOUT=1
# Who ends the process leaves threads behind.
export TSAN_OPTIONS="${TSAN_OPTIONS:-} report_thread_leaks=0"
# CASE, SIMT_CHECK, what the engine must say; nothing: the kernel is let through; "fault": the process
# ends as one does that touches what is not its.
while IFS='|' read -r name check expected; do
  status=0
  output=$(SIMT_CHECK=$check "$program" "$name" 2>&1) || status=$?
  if [ -z "$expected" ]; then
    [ "$status" = 0 ] && continue
  elif [ "$expected" = fault ]; then
    [ "$status" != 0 ] && [ "$status" != 86 ] && continue
  elif [ "$status" = 86 ] && grep -qE "^simt: $expected" <<<"$output"; then
    continue
  fi
  failures=$((failures + 1))
  printf '%s (check %s): status %s, expected "%s":\n%s\n' "$name" "$check" "$status" "$expected" "$output"
done <<'CASES'
left|1|a thread returned while [0-9]+ others wait for the whole block
left|0|
places|0|threads of one block meet at different barriers: .*faults.cc:[0-9]+
mask|0|lane [0-9]+ calls a collective of mask 0000ffff
mixed|0|lanes of mask ffffffff are in different collectives
deadlock|0|deadlock: all threads of a block wait
hang|0|no progress for 1 s: a kernel waits for what never comes
peer|1|device 0 accesses .* \(8 bytes\) of device 1, which it may not
peer|0|
mapped|1|device 0 accesses .* \(8 bytes\) of device 0, which it may not
mapped|0|fault
trap|0|__trap
CASES
[ "$failures" = 0 ] && echo "all faults are told apart"
