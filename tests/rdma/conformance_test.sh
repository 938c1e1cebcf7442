#!/usr/bin/env bash
# The conformance suites over RDMA, with up to three ranks and a sample of the cases: in the virtual
# machine all of them would take hours.
set -euo pipefail
# shellcheck source=tests/rdma/in_vm.sh
source "$TEST_SOURCE_DIR/tests/rdma/in_vm.sh" --rxe 1 --memory 4096
export TUTTI_TEST_TRANSPORT=verbs TUTTI_TEST_MOST_RANKS=3

# suite NAME CASE [ONE_IN]: a case that no transport is tried in would pass for nothing. Of those that
# sample, one in so many is tried, and of every algorithm one at least; TUTTI_TEST_ONE_IN says otherwise
# for all.
sample=${TUTTI_TEST_ONE_IN:-}
suite() {
  local start=$SECONDS
  export TUTTI_TEST_ONE_IN=${sample:-${3:-1}}
  "$TEST_BUILD_DIR/tests/$1" "$2" --order rand --rng-seed time >/run/said 2>&1 ||
    { cat /run/said; echo "FAILED: $1, $2"; exit 1; }
  grep -q "^All tests passed ([1-9]" /run/said || { cat /run/said; echo "FAILED: $1 has no case '$2'"; exit 1; }
  echo "$1: $2 ($((SECONDS - start)) s)"
}
suite collectives_test "every algorithm on every transport gives the reference's bits" 48
suite collectives_test "what is chosen by default gives the reference's bits" 3
suite messages_test "blocking messages*"
suite messages_test "two ends that do not fit together are an error on both ranks*"
suite vector_test "ranks that see a block's size differently are told so"
suite communicator_test "asynchronous calls take place in order and mix with blocking ones"
suite communicator_test "splits are communicators of their own*"
# The queue pairs of a new communicator are made while those of the failed one are still there.
suite recovery_test "whichever rank dies*"
suite recovery_test "ranks that die while others shrink are left out as well"
suite recovery_test "after an abort or a revoke all ranks shrink to all ranks"
echo "ok"
