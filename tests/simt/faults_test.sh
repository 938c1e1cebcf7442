#!/usr/bin/env bash
# simt/faults_test.sh PROGRAM: what a wrong kernel, or a wrong call, gets to hear.
set -euo pipefail
program=$1
failures=0
export SIMT_TIMEOUT=1
# Who ends the process leaves threads behind.
export TSAN_OPTIONS="${TSAN_OPTIONS:-} report_thread_leaks=0"
# CASE, settings, what the engine must say; nothing: the case is let through; "fault": the process
# ends as one does that touches what is not its.
while IFS='|' read -r name settings expected; do
  status=0
  # shellcheck disable=SC2086 # Settings are words.
  output=$(env $settings "$program" "$name" 2>&1) || status=$?
  if [ -z "$expected" ]; then
    [ "$status" = 0 ] && continue
  elif [ "$expected" = fault ]; then
    [ "$status" != 0 ] && [ "$status" != 86 ] && continue
  elif [ "$status" = 86 ] && grep -qE "^simt: $expected" <<<"$output"; then
    continue
  fi
  failures=$((failures + 1))
  printf '%s (%s): status %s, expected "%s":\n%s\n' "$name" "$settings" "$status" "$expected" "$output"
done <<'CASES'
left|SIMT_CHECK=1|a thread returned while [0-9]+ others wait for the whole block
left||
places||threads of one block meet at different barriers: .*faults.cc:[0-9]+
mask||lane [0-9]+ calls a collective of mask 0000ffff
mixed||lanes of mask ffffffff are in different collectives
deadlock||deadlock: all threads of a block wait
hang||no progress for 1 s: a kernel waits for what never comes
peer|SIMT_CHECK=1|device 0 accesses .* \(8 bytes\) of device 1, which it may not
peer||
mapped|SIMT_CHECK=1|device 0 accesses .* \(8 bytes\) of device 0, which it may not
mapped||fault
trap||__trap
pageable||a copy to pageable memory waits for its stream
pageable|SIMT_PAGEABLE_WAITS=0|
pinned||
large_source||a copy of more than 64 KiB from pageable memory waits for its stream
large_source|SIMT_PAGEABLE_WAITS=0|
small_source||
unregister||to unregister memory, the host waits for its device
free||to free memory, the host waits for its device
free_aside||
free_aside|SIMT_FREE_LOCKS=1|to free memory, the host waits for its device
shared_queue||stream [0-9]+ of device 0 waits for stream [0-9]+, which is in front of it in hardware queue
shared_queue|CUDA_DEVICE_MAX_CONNECTIONS=32|
own_queue|CUDA_DEVICE_MAX_CONNECTIONS=1|
launches||a launch waits for room in the queue of stream [0-9]+ of device 0, which holds 1024 commands
launches|SIMT_LAUNCH_QUEUE=2000|
graphs||a launch waits for room in the queue of stream [0-9]+ of device 0, which holds 1024 commands
graphs|SIMT_LAUNCH_QUEUE=2000|
resident|SIMT_MULTIPROCESSORS=2|
one_more|SIMT_MULTIPROCESSORS=2|kernel meet: 1 of its 9 blocks wait until others end: device 0 runs 4 at a time on each of 2
by_threads|SIMT_MULTIPROCESSORS=2|kernel meet: 8 of its 16 blocks wait until others end: .* a block takes 256 of 2048 threads, 16384 of 65536 registers
two_processes||
two_processes|SIMT_TIME_SLICE=2|
two_processes|SIMT_TIME_SLICE=1000000|device 0: kernels of other processes run after the time slice of 1000000
CASES
[ "$failures" = 0 ] && echo "all faults are told apart"
