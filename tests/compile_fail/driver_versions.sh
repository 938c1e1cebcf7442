#!/usr/bin/env bash
# driver_versions.sh DRIVER.H CUDATYPEDEFS.H: each function of the driver that DRIVER.H looks up has the
# version that the look-up finds: the latest in NVIDIA's header that is not above kCudaDriverVersion.
set -euo pipefail
most=$(sed -nE 's/.*kCudaDriverVersion = ([0-9]+);.*/\1/p' "$1")
functions=0 wrong=0
while read -r name version; do
  functions=$((functions + 1))
  latest=$(grep -oE "PFN_${name}_v[0-9]+\)" "$2" | grep -oE '[0-9]+' | awk -v most="$most" '$1 <= most' | sort -n | tail -n 1)
  [ "$version" = "$latest" ] && continue
  echo "$name: the table says CUDA $version, a look-up of $most finds CUDA ${latest:-none}"
  wrong=$((wrong + 1))
done < <(grep -oE 'X\(\w+, cu\w+, [0-9]+\)' "$1" | sed -E 's/.*, (cu\w+), ([0-9]+)\)/\1 \2/')
echo "$functions functions, $wrong with another version"
[ "$functions" -ge 20 ] && [ "$wrong" = 0 ]
