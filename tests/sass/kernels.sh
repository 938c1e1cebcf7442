#!/usr/bin/env bash
# sass/kernels.sh FOLDER ARCHITECTURE SOURCE.cu... -- NVCC FLAGS...: compiles the kernels for an architecture
# into FOLDER, and checks their machine code (scripts/sass-lint).
set -euo pipefail
folder=$1 architecture=$2 sources=() cubins=()
shift 2
while [ "$1" != -- ]; do
  sources+=("$1")
  shift
done
shift
mkdir -p "$folder"
for source in "${sources[@]}"; do
  cubins+=("$folder/$(basename "$source" .cu)_$architecture.cubin")
  "$@" -lineinfo -arch="sm_$architecture" -cubin -o "${cubins[-1]}" "$source"
done
exec "$TEST_SOURCE_DIR/scripts/sass-lint" --fetch "$folder/nvdisasm" "${cubins[@]}"
