// File: simt/nvcc/prelude.h: what bin/nvcc includes ahead of a program's source.
//
// CUDA's own headers come first, while they take the compiler for a host's: later includes of them
// are then empty. Behind them the compiler passes for nvcc, and CUDA's words are words again, for
// translate.py to find.
#pragma once
#include "simt/language.h"
// language.h first.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdio>

#include "simt/nvcc/atomics.h"
#include "simt/nvcc/functions.h"
#include "simt/nvcc/launch.h"
#include "simt/nvcc/ptx.h"

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __grid_constant__
#undef __launch_bounds__
#undef __maxnreg__
#undef __cluster_dims__
#undef __block_size__

#define __NVCC__ 1
#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ TUTTI_SIMT_NVCC_MAJOR
#define __CUDACC_VER_MINOR__ TUTTI_SIMT_NVCC_MINOR
#define __CUDACC_VER_BUILD__ 0
#if TUTTI_SIMT_ARCH > 0
#define __CUDA_ARCH__ TUTTI_SIMT_ARCH
#endif
#pragma tutti_prelude_end
