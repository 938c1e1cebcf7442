// File: cuda/driver/prototypes.h: that the functions of the driver that are looked up by name have
// the prototypes by which they are called. A header of another CUDA may rename a function to a
// later one with other parameters; what a look-up by name finds is still that of the version that
// was asked for.
//
// NVIDIA's cudaTypedefs.h has the prototypes by version. Where it is missing nothing is compared.
#pragma once
#include <type_traits>

#include "cuda/driver/driver.h"

#if __has_include(<cudaTypedefs.h>)
#include <cudaTypedefs.h>

/// Does not compile unless `name` has the prototype that it had in CUDA `version`, which a look-up
/// may find.
#define TUTTI_CUDA_PROTOTYPE(field, name, version)                           \
  static_assert(std::is_same_v<decltype(&name), PFN_##name##_v##version>,    \
                #name " has another prototype than that of CUDA " #version); \
  static_assert((version) <= ::tutti::exec::kCudaDriverVersion,              \
                #name " is later than what is asked for");
#else
#define TUTTI_CUDA_PROTOTYPE(field, name, version)
#endif
