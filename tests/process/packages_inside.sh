#!/usr/bin/env bash
# tests/process/packages_inside.sh: what a newcomer does with the Debian packages on a bare system, where
# /packages has them, README.md and docs/TUTORIAL.md (scripts/packages try).
set -euo pipefail
cd "$(mktemp -d)"

# block LANGUAGE PAGE FILE: what the page has for that file.
block() { awk -v fence="\`\`\`$1 file=$3" '$0 == fence { on = 1; next } /^```/ { on = 0 } on' "/packages/$2"; }

# install PACKAGE...: with what it depends on; dpkg alone then finds nothing wrong.
install() {
  apt-get install -y --no-install-recommends "$@" >log 2>&1 || { tail -n 20 log; exit 1; }
  dpkg --audit
}

echo "== commands, without a compiler or the library's package"
install /packages/tutti_*.deb
if command -v c++ >/dev/null; then echo "not a bare system: it has a compiler"; exit 1; fi
for command in tutti all_reduce_perf all_to_all_perf; do
  if ldd "$(command -v $command)" | grep 'not found'; then exit 1; fi
done
tutti --version
tutti info | head -n 3
all_reduce_perf --ranks 2 -b 8 -e 1M -f 16 -c 1
tutti run -n 2 -- all_gather_perf -b 1K -e 1K -c 1 | grep -c ' 1024 ' >/dev/null
tutti train --ranks 2 | tail -n 2
tutti topo predict --sizes 1M >/dev/null
[ -s /usr/share/man/man1/tutti-topo.1 ]
[ -s /usr/share/doc/tutti/TUTORIAL.md ]

echo "== simulated GPUs"
if compgen -G '/packages/tutti-nccl_*.deb' >/dev/null; then
  install /packages/tutti-nccl_*.deb
  tutti run --simulated-gpus 2 --no-prefix -- tutti topo show | grep -c 'nvlink x18' >/dev/null
fi

echo "== programs"
install /packages/libtutti*.deb g++ pkg-config libfmt-dev libspdlog-dev libhwy-dev libsodium-dev libpugixml-dev libhwloc-dev
block cpp README.md program.cc >hello.cc
block c TUTORIAL.md sum.c >total.c
# shellcheck disable=SC2046 # Flags are words.
cc -std=c99 -Wall -Werror total.c -o total $(pkg-config --cflags --libs tutti)
for package in tutti tutti_static; do
  # shellcheck disable=SC2046
  c++ -std=c++20 -Wall -Werror hello.cc -o $package $(pkg-config --cflags --libs $package)
  tutti run -n 4 -- ./$package | sort
done
readelf -d tutti | grep -q 'NEEDED.*libtutti'
if readelf -d tutti_static | grep 'NEEDED.*libtutti'; then exit 1; fi
[ "$(tutti run -n 2 --no-prefix -- ./total | sort -u)" = 2 ]

echo "== gone without a trace"
apt-get purge -y 'libtutti*' tutti tutti-nccl >log 2>&1 || { tail -n 20 log; exit 1; }
if find / -xdev -not -path '/packages*' -not -path '/tmp/*' -not -path '/proc/*' -iname '*tutti*' | grep .; then exit 1; fi
echo "all of it works"
