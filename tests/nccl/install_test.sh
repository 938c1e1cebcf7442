#!/usr/bin/env bash
# tests/nccl/install_test.sh BUILD TESTS CUDA_INCLUDE TUTTI: installs our NCCL into a folder of its own,
# builds a program in C against it by pkg-config, with the shared library and with the archive, and
# runs both on simulated GPUs.
set -euo pipefail
build=$1 tests=$2 cuda=$3 tutti=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --component nccl --prefix "$work/prefix" >"$work/log" || { cat "$work/log"; exit 1; }
mv "$work/prefix" "$work/moved" # What was installed must not depend on where it was.
PKG_CONFIG_PATH=$(dirname "$(find "$work/moved" -path '*/simulated/*' -name nccl.pc)")
export PKG_CONFIG_PATH SIMT_MULTIPROCESSORS=8 TUTTI_TIMEOUT_MS=60000

version=$(pkg-config --modversion nccl)
library=$(readlink -f "$(pkg-config --variable=libdir nccl)/libnccl.so.2")
[ "${library##*/libnccl.so.}" = "$version" ] || { echo "nccl.pc says $version, and $library is there"; exit 1; }
for name in nccl nccl_static; do
  # shellcheck disable=SC2046 # Flags are words.
  cc -std=c99 -Wall -Wextra -Werror -isystem "$cuda" $(pkg-config --cflags $name) "$tests/installed.c" \
    -o "$work/$name" $(pkg-config --libs $name) -lcudart
  needs=$(readelf -d "$work/$name" | grep -c 'NEEDED.*libnccl' || true)
  [ "$needs" = "$([ $name = nccl ] && echo 1 || echo 0)" ] || { echo "$name: it needs $needs libnccl"; exit 1; }
  for gpus in 2 4; do
    "$tutti" run --simulated-gpus $gpus --no-prefix -- "$work/$name" | tee "$work/said"
    grep -q "^$gpus GPUs: right$" "$work/said"
  done
done
# A C++ program has copies of the same templates.
cat >"$work/templates.cc" <<'END'
#include <iostream>
#include <regex>
#include <sstream>
std::string shown = (std::ostringstream() << std::regex_replace(std::to_string(42), std::regex("4"), "5")).str();
END
# shellcheck disable=SC2046
cc -std=c99 -isystem "$cuda" $(pkg-config --cflags nccl_static) -c "$tests/installed.c" -o "$work/installed.o"
# shellcheck disable=SC2046
c++ -std=c++20 "$work/templates.cc" "$work/installed.o" -o "$work/both" $(pkg-config --libs nccl_static) -lcudart
"$tutti" run --simulated-gpus 2 --no-prefix -- "$work/both" | grep -c '^2 GPUs: right$'

strangers=$(nm -g --defined-only "$(pkg-config --variable=libdir nccl)/libnccl_static.a" |
  awk '$2 != "u" && NF == 3 && $3 !~ /^p?nccl/ { print $3 }')
[ -z "$strangers" ] || { printf 'not of the API:\n%s\n' "$strangers"; exit 1; }
