// CMake compiles this when it configures, and never links it. It compiles if our objects have the
// number that DDP's logger reads at the same place as gloo's.
#include <cstddef>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "like_gloo.h"

namespace {

// Both options_ are protected.
struct Theirs : c10d::ProcessGroupGloo {
  static constexpr std::size_t options_at() { return offsetof(Theirs, options_); }
};
struct Ours : tutti::python::LikeGloo {
  static constexpr std::size_t options_at() { return offsetof(Ours, options_); }
};

static_assert(Theirs::options_at() == Ours::options_at());
static_assert(offsetof(c10d::ProcessGroupGloo::Options, threads) ==
              offsetof(tutti::python::LikeGloo::Options, threads));
static_assert(sizeof(c10d::ProcessGroupGloo::Options::threads) ==
              sizeof(tutti::python::LikeGloo::Options::threads));

}  // namespace
