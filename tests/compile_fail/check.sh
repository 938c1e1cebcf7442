#!/usr/bin/env bash
# check.sh FILE COMPILER FLAGS...: see CMakeLists.txt.
set -u
file=$1
shift
expected=$(sed -n 's,^// expect: ,,p' "$file")
if [ -z "$expected" ]; then
  echo "$file: has no '// expect:' line with what the compiler must say"
  exit 1
fi
if ! "$@" "$file"; then
  echo "$file: does not compile even without the misuse"
  exit 1
fi
if said=$(LC_ALL=C "$@" -DTUTTI_MISUSE "$file" 2>&1); then
  echo "$file: the misuse compiles"
  exit 1
fi
if ! grep -qE "$expected" <<<"$said"; then
  printf '%s\n%s: fails, but not for the reason /%s/\n' "$said" "$file" "$expected"
  exit 1
fi
