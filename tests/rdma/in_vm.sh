# shellcheck shell=bash
# Sourced with options of vm/run: goes on in the virtual machine.
if ! [ -v VM_SHARE ]; then
  exec "$TEST_SOURCE_DIR/tests/rdma/vm/run" "$@" --timeout 400 --env TEST_SOURCE_DIR \
    --env TEST_BUILD_DIR -- bash "$0"
fi
netns=$TEST_SOURCE_DIR/scripts/netns
perf=$TEST_BUILD_DIR/perf
tutti=$TEST_BUILD_DIR/tools/tutti
work=/run/work
mkdir -p "$work"
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
# At the time limit: what was under way.
trap 'tail -n 30 "$work"/* >&2; fail "time limit"' TERM
