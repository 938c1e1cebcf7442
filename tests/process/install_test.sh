#!/usr/bin/env bash
# Installs into a folder of its own, then builds and runs programs against it the way users do: C
# and C++, by find_package and by pkg-config. Also: the library exports the API and nothing else, and
# each manual page renders without a warning, and shells find what completes the words of tutti.
set -euo pipefail
source_dir=$TEST_SOURCE_DIR
build_dir=$TEST_BUILD_DIR
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "== quickstart builds all that is installed"
grep -q 'build release .*installed$' "$source_dir/scripts/quickstart" ||
  { echo "scripts/quickstart does not build the target \`installed\`"; exit 1; }
if [ -e "$build_dir/build.ninja" ]; then
  for target in all installed; do ninja -C "$build_dir" -t commands $target >"$work/$target"; done
  # What an installation names in the build, and a command writes or copies.
  find "$build_dir" -name cmake_install.cmake -exec grep -hoP "\"\Q$build_dir\E/\K[^\"]+" {} + | sort -u |
    while read -r file; do
      if grep -qwF -- "$file" "$work/all" && ! grep -qwF -- "$file" "$work/installed"; then
        echo "$file is installed, but the target \`installed\` does not build it"
        exit 1
      fi
    done
fi

cmake --install "$build_dir" --prefix "$work/prefix" >"$work/install.log" ||
  { cat "$work/install.log"; exit 1; }
mv "$work/prefix" "$work/moved" # What was installed must not depend on where it was.
prefix=$work/moved

echo "== exported symbols"
library=$(find "$prefix" -name 'libtutti.so' -not -path '*/simulated/*' | head -n 1)
# The name of a version is a symbol too (A).
strangers=$(nm -DC --defined-only "$library" | awk '$2 != "A"' | cut -d' ' -f3- |
  grep -vE '^(tutti_|tutti::|(vtable|typeinfo|typeinfo name) for tutti::)' || true)
[ -z "$strangers" ] || { printf 'not of the API:\n%s\n' "$strangers"; exit 1; }
major_minor=$(sed -nE 's/^#define TUTTI_VERSION_(MAJOR|MINOR) //p' "$source_dir/include/tutti/tutti.h" | paste -sd.)
unversioned=$(nm -D --defined-only "$library" | awk -v is="@@TUTTI_$major_minor" \
  '$2 != "A" && substr($3, length($3) - length(is) + 1) != is')
[ -z "$unversioned" ] || { printf 'not of version TUTTI_%s:\n%s\n' "$major_minor" "$unversioned"; exit 1; }
nm -D --defined-only "$library" | awk '{print $3}' | grep '^tutti_' | sed 's/@.*//' | sort >"$work/exported"
mapfile -t c_headers < <(sed -nE 's|^#include "(tutti/tutti_[a-z_]+\.h)".*|\1|p' "$source_dir/include/tutti/tutti.h")
(cd "$source_dir/include" && sed -nE 's/.*\b(tutti_[a-z_]+)\(.*/\1/p' tutti/tutti.h "${c_headers[@]}") |
  sort -u >"$work/declared"
diff "$work/declared" "$work/exported" ||
  { echo "left: declared in tutti.h and what it includes, right: exported by the library"; exit 1; }

echo "== manual pages"
pages=$prefix/share/man/man1
for name in $("$prefix/bin/tutti" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]\+\) .*/\1/p'); do
  [ -s "$pages/tutti-$name.1" ] || { echo "tutti $name has no manual page"; exit 1; }
