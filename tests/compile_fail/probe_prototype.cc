// The probe declares the functions of the CUDA driver itself: with other parameters than NVIDIA's.
// expect: cuDeviceGet is not passed what CUDA 2000 takes
#include "topology/probe/sources/cuda_functions.h"

#include <cudaTypedefs.h>

#include <type_traits>

namespace {

/// The probe has numbers where NVIDIA's header has enumerations.
template <class Ours, class Theirs>
constexpr bool kAlike = std::is_same_v<Ours, Theirs> ||
                        (std::is_enum_v<Theirs> && std::is_integral_v<Ours> &&
                         sizeof(Ours) == sizeof(Theirs));
template <class Ours, class Theirs>
constexpr bool kPassedAlike = false;
template <class Result, class... Ours, class TheirResult, class... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(
             Theirs)) constexpr bool kPassedAlike<Result (*)(Ours...), TheirResult (*)(Theirs...)> =
    kAlike<Result, TheirResult> && (kAlike<Ours, Theirs> && ...);

#define SAME(field, name, version, ...)                                      \
  static_assert(kPassedAlike<int (*)(__VA_ARGS__), PFN_##name##_v##version>, \
                #name " is not passed what CUDA " #version " takes");
TUTTI_PROBED_CUDA_FUNCTIONS(SAME)
#ifdef TUTTI_MISUSE
SAME(device, cuDeviceGet, 2000, long*, int)
#endif

}  // namespace
