#!/usr/bin/env bash
# tests/simt/programs_test.sh TUTTI PROGRAMS WHAT: programs that know nothing of simulated GPUs run on
# them (`tutti run --simulated-gpus`). TUTTI is the command, PROGRAMS the folder of those of
# tests/simt/programs, WHAT one of the functions below.
set -euo pipefail
tutti=$1 programs=$2 what=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SIMT_MULTIPROCESSORS=8 TUTTI_LANES=1 TUTTI_TIMEOUT_MS=60000

fail() {
  echo "programs_test $what: $*" >&2
  [ ! -f "$work/out" ] || cat "$work/out" "$work/err" >&2
  exit 1
}

# run STATUS ARGUMENTS...: `tutti run` ends with that status; its output is in out and err.
run() {
  local want=$1 status=0
  shift
  timeout 120 "$tutti" run "$@" >"$work/out" 2>"$work/err" || status=$?
  [ "$status" = "$want" ] || fail "status $status instead of $want: tutti run $*"
}

# right COUNT: so many ranks say that their results are right.
right() {
  [ "$(grep -c ': right$' "$work/out")" = "$1" ] || fail "not $1 ranks are right"
}

nccl() {
  run 0 --simulated-gpus 8 --no-prefix -- "$programs/nccl_program" all
  right 8
  grep -q '^tutti run: 8 GPUs of hgx-h100, pretended' "$work/err" || fail "nothing says so"
  run 0 --simulated-gpus 4 --no-prefix -- "$programs/nccl_program" threads
  right 4
  run 0 --simulated-gpus 4 -n 4 --no-prefix -- "$programs/nccl_program" processes "$work/id"
  right 4
}

# The communicator's choice of links is the model's: NVLink in one, PCI Express in the other.
device() {
  run 0 --simulated-gpus 8 --model dgx-a100 -n 8 --no-prefix -- "$programs/device_program"
  right 8
  grep -q 'A100.*(simulated): right' "$work/out" || fail "no A100"
  grep -q NVLink "$work/out" || fail "no NVLink"
  run 0 --simulated-gpus 2 --model pcie-8 -n 2 --no-prefix -- "$programs/device_program"
  right 2
  grep -q PCIe "$work/out" || fail "no PCI Express"
  grep -q NVLink "$work/out" && fail "NVLink where there is none"
  TUTTI_PEERS=nvlink run 0 --simulated-gpus 2 --model pcie-8 -n 2 --no-prefix -- "$programs/device_program"
  right 2
  grep -q 'host; TUTTI_PEERS=nvlink' "$work/out" || fail "PCI Express was taken"
  run 0 --simulated-gpus 6 --model dgx1-v100 -n 6 --no-prefix -- "$programs/device_program"
  right 6
  grep -q 'to rank 3: NVLink, 40 GB/s to it alone' "$work/out" || fail "NVML was not asked"
}

# The driver alone, by the names of its functions.
driver() {
  run 0 --simulated-gpus 2 --no-prefix -- "$programs/driver_program"
  right 2
  ! grep -q 'which they do not have' "$work/err" || fail "something is missing"
}

own_kernel() {
  run 0 --simulated-gpus 1 -- "$programs/kernel_program"
  [ "$(grep -c 'kernel my_kernel(int\*) of the program was not run' "$work/err")" = 1 ] ||
    fail "not one line about the kernel"
  grep -q 'calls cudaDeviceSetLimit, which they do not have' "$work/err" || fail "no word of the limit"
  grep -q 'calls cuModuleLoad, which they do not have' "$work/err" || fail "no word of the module"
}

# What is pretended is what `tutti topo` takes for this machine.
machine() {
  run 0 --simulated-gpus 8 --model dgx-a100 --no-prefix -- "$tutti" topo export
  "$tutti" topo export --model dgx-a100 >"$work/model"
  diff "$work/model" "$work/out" || fail "another machine"
  "$tutti" topo export --model dgx-a100 --format nccl_xml >"$work/topo.xml"
  run 0 --simulated-gpus 2 --model "$work/topo.xml" --no-prefix -- "$tutti" topo export
  grep -q nvlink "$work/out" || fail "no machine of the file"
}

# Measured are the links of the machine that is pretended, on a machine of which all else is known.
measure() {
  "$tutti" topo export --model dgx1-v100 -o "$work/healthy.topo"
  sed '/gpu4 host0.gpu7/s/=40:table/=8:table/g' "$work/healthy.topo" >"$work/sick.topo"
  run 0 --simulated-gpus 8 --model "$work/sick.topo" --no-prefix -- \
    "$tutti" topo measure --force --pretended "$work/healthy.topo" -o "$work/measured.topo"
  grep -q 'gpu4 host0/gpu7 count=2 forward=8:measured backward=8:measured' "$work/measured.topo" ||
    fail "the slow link is not in the file"
  [ "$(grep -c '^nvlink.*forward=[24]0:measured backward=[24]0:measured' "$work/measured.topo")" = 15 ] ||
    fail "not all other links are as they are"
  [ "$(grep -c '^gpu .*memory_gbs=2000.00' "$work/measured.topo")" = 8 ] || fail "no word of memories"
  # Plans and bounds are those of the sick machine, and others than the healthy one's.
  for what in bound "choices --sizes 64M"; do
    for machine in healthy sick measured; do
      cp "$work/$machine.topo" "$work/box.topo"
      # shellcheck disable=SC2086
      case $what in
        bound) "$tutti" topo bound --from "$work/box.topo" ;;
        *) "$tutti" topo $what "$work/box.topo" ;;
      esac >"$work/$machine.out"
    done
    diff "$work/sick.out" "$work/measured.out" || fail "$what: not by the measured link"
    ! diff -q "$work/healthy.out" "$work/measured.out" >/dev/null || fail "$what: as ever"
  done
  # Without access to each other they copy by the host's memory, which says nothing of links.
  "$tutti" topo export --model pcie-8 | sed 's/^gpu .*gpu0 .*/& .no_peer_access=gpu1/' >"$work/refused.topo"
  run 0 --simulated-gpus 2 --model "$work/refused.topo" --no-prefix -- \
    "$tutti" topo measure --force -o "$work/measured.topo"
  grep -Eq '^  gpu0 +- +12.0\*' "$work/err" || fail "not by the memory of the host"
  grep -q 'host0/gpu0 forward=24:measured' "$work/measured.topo" || fail "links are as slow as such copies"
}

mistakes() {
  run 2 --simulated-gpus 9 -- true
  grep -q 'a host of hgx-h100 has 8' "$work/err" || fail "not said how many there are"
  run 2 --simulated-gpus 2 --model mi300x -- true
  grep -q "no GPUs of NVIDIA's" "$work/err" || fail "not said whose GPUs"
  run 2 --simulated-gpus 2 --model nonesuch -- true
  run 2 --simulated-gpus 2 --hosts a,b -- true
}

"$what"
