#!/usr/bin/env bash
# tests/simt/nvcc_test.sh TUTTI SIMULATED SOURCES WHAT: programs with kernels of their own, built by the
# compiler for simulated GPUs and run on them. TUTTI is the command, SIMULATED the folder of the simulated
# libraries, SOURCES tests/simt/nvcc, WHAT one of the functions below.
set -euo pipefail
tutti=$1 simulated=$2 sources=$3 what=$4
nvcc=$simulated/cuda/bin/nvcc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SIMT_MULTIPROCESSORS=8 TUTTI_LANES=1 TUTTI_TIMEOUT_MS=60000

fail() {
  echo "nvcc_test $what: $*" >&2
  [ ! -f "$work/out" ] || cat "$work/out" >&2
  exit 1
}

# build ARGUMENTS...: what nvcc does with them.
build() { "$nvcc" "$@" >"$work/out" 2>&1 || fail "not built: nvcc $*"; }

# run STATUS ARGUMENTS...: `tutti run` ends with that status.
run() {
  local want=$1 status=0
  shift
  timeout 120 "$tutti" run "$@" >"$work/out" 2>&1 || status=$?
  [ "$status" = "$want" ] || fail "status $status instead of $want: tutti run $*"
}

# lines COUNT PATTERN: so many lines of the output have it.
lines() { [ "$(grep -cE "$2" "$work/out")" = "$1" ] || fail "not $1 lines with: $2"; }

# Each device and each number of devices; with random orders of threads too.
language() {
  build -std=c++17 -O2 -arch=sm_80 -DEXPECTED_ARCH=800 "$sources/language.cu" "$sources/second.cu" -o "$work/language"
  for devices in 1 2 4; do
    run 0 --simulated-gpus "$devices" --no-prefix -- "$work/language"
    lines "$devices" 'device [0-9]: right$'
    lines "$devices" '^thread 1 of device says hello$'
  done
  SIMT_SEED=5 run 0 --simulated-gpus 1 --no-prefix -- "$work/language"
  lines 1 'device 0: right$'
}

# Declarations and launches in all their forms, as an older C++.
forms() {
  build -std=c++14 -arch=native -g "$sources/forms.cu" -o "$work/forms"
  [ ! -s "$work/out" ] || fail "nvcc complains"
  run 0 --simulated-gpus 1 --no-prefix -- "$work/forms"
  lines 1 '^right$'
}

# One process for all devices, and one for each.
ranks() {
  build -O2 "$sources/ranks.cu" -lnccl -o "$work/ranks"
  for devices in 1 2 4; do
    run 0 --simulated-gpus "$devices" --no-prefix -- "$work/ranks"
    lines "$devices" 'rank [0-9] of [0-9]: 0 wrong$'
    rm -f "$work/id"
    run 0 --simulated-gpus "$devices" -n "$devices" --no-prefix -- "$work/ranks" "$work/id"
    lines "$devices" 'rank [0-9] of [0-9]: 0 wrong$'
  done
  SPOIL=1 run 0 --simulated-gpus 2 --no-prefix -- "$work/ranks"
  lines 1 'rank 0 of 2: 1 wrong$'
  "$work/ranks" >"$work/out" 2>&1 || fail "without tutti run it does not find its libraries"
  lines 8 '0 wrong$'
}

