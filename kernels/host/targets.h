// File: kernels/host/targets.h: Highway, for the instruction sets that we compile for: AVX2, AVX3
// and NEON beside the compiler's baseline. Leaving out what no machine that runs this for speed
// lacks keeps compile time and size down. Vectors without a size at compile time (SVE, RISC-V)
// can't stand in arrays, which blocks of registers are.
#pragma once
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/detect_targets.h>
// Older versions of Highway lack some of these names.
#ifndef HWY_SVE_256
#define HWY_SVE_256 0
#endif
#ifndef HWY_SVE2_128
#define HWY_SVE2_128 0
#endif
