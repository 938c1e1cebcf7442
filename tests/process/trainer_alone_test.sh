#!/usr/bin/env bash
# The trainer's sources, copied out of the project, build against an installed Tutti and train: they
# need nothing but the public API.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TUTTI_RENDEZVOUS TUTTI_CONTRACT
cmake --install "$TEST_BUILD_DIR" --prefix "$work/prefix" >"$work/install.log" ||
  { cat "$work/install.log"; exit 1; }
mkdir "$work/elsewhere"
cp -r "$TEST_SOURCE_DIR/trainer" "$work/elsewhere/trainer"
cmake -S "$work/elsewhere/trainer" -B "$work/own" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_BUILD_TYPE=Release >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/own" -j 2 >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
"$work/own/tutti_train" ddp 1 | tee "$work/ddp"
"$work/own/tutti_train" zero3 2 | tee "$work/zero3"
[ "$(grep ^weights "$work/ddp")" = "$(grep ^weights "$work/zero3")" ]
"$work/prefix/bin/tutti" run -n 2 -- "$work/own/tutti_train" local
