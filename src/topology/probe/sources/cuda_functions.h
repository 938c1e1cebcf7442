// File: topology/probe/sources/cuda_functions.h: CUDA's driver interface as its public
// documentation has it, so far as the probe uses it. A device is a number; answers are numbers.
//
// The library is asked for these names by dlsym, which finds what a name without a suffix means:
// the function's first version. tests/compile_fail/probe_prototype.cc compares them with NVIDIA's
// header.
#pragma once

/// What each is called here and there, the CUDA that has it first, and its parameters.
#define TUTTI_PROBED_CUDA_FUNCTIONS(X)                       \
  X(init, cuInit, 2000, unsigned)                            \
  X(version, cuDriverGetVersion, 2020, int*)                 \
  X(count, cuDeviceGetCount, 2000, int*)                     \
  X(device, cuDeviceGet, 2000, int*, int)                    \
  X(bus, cuDeviceGetPCIBusId, 4010, char*, int, int)         \
  X(attribute, cuDeviceGetAttribute, 2000, int*, int, int)   \
  X(can_access, cuDeviceCanAccessPeer, 4000, int*, int, int) \
  X(pair_attribute, cuDeviceGetP2PAttribute, 8000, int*, int, int, int)
