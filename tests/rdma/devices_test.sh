#!/usr/bin/env bash
# Simulated devices on hosts (network namespaces) that each have an RDMA device, which reads and writes
# slots in the devices' memory: every collective, bit for bit; and where slots are, as TUTTI_GPUDIRECT says.
set -euo pipefail
if ! [ -x "$TEST_BUILD_DIR/tests/simt/simt_hosts_rank" ]; then
  echo "skipped: simt_hosts_rank was not built, as there are no CUDA headers"
  exit 77
fi
# shellcheck source=tests/rdma/in_vm.sh
source "$TEST_SOURCE_DIR/tests/rdma/in_vm.sh" --rxe 3
rank=$TEST_BUILD_DIR/tests/simt/simt_hosts_rank
export TUTTI_TIMEOUT_MS=60000
# The devices belong to no namespace: each host uses that of its first rank's number.
# shellcheck disable=SC2016 # The inner shell is to expand them.
own_device=(bash -c 'export TUTTI_RDMA_DEVICES=rxe$((TUTTI_RANK - TUTTI_LOCAL_RANK)); exec "$@"' bash)

# slots GPUDIRECT HOSTS RANKS WORDS: every result is right, and slots are there.
slots() {
  local said
  said=$(TUTTI_GPUDIRECT=$1 "$netns" run "$2" "$3" -- "${own_device[@]}" "$rank" "$RANDOM" 2>&1) ||
    { echo "$said"; fail "TUTTI_GPUDIRECT=$1, $2 hosts of $3"; }
  grep -E "^slots to other hosts: $4" <<<"$said" || { echo "$said"; fail "TUTTI_GPUDIRECT=$1 does not say: $4"; }
}
slots on 2 2 "in device memory \(GPUDirect over rxe0:1\)"
slots on 3 1 "in device memory \(GPUDirect over rxe0:1\)"
slots off 2 1 "in pinned memory: TUTTI_GPUDIRECT=off"
if TUTTI_TRANSPORT=tcp TUTTI_GPUDIRECT=on "$netns" run 2 1 -- "$rank" 1 >$work/out 2>&1; then
  fail "tcp took TUTTI_GPUDIRECT=on"
fi
grep "TUTTI_GPUDIRECT=on: tcp gives no card access to devices, verbs does" $work/out >/dev/null ||
  { cat $work/out; fail "it does not say why"; }
echo "ok"