# The command line: objects, archives, shared objects, dependencies, -rdc, a compiler of one's own.
options() {
  build --version
  grep -qE 'release [0-9]+\.[0-9]+, V' "$work/out" || fail "no version for Makefiles"
  build --help
  cd "$work"
  build -dc -gencode arch=compute_70,code=sm_70 '-gencode=arch=compute_90,code=[sm_90,compute_90]' -DSEPARATE -DEXPECTED_ARCH=900 \
    -MMD -MF deps.d -Xcompiler -Wall,-Wextra,-fPIC --expt-relaxed-constexpr -Xptxas -v -o language.o "$sources/language.cu"
  grep -q 'language.cuh' deps.d || fail "no dependencies: $(cat deps.d)"
  grep -q '^language.o:' deps.d || fail "dependencies of another file: $(cat deps.d)"
  build -dc -DSEPARATE "$sources/second.cu" "$sources/third.cu" -ccbin "${CXX:-c++}" --compiler-options=-fPIC
  build -dlink language.o second.o third.o -o linked.o
  build -lib -o parts.a second.o third.o
  build -cudart static language.o linked.o parts.a -o program -lcudadevrt -lcudart_static
  run 0 --simulated-gpus 2 --no-prefix -- "$work/program"
  lines 2 'device [0-9]: right$'
  build -shared -Xcompiler=-fPIC -DSEPARATE -rdc=true second.o third.o -o libparts.so
  build --default-stream per-thread -E "$sources/third.cu"
  grep -q start "$work/out" || fail "-E prints no source"
  printf '#include <cuda_runtime.h>\nint main() { int n = 0; return cudaGetDeviceCount(&n) == cudaSuccess && n == 3 ? 0 : 1; }\n' >host.cpp
  build host.cpp -o host
  run 0 --simulated-gpus 3 --no-prefix -- "$work/host"
  build -x cu host.cpp -o host
  build -dryrun host.cpp
  grep -q '^#\$ ' "$work/out" || fail "-dryrun prints no commands"
  ! "$nvcc" -ptx "$sources/third.cu" 2>"$work/out" || fail "it makes PTX"
  lines 1 'simulated GPUs have no machine code$'
  ! "$nvcc" --no-such-option third.cu 2>"$work/out" || fail "it takes any option"
  lines 1 'unknown option --no-such-option'
}

# mistake LINE PATTERN: the source on stdin is refused by one line that names its line.
mistake() {
  cat >"$work/mistake.cu"
  ! "$nvcc" -c "$work/mistake.cu" -o "$work/mistake.o" >"$work/out" 2>&1 || fail "built, though it has $2"
  lines 1 "mistake.cu:$1: error: simulated GPUs do not have .*$2"
  [ ! -e "$work/mistake.o" ] || fail "an object is left"
}

mistakes() {
  mistake 3 'inline PTX.*bar\.red' <<<'__global__ void kernel(int* x) {
  int y = 0;
  asm("bar.red.popc.u32 %0, 1, %1;" : "=r"(y) : "r"(*x));
  *x = y;
}'
  mistake 1 'cooperative groups' <<<'#include <cooperative_groups.h>
__global__ void kernel() { cooperative_groups::this_grid().sync(); }'
  mistake 2 'textures' <<<'__global__ void kernel(cudaTextureObject_t t, float* x) {
  *x = tex2D<float>(t, 0, 0);
}'
  mistake 2 'launches by kernels' <<<'__global__ void child() {}
__global__ void kernel() { child<<<1, 1>>>(); }'
  mistake 1 'tensor cores' <<<'#include <mma.h>'
  mistake 1 'Thrust and CUB' <<<'#include <thrust/device_vector.h>'
  mistake 1 'cuRAND' <<<'#include <curand_kernel.h>'
  mistake 2 '__activemask' <<<'
__device__ unsigned mask() { return __activemask(); }'
  mistake 2 'this rounding mode' <<<'
__device__ float sum(float x) { return __fadd_rz(x, x); }'
  mistake 3 'templates or members' <<<'
struct A {
  static __device__ int x;
};'
  mistake 3 'declarations that only devices see' <<<'
#ifdef __CUDA_ARCH__
__device__ int helper() { return 1; }
#endif
__global__ void kernel(int* x) {
#ifdef __CUDA_ARCH__
  *x = helper();
#endif
}'
  mistake 2 'clusters' <<<'
__global__ void __cluster_dims__(2, 1, 1) kernel() {}'
  # What the compiler itself says names the lines of the source.
  printf '\n\n__global__ void kernel(int* x) { *x = nonesuch; }\n' >"$work/mistake.cu"
  ! "$nvcc" -c "$work/mistake.cu" -o "$work/mistake.o" >"$work/out" 2>&1 || fail "built"
  lines 1 'mistake.cu:3:.*error: .nonesuch.'
}