done
for page in "$pages"/*.1; do
  ! command -v man >/dev/null || MANWIDTH=80 man --warnings -Tutf8 -l "$page" >"$work/page" 2>"$work/warnings"
  [ ! -s "$work/warnings" ] || { echo "$page:"; cat "$work/warnings"; exit 1; }
done

echo "== whose the data are"
notice=$(find "$prefix" -name NOTICE)
for file in "$prefix"/share/tutti/*; do
  grep -q "^$(basename "$file")," "$notice" || { echo "NOTICE does not say whose $file is"; exit 1; }
done

echo "== completion"
for file in bash:bash-completion/completions/tutti zsh:zsh/site-functions/_tutti fish:fish/vendor_completions.d/tutti.fish; do
  "$prefix/bin/tutti" completion "${file%%:*}" | diff - "$prefix/share/${file#*:}"
done

echo "== find_package"
cmake -S "$source_dir/tests/process/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" \
  >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
"$work/build/consumer_c"
"$work/build/consumer_cc"
TUTTI_TRACE=$work/trace.json "$work/build/consumer_c"
grep -q '"sum of 4 ranks"' "$work/trace.json"

echo "== pkg-config"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name tutti.pc)")
export PKG_CONFIG_PATH
libdir=$(dirname "$library")
# shellcheck disable=SC2046 # Flags are words.
cc -std=c99 -pedantic-errors -Wall -Wextra -Werror "$source_dir/tests/process/consumer/consumer.c" \
  -o "$work/consumer_c" $(pkg-config --cflags --libs tutti) -Wl,-rpath,"$libdir"
# shellcheck disable=SC2046
c++ -std=c++20 -Wall -Wextra -Werror "$source_dir/tests/process/consumer/consumer.cc" \
  -o "$work/consumer_cc" $(pkg-config --cflags --libs tutti) -Wl,-rpath,"$libdir"
"$work/consumer_c"
"$work/consumer_cc"
pkg-config --modversion tutti

if [ -e "$libdir/libtutti.a" ]; then
  echo "== the archive"
  cmake -S "$source_dir/tests/process/consumer" -B "$work/static" -DCMAKE_PREFIX_PATH="$prefix" -DSTATIC=ON \
    >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
  cmake --build "$work/static" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
  # shellcheck disable=SC2046
  c++ -std=c++20 "$source_dir/tests/process/consumer/consumer.cc" -o "$work/static_cc" \
    $(pkg-config --cflags --libs tutti_static)
  for program in "$work/static/consumer_c" "$work/static/consumer_cc" "$work/static_cc"; do
    if readelf -d "$program" | grep 'NEEDED.*libtutti'; then exit 1; fi
    "$program"
  done
  TUTTI_TRACE=$work/static.json "$work/static/consumer_c"
  grep -q '"sum of 4 ranks"' "$work/static.json"
  # A program's own names are its own: what else the archive shows is weak copies of templates.
  strangers=$(nm -gC --defined-only "$libdir/libtutti.a" | awk 'NF > 2 && $2 !~ /[VWu]/' | cut -d' ' -f3- |
    grep -vE '^(tutti_|tutti::|(vtable|typeinfo|typeinfo name) for tutti::)' || true)
  [ -z "$strangers" ] || { printf 'not of the API:\n%s\n' "$strangers"; exit 1; }
fi

echo "== examples"
for project in "$source_dir"/examples/*/CMakeLists.txt; do
  folder=$(dirname "$project") name=$(basename "$(dirname "$project")")
  cmake -S "$folder" -B "$work/examples/$name" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >"$work/configure.log" ||
    { cat "$work/configure.log"; exit 1; }
  cmake --build "$work/examples/$name" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
  # Its first line says how it is run.
  words=$(sed -n '1s/.*&& tutti run //p' "$project")
  echo "$name: tutti run $words"
  # shellcheck disable=SC2086 # Words.
  (cd "$folder" && "$prefix/bin/tutti" run ${words/build\//$work/examples/$name/}) >"$work/said" 2>&1 ||
    { cat "$work/said"; exit 1; }
done
grep -q 'rank 0: 3 ranks have finished' <("$prefix/bin/tutti" run --no-prefix -n 4 --elastic -- "$work/examples/errors/errors" 2>&1)

echo "== the README's program, and the tutorial's in C"
# block LANGUAGE PAGE FILE: what the page has for that file.
block() { awk -v fence="\`\`\`$1 file=$3" '$0 == fence { on = 1; next } /^```/ { on = 0 } on' "$source_dir/$2"; }
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ -x "$nvcc" ]; then  # Kernels of programs need nothing but what is installed.
  block cpp docs/device-api.md pass_on.cu >"$work/pass_on.cu"
  for kernel in "$work/pass_on.cu" "$source_dir"/examples/cuda/*.cu; do
    echo "== $kernel"
    "$nvcc" -std=c++20 --expt-relaxed-constexpr -arch=sm_90 -I "$prefix/include" -c "$kernel" -o "$work/kernel.o"
  done
fi
block cpp README.md program.cc >"$work/readme.cc"
block c docs/TUTORIAL.md sum.c >"$work/readme.c"
# shellcheck disable=SC2046
c++ -std=c++20 -Wall -Wextra -Werror "$work/readme.cc" -o "$work/readme_cc" \
  $(pkg-config --cflags --libs tutti) -Wl,-rpath,"$libdir"
# shellcheck disable=SC2046
cc -std=c99 -pedantic-errors -Wall -Wextra -Werror "$work/readme.c" -o "$work/readme_c" \
  $(pkg-config --cflags --libs tutti) -Wl,-rpath,"$libdir"
[ "$("$work/readme_c")" = 1 ]
"$work/readme_cc"
"$prefix/bin/tutti" run -n 4 -- "$work/readme_cc" | sort | tee "$work/said"
[ "$(grep -c 'of 4 has 4' "$work/said")" = 4 ]

simulated=$(find "$prefix" -type d -name simulated)
if [ -n "$simulated" ]; then
  echo "== simulated GPUs"
  headers=$(sed -n 's/^TUTTI_CUDA_INCLUDE:PATH=//p' "$build_dir/CMakeCache.txt")
  # shellcheck disable=SC2046
  c++ -std=c++20 -Wall -Wextra -Werror "$source_dir/tests/simt/programs/device_program.cc" \
    -o "$work/device_program" $(pkg-config --cflags tutti) -isystem "$headers" \
    -L "$simulated" -ltutti -lcudart
  "$prefix/bin/tutti" run --simulated-gpus 2 -n 2 -- "$work/device_program" | tee "$work/said"
  [ "$(grep -c ': right' "$work/said")" = 2 ]
fi

echo "== the README's lines for pkg-config"
lines=$(awk '/^export PATH=~/ { on = 1 } /^```/ { on = 0 } on' "$source_dir/README.md")
[ "$(wc -l <<<"$lines")" = 3 ] || { echo "README.md has other lines: $lines"; exit 1; }
cp "$work/readme.cc" "$work/program.cc"
mkdir "$work/home"
ln -s "$prefix" "$work/home/.local"
(cd "$work" && env -u PKG_CONFIG_PATH -u LD_LIBRARY_PATH HOME="$work/home" bash -euc "$lines") >"$work/said"
[ "$(grep -c 'of 4 has 4' "$work/said")" = 4 ] || { cat "$work/said"; exit 1; }

echo "== every command, where the source tree and the build tree are gone"
cat >"$work/commands.sh" <<'END'
set -euo pipefail
for folder in "$TEST_SOURCE_DIR" "$TEST_BUILD_DIR"; do
  [ ! -d "$folder" ] || mount -t tmpfs none "$folder"
done
[ ! -e "$TEST_SOURCE_DIR/README.md" ] && [ ! -e "$TEST_BUILD_DIR/tools" ]
cd "$work"
export PATH=$prefix/bin:$PATH XDG_CACHE_HOME=$work/cache
quietly() { "$@" >said 2>&1 || { echo "FAILED: $*"; cat said; exit 1; }; }
quietly tutti info
quietly tutti train --ranks 2 --epochs 1 --target-accuracy 0
quietly tutti run -n 2 -- tutti train --epochs 1 --target-accuracy 0
quietly tutti plan --ranks 4
cat >rsh <<'RSH'
#!/bin/sh
shift
exec "$@"
RSH
chmod +x rsh
quietly tutti run --hosts localhost:2 --rsh "$work/rsh" --no-prefix -- tutti train --epochs 1 --target-accuracy 0
quietly tutti topo show
quietly tutti topo show --model hgx-h100
quietly tutti topo bound --model hgx-h100
quietly tutti topo models
quietly tutti topo why gpu0 gpu5 --model dgx1-v100
quietly tutti topo check --model hgx-h100
quietly tutti topo diff hgx-h100 hgx-h100
quietly tutti topo embed --model dgx1-v100
quietly tutti topo choices dgx1-v100 --sizes 64K
quietly tutti topo predict hgx-h100 --collective all_reduce --sizes 64K
quietly tutti topo export --model hgx-h100 --format nccl_xml -o model.xml
quietly tutti topo import model.xml -o model.topo
quietly tutti topo capture machine.tar.gz
quietly tutti topo replay machine.tar.gz -o machine.topo
quietly tutti run -n 2 -- tutti topo measure --force -o measured.topo
quietly tutti explain --ranks 2
quietly tutti explain --model hgx-h100 --bytes 64K
quietly tutti simulate --model dgx1-v100 --bytes 64K
quietly tutti tune -n 2 --quick --max-bytes 64 --collective broadcast --force
for sweep in "$prefix"/bin/*_perf; do quietly "$sweep" --ranks 2 -b 8 -e 64 -f 8 -n 2; done
[ ! -x device_program ] || quietly tutti run --simulated-gpus 2 -n 2 -- ./device_program
quietly tutti step-time --ranks 8 --parameters 1B
quietly tutti report --model hgx-h100 -o model.html
quietly tutti report -o here.html
for page in model.html here.html; do grep -q '</html>' "$page"; done
background=()
trap 'kill "${background[@]}"; wait' EXIT
TUTTI_JOB=installed all_reduce_perf --ranks 2 -b 8 -e 8 -n 100000000 >job 2>&1 &
background+=($!)
for _ in $(seq 600); do
  ! tutti status installed >said 2>&1 || ! grep -q '2 ranks' said || break
  sleep 0.1
done
grep -q '2 ranks' said || { echo "FAILED: tutti status does not see the job"; cat said job; exit 1; }
quietly tutti status installed --json --calls --trace calls.json --metrics metrics.txt --save found.json
quietly tutti status --merge found.json
tutti report --live --only installed >live 2>&1 &
background+=($!)
for _ in $(seq 600); do [ "$(wc -l <live)" -lt 2 ] || break; sleep 0.1; done
quietly python3 -c 'import sys, urllib.request as u
page, status = (u.urlopen(sys.argv[1] + part).read() for part in ("", "status"))
assert b"</html>" in page and b"installed" in status, (page, status)' "$(head -n 1 live)"
quietly tutti completion zsh
quietly tutti completion fish
# shellcheck disable=SC1091 # Installed.
source "$prefix/share/bash-completion/completions/tutti"
completes() { # WORDS EXPECTED: what bash offers for the last word
  IFS=' ' read -ra COMP_WORDS <<<"$1"
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
  _tutti || true # Outside of a Tab, compopt fails.
  [ "${COMPREPLY[*]}" = "$2" ] || { echo "FAILED: '$1' is completed to '${COMPREPLY[*]}', not '$2'"; exit 1; }
}
completes "tutti si" simulate
completes "tutti topo show --model hgx-h100" hgx-h100
END
# A subcommand that is not run there may depend on the tree.
below() { "$prefix/bin/tutti" "$@" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z-]\+\) .*/\1/p'; }
for name in $(below); do
  nested=$(below "$name")
  for words in ${nested:-_}; do
    words="tutti $name${nested:+ $words}"
    grep -qE "$words( |\$)" "$work/commands.sh" || { echo "'$words' is not run where the trees are gone"; exit 1; }
  done
done
export work prefix
own=(unshare --mount)
"${own[@]}" true 2>/dev/null || own=(unshare --mount --map-root-user)
# shellcheck disable=SC2016 # The inner shell is to expand it.
if "${own[@]}" bash -c 'mount -t tmpfs none "$1"' bash "$work/build" 2>/dev/null; then
  "${own[@]}" bash "$work/commands.sh"
else
  echo "SKIPPED: this user may not mount anything over the trees"
fi
