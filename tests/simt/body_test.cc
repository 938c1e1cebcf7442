// The body of a data step on a device, alone: any sources and targets, in any forms and formats,
// for every type and operation, bit for bit what the host's reference makes of the same.
#include "simt/language.h"
// The language comes first.
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/body.h"
#include "kernels/host/reduce.h"
#include "planner/kernel_shape.h"
#include "support/catch.h"
#include "support/kinds.h"
#include "support/sample.h"

namespace tutti {
namespace {

static_assert(cuda::kInFlight == planner::kKernelShape.loads_in_flight);

using cuda::Arguments;
using cuda::Resolved;
using cuda::SlotFormat;
using cuda::Watch;
using cuda::Work;

constexpr std::uint64_t kFlag = cuda::packed_flags(77, 77);

/// Does a step that was looked up already.
template <DataType type, ReduceOp op>
__global__ void do_step(Arguments arguments, const Work* work) {
  Watch watch{&arguments, blockIdx.x};
  bool failed = false;
  cuda::do_work<type, op>(arguments, *work, watch, failed);
  cuda::sync_block_or(failed);
}

/// Bytes of a slot that `units` units of `unit_bytes` (8, 16 or 32) take.
constexpr std::size_t slot_bytes_of(SlotFormat format, std::size_t units, std::size_t unit_bytes) {
  switch (format) {
    case SlotFormat::kSimple: return units * unit_bytes;
    case SlotFormat::kPacked: return units * unit_bytes * 2;
    case SlotFormat::kLine:
      return (units + cuda::kWarpUnits - 1) / cuda::kWarpUnits * ((unit_bytes + 15) / 16) *
             cuda::kWarpLineBytes;
  }
  return 0;
}

/// A sum stands for avg and premulsum.
constexpr ReduceOp kernel_op(ReduceOp op) {
  return op == ReduceOp::kAvg || op == ReduceOp::kPreMulSum ? ReduceOp::kSum : op;
}

/// Elements with all kinds of bits; floats with NaN and infinities, integers that overflow.
std::vector<std::byte> random_bytes(std::size_t bytes, std::mt19937_64& random) {
  std::vector<std::byte> data(bytes);
  for (auto& byte : data) byte = static_cast<std::byte>(random());
  return data;
}

/// What is known of a type once it is chosen at run time, so that only the kernels are templates.
struct TypeFacts {
  std::size_t elements, bytes, partial_bytes;  // A unit's.
  const void* kernel;
  bool (*is_nan)(const std::byte* stored);
  bool (*partial_is_nan)(const std::byte* partial);
};

template <class T>
bool is_nan(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  if constexpr (std::is_floating_point_v<T>) {
    return value != value;
  } else if constexpr (!std::is_arithmetic_v<T>) {
    const float wide = kernels::to_float(value);
    return wide != wide;
  }
  return false;
}

TypeFacts facts_of(DataType type, ReduceOp op) {
  TypeFacts facts = {};
  kernels::dispatch(type, op, [&]<DataType kType, ReduceOp kOp>() {
    using Traits = cuda::TypeTraits<kType>;
    const auto kernel = do_step<kType, kernel_op(kOp)>;
    facts = {Traits::kElements,
             Traits::kBytes,
             Traits::kPartialBytes,
             TUTTI_KERNEL_HANDLE(kernel),
             is_nan<typename Traits::Storage>,
             is_nan<typename Traits::Accumulator>};
  });
  return facts;
}

/// A tile in memory, as one location of the step has it.
struct Tile {
  Form form;
  SlotFormat format;
  std::size_t misalign;
  std::vector<std::byte> memory;
  Resolved resolved(std::size_t align_mask) {
    Resolved at = {};
    const auto start =
        (reinterpret_cast<std::uintptr_t>(memory.data()) + 127) & ~std::uintptr_t{127};
    at.at = reinterpret_cast<std::byte*>(start) + misalign;
    at.format = format;
    at.flag = kFlag;
    at.form = form;
    at.aligned = misalign % align_mask == 0;
    at.whole = format != SlotFormat::kSimple;
    return at;
  }
};

class Step {
 public:
  Step(DataType type, ReduceOp op, std::mt19937_64& random)
      : type_(type), op_(op), facts_(facts_of(type, op)), random_(random) {}

  /// Empty if all is well.
  std::string run() {
    const std::size_t n = 1 + random_() % (random_() % 2 == 0 ? 2 : cuda::kMostSources),
                      m = 1 + random_() % 4;
    // Long ones, so that threads have several units at a time.
    const std::size_t count = 1 + random_() % (random_() % 4 == 0 ? 6000 : 200);
    plain_ = random_() % 2 == 0;
    const Form of_all = random_() % 2 == 0 ? Form::kContribution : Form::kResult;
    kernels::Arithmetic arithmetic{type_, op_, 3, 1.5, 7};
    std::vector<std::vector<std::byte>> plain;
    std::vector<kernels::Source> sources;
    for (std::size_t s = 0; s < n; ++s) {
      const Form form = random_() % 3 == 0 && !plain_ ? Form::kPartial : Form::kContribution;
      plain.push_back(random_bytes(count * element_bytes(type_, form), random_));
      sources.push_back(
          {plain.back().data(), form, op_ == ReduceOp::kPreMulSum && random_() % 2 == 0});
    }
    std::vector<std::vector<std::byte>> want;
    std::vector<kernels::Target> targets;
    for (std::size_t t = 0; t < m; ++t) {
      const Form form = plain_ ? of_all : static_cast<Form>(random_() % 3);
      want.emplace_back(count * element_bytes(type_, form));
      targets.push_back({want.back().data(), form});
    }
    kernels::reduce_reference(arithmetic, sources, targets, count);
    const auto got = on_device(arithmetic, sources, targets, count);
    for (std::size_t t = 0; t < m; ++t) {
      if (!same(want[t], got[t], targets[t].form)) {
        return std::string(to_string(type_)) + " " + std::string(to_string(op_)) + ": " +
               std::to_string(n) + " sources, target " + std::to_string(t) + " of form " +
               std::to_string(static_cast<int>(targets[t].form)) + ", " + std::to_string(count) +
               " elements: " + formats_;
      }
    }
    return "";
  }