# Inline PTX of one instruction is C++ here; loops that wait give way.
ptx() {
  cat >"$work/ptx.cu" <<'END'
#include <cstdio>
__device__ __forceinline__ unsigned lane() {
  unsigned lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
__global__ void kernel(unsigned long long* sum, unsigned* flag, int* old) {
  asm volatile("red.global.add.u64 [%0],%1;" ::"l"(sum), "l"((unsigned long long)lane()) : "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned seen;
    do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    while (seen != 7);
    asm volatile("atom.global.max.s32 %0, [%1], %2;\n\t" : "=r"(old[1]) : "l"(old), "r"(5) : "memory");
  } else if (threadIdx.x == 33) {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(7u) : "memory");
  }
  asm volatile("" ::: "memory");
}
int main() {
  unsigned long long* at;
  cudaMallocHost(&at, 64);
  for (int i = 0; i < 8; ++i) at[i] = 0;
  kernel<<<1, 64>>>(at, (unsigned*)(at + 1), (int*)(at + 2));
  return cudaDeviceSynchronize() == cudaSuccess && at[0] == 992 && ((int*)(at + 2))[0] == 5 ? 0 : 1;
}
END
  build "$work/ptx.cu" -o "$work/ptx"
  run 0 --simulated-gpus 1 -- "$work/ptx"
}

# What is installed, moved elsewhere: all that a program needs is there, or the toolkit's. TEST_BUILD_DIR is the
# build's folder, in which nothing may be looked for.
installed() {
  for component in nccl dev tools; do
    cmake --install "$TEST_BUILD_DIR" --component $component --prefix "$work/prefix" >"$work/out" || fail "not installed"
  done
  mv "$work/prefix" "$work/moved"
  nvcc=$(find "$work/moved" -path '*/simulated/cuda/bin/nvcc')
  local cuda=${nvcc%/bin/nvcc} tutti=$work/moved/bin/tutti
  local nccl=${cuda%/cuda}/nccl
  cp -r "$sources" "$sources/../programs" "$sources/../../../examples/cuda" "$work"
  cd "$work/cuda"
  build -M -std=c++20 --expt-relaxed-constexpr gemm_all_reduce.cu
  ! grep -E "$TEST_BUILD_DIR|$(realpath "$sources/../../..")" "$work/out" || fail "it includes files of the source or of the build"
  grep -q "$work/moved/include/tutti/device.cuh" "$work/out" || fail "it includes another device.cuh"
  build -std=c++20 -O3 --expt-relaxed-constexpr gemm_all_reduce.cu -ltutti -o "$work/gemm"
  run 0 --simulated-gpus 2 -n 2 --no-prefix -- "$work/gemm"
  # As a Makefile for CUDA and NCCL has it.
  cd "$work/nvcc"
  # shellcheck disable=SC2016 # They are make's.
  printf '%s\n' 'ranks: ranks.o; $(CUDA_HOME)/bin/nvcc -o $@ $^ -L$(CUDA_HOME)/lib64 -lcudart -L$(NCCL_HOME)/lib -lnccl' \
    'ranks.o: ranks.cu; $(CUDA_HOME)/bin/nvcc -I$(CUDA_HOME)/include -I$(NCCL_HOME)/include -o $@ -c $<' >Makefile
  make CUDA_HOME="$cuda" NCCL_HOME="$nccl" >"$work/out" 2>&1 || fail "not built by a Makefile"
  run 0 --simulated-gpus 2 --no-prefix -- "$work/nvcc/ranks"
  lines 2 '0 wrong$'
}

# The examples, by the command in their first lines.
examples() {
  cd "$sources/../../.."
  for source in examples/cuda/*.cu; do
    build -std=c++20 -O3 --expt-relaxed-constexpr "$source" -ltutti -o "$work/example"
    local arguments=()
    case $source in *ddp.cu) arguments=(trainer/data/digits.csv) ;; esac
    for count in 1 4; do
      run 0 --simulated-gpus "$count" -n "$count" --no-prefix -- "$work/example" "${arguments[@]}"
    done
  done
}

"$what"
