#!/usr/bin/env bash
# A project that contains Tutti (add_subdirectory) keeps its build type, installs Tutti only if it says
# so, and has neither Tutti's tests nor its commands. Nothing is built: what is generated says it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

mkdir "$work/project"
echo 'int main() {}' >"$work/project/program.cc"
cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(parent LANGUAGES C CXX)
add_subdirectory("$TEST_SOURCE_DIR" tutti)
add_executable(program program.cc)
target_link_libraries(program PRIVATE tutti::tutti)
install(TARGETS program)
END
configure() { # FOLDER OPTION...
  cmake -S "$work/project" -B "$work/$1" -G "Unix Makefiles" "${@:2}" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "cmake ${*:2}"; }
}
cached() { sed -n "s/^$2:[A-Z]*=//p" "$work/$1/CMakeCache.txt"; }
rules() { find "$work/$1" -name cmake_install.cmake -exec grep -hE 'file\(INSTALL|scripts/man' {} +; }

configure plain
[ -z "$(cached plain CMAKE_BUILD_TYPE)" ] || fail "build type $(cached plain CMAKE_BUILD_TYPE), and none was asked for"
[ "$(rules plain | wc -l)" = 1 ] || { rules plain; fail "not the program alone is installed"; }
cmake --build "$work/plain" --target help >"$work/targets"
for target in tutti_command all_reduce_perf tutti_test_main installed tutti_static package; do
  if grep -qx "\.\.\. $target" "$work/targets"; then fail "the project has Tutti's target $target"; fi
done

configure plain -DCMAKE_BUILD_TYPE=Debug -DTUTTI_INSTALL=ON
[ "$(cached plain CMAKE_BUILD_TYPE)" = Debug ] || fail "build type $(cached plain CMAKE_BUILD_TYPE), not Debug"
find "$work/plain" -name cmake_install.cmake -exec cat {} + >"$work/rules"
for file in libtutti.so tutti.pc tutti-config.cmake include/tutti; do
  grep -q "/$file" "$work/rules" || { cat "$work/rules"; fail "TUTTI_INSTALL=ON does not install $file"; }
done
[ ! -e "$work/plain/CPackConfig.cmake" ] || fail "Tutti configures the project's packages"

# The commands are built, and stay where they are.
configure plain -DTUTTI_INSTALL=OFF -DTUTTI_TOOLS=ON
[ "$(rules plain | wc -l)" = 1 ] || { rules plain; fail "tools are installed without TUTTI_INSTALL"; }
echo ok