 private:
  // NaN payloads are not part of the contract.
  bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b, Form form) const {
    const std::size_t size = element_bytes(type_, form);
    const auto nan = form == Form::kPartial ? facts_.partial_is_nan : facts_.is_nan;
    for (std::size_t at = 0; at < a.size(); at += size) {
      const bool equal = std::memcmp(&a[at], &b[at], size) == 0;
      if (!equal && !(nan(&a[at]) && nan(&b[at]))) return false;
    }
    return true;
  }

  Tile tile(Form form, std::size_t units) {
    Tile made{form, plain_ ? SlotFormat::kSimple : cuda::kSlotFormats[random_() % 3], 0, {}};
    if (!plain_ && made.format == SlotFormat::kSimple && random_() % 2 == 0) {
      made.misalign = element_bytes(type_, form) * (random_() % 4);
    }
    const std::size_t unit = facts_.elements * element_bytes(type_, form);
    made.memory.resize(slot_bytes_of(made.format, units, unit) + 256);
    formats_ += std::string(cuda::to_string(made.format)) + (made.misalign != 0 ? "*" : "") + " ";
    return made;
  }

  /// From plain memory into a location's format, or from there: a copy on the device.
  void convert(const Resolved& from, const Resolved& to, std::size_t count) {
    Work work = {};
    work.locations[0] = from;
    work.locations[1] = to;
    work.source_count = work.target_count = 1;
    launch(Arguments{}, work, count, true);
  }

  void launch(Arguments arguments, Work& work, std::size_t count, bool copy) {
    static cuda::Report report = {};
    arguments.report = &report;
    arguments.timeout_ns = std::uint64_t{30} * 1000 * 1000 * 1000;
    work.elements = static_cast<unsigned>(count);
    work.copy = copy;
    work.first_thread = random_() % 2 * cuda::kWarpLanes;  // There are two warps.
    work.shares = 1;
    work.plain = true;
    for (unsigned i = 0; i < work.source_count + work.target_count; ++i) {
      const Resolved& at = work.locations[i];
      work.lined |= at.format == SlotFormat::kLine;
      if (i >= work.source_count) work.plain &= at.form == work.target(0).form;
      work.plain &= at.format == SlotFormat::kSimple && at.aligned &&
                    (at.form != Form::kPartial || facts_.bytes == facts_.partial_bytes);
    }
    const Work* given = &work;
    void* list[] = {&arguments, &given};
    REQUIRE(cudaLaunchKernel(facts_.kernel, dim3(1), dim3(64), list, 0, nullptr) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    REQUIRE(report.why == 0);
  }

  std::vector<std::vector<std::byte>> on_device(const kernels::Arithmetic& arithmetic,
                                                const std::vector<kernels::Source>& sources,
                                                const std::vector<kernels::Target>& targets,
                                                std::size_t count) {
    const std::size_t units = (count + facts_.elements - 1) / facts_.elements;
    formats_.clear();
    Work work = {};
    std::vector<Tile> tiles;
    tiles.reserve(sources.size() + targets.size());
    for (const auto& source : sources) {
      Tile& made = tiles.emplace_back(tile(source.form, units));
      Resolved plain = {};
      plain.at = const_cast<std::byte*>(source.data);
      plain.form = source.form;
      const Resolved at = made.resolved(16);
      convert(plain, at, count);
      work.locations[work.source_count] = at;
      if (source.scale) work.scaled |= 1u << work.source_count;
      ++work.source_count;
    }
    for (const auto& target : targets) {
      Tile& made = tiles.emplace_back(tile(target.form, units));
      work.locations[work.source_count + work.target_count++] = made.resolved(16);
    }
    Arguments arguments;
    arguments.op = arithmetic.op;
    arguments.ranks = static_cast<std::uint32_t>(arithmetic.rank_count);
    arguments.scale = arithmetic.scale;
    arguments.integer_scale = arithmetic.integer_scale;
    bool copy = sources.size() == 1 && !sources[0].scale;
    for (const auto& target : targets) copy &= target.form == sources[0].form;
    launch(arguments, work, count, copy);
    std::vector<std::vector<std::byte>> got;
    for (std::size_t t = 0; t < targets.size(); ++t) {
      Resolved plain = {};
      got.emplace_back(count * element_bytes(type_, targets[t].form));
      plain.at = got.back().data();
      plain.form = targets[t].form;
      convert(work.target(static_cast<unsigned>(t)), plain, count);
    }
    return got;
  }

  DataType type_;
  ReduceOp op_;
  TypeFacts facts_;
  std::mt19937_64& random_;
  bool plain_ = false;  // What long steps most often are: aligned, and in plain memory.
  std::string formats_;
};

TEST_CASE("a step on a device has the bits of the host's reference") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (const DataType type : test::all_types()) {
    for (const ReduceOp op : test::all_ops()) {
      if (!is_supported(type, op)) continue;
      for (int round = 0; round < (test::kSanitized ? 2 : 12); ++round) {
        simt::set_seed(random() % 2 == 0 ? 0 : random());
        REQUIRE(Step(type, op, random).run() == "");
      }
    }
  }
  simt::set_seed(0);
}

}  // namespace
}  // namespace tutti
