// File: unit/exec/reduce_test.cc: `reduce` equals `reduce_reference` bit for bit, for every type
// and operation and on every instruction set that this machine has, whatever the shape, the forms,
// the alignment and the stores.
//
// Buffers end at a page that can't be touched, and bytes around them are checked, so that a step
// that reads or writes outside its elements fails here.
#include "kernels/host/reduce.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/host/kernel_table.h"
#include "kernels/host/targets.h"
#include "support/catch.h"
#include "support/kinds.h"
#include "tutti/detail/reduce_op.h"
// After the choice of instruction sets.
#include <hwy/highway.h>

namespace tutti::kernels {
namespace {

constexpr std::size_t kMostElements = 4097;
constexpr std::size_t kPage = 4096;
constexpr std::byte kUntouched{0xa5};

/// One table for each instruction set of this machine.
const std::vector<KernelTable>& all_tables() {
  static const std::vector<KernelTable> kTables = [] {
    std::vector<KernelTable> tables;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      tables.push_back(make_table());
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    return tables;
  }();
  return kTables;
}

/// Room for the largest buffer with a page behind it that faults.
class Guarded {
 public:
  Guarded() {
    void* memory =
        mmap(nullptr, kBytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    base_ = static_cast<std::byte*>(memory);
    REQUIRE(mprotect(base_ + kBytes, kPage, PROT_NONE) == 0);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  Guarded(Guarded&& other) noexcept : base_(std::exchange(other.base_, nullptr)) {}
  ~Guarded() {
    if (base_ != nullptr) munmap(base_, kBytes + kPage);
  }

  /// `bytes` that begin `offset` after a page's beginning.
  std::byte* at(std::size_t offset) { return base_ + kPage + offset; }
  /// `bytes` that end where memory ends.
  std::byte* last(std::size_t bytes) { return base_ + kBytes - bytes; }
  std::byte* begin() { return base_; }

  static constexpr std::size_t kBytes = (kMostElements * 8 + 4 * kPage) / kPage * kPage;

 private:
  std::byte* base_ = nullptr;
};

using Bytes = std::vector<std::byte>;

/// One step in the abstract: what a Step says but for the addresses.
struct Case {
  Arithmetic arithmetic;
  std::vector<Source> sources;  // data is null
  std::vector<Target> targets;  // data is null
  std::size_t count = 0;
  Stores stores = Stores::kCached;
  bool tight = false;                // Buffers end where memory ends.
  std::vector<std::size_t> offsets;  // Else: of sources, then of targets.
  int in_place = -1;                 // Target 0 is the memory of this source.

  std::size_t bytes(Form form) const { return count * element_bytes(arithmetic.type, form); }

  std::string describe() const {
    std::string text =
        fmt::format("{} {}, count {}, rank count {}, sources", to_string(arithmetic.type),
                    to_string(arithmetic.op), count, arithmetic.rank_count);
    for (const Source& source : sources) {
      text += fmt::format(" {}{}", static_cast<int>(source.form), source.scale ? "*" : "");
    }
    text += ", targets";
    for (const Target& target : targets) text += fmt::format(" {}", static_cast<int>(target.form));
    text += stores == Stores::kStreaming ? ", streaming" : ", cached";
    if (in_place >= 0) text += fmt::format(", in place of source {}", in_place);
    return text + (tight ? ", at the end of memory"
                         : fmt::format(", offsets {}", fmt::join(offsets, " ")));
  }
};

/// A value that is written as bits of `type`.
void put(DataType type, std::byte* to, double value) {
  dispatch(type, ReduceOp::kSum, [&]<DataType kType, ReduceOp>() {
    using E = Element<kType>;
    const auto stored = E::round(static_cast<typename E::Accumulator>(value));
    std::memcpy(to, &stored, sizeof(stored));
  });
}

/// Tame: numbers whose sums round, seldom overflow and are never NaN. Else: any bits, and often
/// special ones.
Bytes random_elements(DataType type, std::size_t count, bool tame, std::mt19937& random) {
  const std::size_t size = size_of(type);
  Bytes bytes(count * size);
  const double infinity = std::numeric_limits<double>::infinity();
  const double specials[] = {0.0, -0.0, infinity, -infinity, 1e-40, 3e38, 448.0, 6e-8};
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* to = bytes.data() + i * size;
    if (is_integer(type) || (!tame && random() % 8 != 0)) {
      const std::uint64_t bits = std::uint64_t{random()} << 32 | random();
      std::memcpy(to, &bits, size);
    } else if (tame) {
      const double mantissa = static_cast<double>(random()) / 4294967296.0 * 2 - 1;
      put(type, to, std::ldexp(mantissa, static_cast<int>(random() % 9) - 4));
    } else {
      put(type, to, specials[random() % std::size(specials)]);
    }
  }
  return bytes;
}

template <class T>
bool is_nan_at(const std::byte* data, std::size_t index) {
  T stored;
  std::memcpy(&stored, data + index * sizeof(T), sizeof(T));
  if constexpr (std::is_floating_point_v<T>) {
    return std::isnan(stored);
  } else if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    return std::isnan(to_float(stored));
  }
}

/// The first element that differs, with NaN equal to NaN; `count` if none does.
std::size_t first_difference(DataType type, const std::byte* a, const std::byte* b,
                             std::size_t count) {
  if (count == 0 || std::memcmp(a, b, count * size_of(type)) == 0) return count;
  std::size_t index = 0;
  dispatch(type, ReduceOp::kSum, [&]<DataType kType, ReduceOp>() {
    using T = typename Element<kType>::Storage;
    for (; index < count; ++index) {
      const bool same = std::memcmp(a + index * sizeof(T), b + index * sizeof(T), sizeof(T)) == 0;
      if (!same && !(is_nan_at<T>(a, index) && is_nan_at<T>(b, index))) return;
    }
  });
  return index;
}

/// Runs a Case by the reference once and by each table, and compares.
class Comparison {
 public:
  /// What went wrong first, or nothing.
  std::string run(const Case& test, bool tame, std::mt19937& random) {
    std::vector<Bytes> inputs;
    for (const Source& source : test.sources) {
      const DataType type = type_of(test, source.form);
      inputs.push_back(random_elements(type, test.count, tame, random));
    }
    std::vector<Bytes> expected;
    std::vector<Source> sources = test.sources;
    std::vector<Target> targets = test.targets;
    for (std::size_t i = 0; i < sources.size(); ++i) sources[i].data = inputs[i].data();
    for (Target& target : targets) {
      expected.emplace_back(test.bytes(target.form));
      target.data = expected.back().data();
    }
    reduce_reference(test.arithmetic, sources, targets, test.count);
    for (const KernelTable& table : all_tables()) {
      std::string problem = run_one(test, table, inputs, expected);
      if (!problem.empty()) return std::string(table.instruction_set) + ": " + problem;
    }
    return {};
  }

 private:
  static DataType type_of(const Case& test, Form form) {
    return form == Form::kPartial ? accumulator_of(test.arithmetic.type) : test.arithmetic.type;
  }

  std::string run_one(const Case& test, const KernelTable& table, const std::vector<Bytes>& inputs,
                      const std::vector<Bytes>& expected) {
    while (memory_.size() < inputs.size() + expected.size()) memory_.emplace_back();
    std::vector<Source> sources = test.sources;
    std::vector<Target> targets = test.targets;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::byte* data = place(test, i, inputs[i].size());
      if (!inputs[i].empty()) std::memcpy(data, inputs[i].data(), inputs[i].size());
      sources[i].data = data;
    }
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const std::size_t slot = inputs.size() + i;
      targets[i].data = place(test, slot, expected[i].size());
      std::memset(memory_[slot].begin(), static_cast<int>(kUntouched), Guarded::kBytes);
      if (i == 0 && test.in_place >= 0) {
        const auto source = static_cast<std::size_t>(test.in_place);
        targets[0].data = place(test, source, expected[0].size());
      }
    }
    reduce_by(table, {test.arithmetic, sources, targets, test.count, test.stores});
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const std::size_t at = first_difference(type_of(test, targets[i].form), targets[i].data,
                                              expected[i].data(), test.count);
      if (at != test.count) {
        return "target " + std::to_string(i) + " is wrong at element " + std::to_string(at);
      }
      if (i == 0 && test.in_place >= 0) continue;
      if (!untouched_around(memory_[inputs.size() + i], targets[i].data, expected[i].size())) {
        return "target " + std::to_string(i) + " was written outside its elements";
      }
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (static_cast<int>(i) == test.in_place || inputs[i].empty()) continue;
      if (std::memcmp(sources[i].data, inputs[i].data(), inputs[i].size()) != 0) {
        return "source " + std::to_string(i) + " was changed";
      }
    }
    return {};
  }

  std::byte* place(const Case& test, std::size_t slot, std::size_t bytes) {
    return test.tight ? memory_[slot].last(bytes) : memory_[slot].at(test.offsets[slot]);
  }

  static bool untouched_around(Guarded& memory, const std::byte* data, std::size_t bytes) {
    const std::byte* begin = memory.begin();
    const auto before = static_cast<std::size_t>(data - begin);
    const std::byte* behind = data + bytes;
    const Bytes filler(Guarded::kBytes, kUntouched);
    return std::memcmp(begin, filler.data(), before) == 0 &&
           std::memcmp(behind, filler.data(), Guarded::kBytes - before - bytes) == 0;
  }

  std::vector<Guarded> memory_;
};

Form random_form(std::mt19937& random, int kind, Form plain) {
  // All plain, all partials, or any.
  if (kind == 0) return plain;
  if (kind == 1) return Form::kPartial;
  return static_cast<Form>(random() % 3);
}

Case random_case(DataType type, ReduceOp op, std::size_t n, std::size_t m, std::size_t count,
                 std::mt19937& random) {
  Case test;
  test.arithmetic = {type, op, static_cast<int>(random() % 1000 + 1),
                     static_cast<double>(random() % 1000) / 64 - 7,
                     static_cast<std::int64_t>(std::uint64_t{random()} << 32 | random())};
  test.count = count;
  test.stores = random() % 2 == 0 ? Stores::kStreaming : Stores::kCached;
  test.tight = random() % 4 == 0;
  const int source_kind = static_cast<int>(random() % 4),
            target_kind = static_cast<int>(random() % 4);
  const bool scales = op == ReduceOp::kPreMulSum || random() % 4 == 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Form form = random_form(random, source_kind % 3, Form::kContribution);
    test.sources.push_back({nullptr, form, scales && random() % 2 == 0});
  }
  for (std::size_t i = 0; i < m; ++i) {
    test.targets.push_back({nullptr, random_form(random, target_kind % 3, Form::kResult)});
  }
  // Streaming wants targets that are aligned together; let half of the cases be so.
  const std::size_t together = random() % 64 / size_of(type) * size_of(type);
  const bool aligned = random() % 2 == 0;
  for (std::size_t i = 0; i < n + m; ++i) {
    test.offsets.push_back(aligned && i >= n ? together : random() % 65);
  }
  if (random() % 4 == 0) {
    const std::size_t source = random() % n;
    if (element_bytes(type, test.sources[source].form) ==
        element_bytes(type, test.targets[0].form)) {
      test.in_place = static_cast<int>(source);
    }
  }
  return test;
}

const std::vector<std::size_t> kCounts{0, 1, 3, 7, 15, 16, 17, 63, 64, 65, 1000, kMostElements};

}  // namespace

TEST_CASE("reduce equals the reference for every type, operation and shape", "[reduce]") {
  const std::uint32_t seed = Catch::rngSeed();
  std::mt19937 random(seed);
  Comparison comparison;
  for (const DataType type : test::all_types()) {
    for (const ReduceOp op : test::all_ops()) {
      if (!is_supported(type, op)) continue;
      for (std::size_t n = 1; n <= 18; ++n) {
        for (const std::size_t count : kCounts) {
          const std::size_t m = random() % 4 + 1;
          const Case test = random_case(type, op, n == 18 ? 33 : n, m, count, random);
          const std::string problem = comparison.run(test, random() % 4 != 0, random);
          INFO("seed " << seed << ": " << problem << ": " << test.describe());
          REQUIRE(problem.size() == 0);
        }
      }
    }
  }
}

TEST_CASE("a thousand sources and a dozen targets", "[reduce]") {
  const std::uint32_t seed = Catch::rngSeed();
  std::mt19937 random(seed);
  Comparison comparison;
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kInt8}) {
    const Case test = random_case(type, ReduceOp::kAvg, 1000, 12, 65, random);
    const std::string problem = comparison.run(test, true, random);
    INFO("seed " << seed << ": " << problem << ": " << test.describe());
    REQUIRE(problem.size() == 0);
  }
}

TEST_CASE("conversions equal the scalar ones on every instruction set", "[reduce]") {
  const std::uint32_t seed = Catch::rngSeed();
  std::mt19937 random(seed);
  for (const DataType type :
       {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    // All codes, and around each: its neighbours in float32 and the ties, on the finite side.
    const std::size_t codes = std::size_t{1} << (8 * size_of(type));
    Bytes narrow(codes * size_of(type));
    for (std::size_t i = 0; i < codes; ++i) {
      std::memcpy(narrow.data() + i * size_of(type), &i, size_of(type));
    }
    std::vector<float> wide(codes), expected(codes);
    const Arithmetic arithmetic{type, ReduceOp::kSum, 1, 1, 1};
    const Source from_narrow{narrow.data(), Form::kContribution};
    const Target to_expected{reinterpret_cast<std::byte*>(expected.data()), Form::kPartial};
    const Target to_wide{reinterpret_cast<std::byte*>(wide.data()), Form::kPartial};
    reduce_reference(arithmetic, std::span(&from_narrow, 1), std::span(&to_expected, 1), codes);
    std::vector<float> values = expected;
    for (std::size_t i = 0; i + 1 < codes; ++i) {
      const float middle = expected[i] / 2 + expected[i + 1] / 2;
      for (const float limit : {-INFINITY, INFINITY}) {
        values.push_back(std::nextafter(middle, limit));
        values.push_back(std::nextafter(expected[i], limit));
      }
      values.push_back(middle);
      values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    }
    const Source from_values{reinterpret_cast<const std::byte*>(values.data()), Form::kPartial};
    Bytes rounded(values.size() * size_of(type)), expected_rounded(rounded.size());
    const Target to_rounded{rounded.data(), Form::kResult};
    const Target to_expected_rounded{expected_rounded.data(), Form::kResult};
    reduce_reference(arithmetic, std::span(&from_values, 1), std::span(&to_expected_rounded, 1),
                     values.size());
    for (const KernelTable& table : all_tables()) {
      INFO("seed " << seed << ": " << to_string(type) << " on " << table.instruction_set);
      reduce_by(table, {arithmetic, std::span(&from_narrow, 1), std::span(&to_wide, 1), codes,
                        Stores::kCached});
      CHECK(first_difference(DataType::kFloat32, to_wide.data, to_expected.data, codes) == codes);
      reduce_by(table, {arithmetic, std::span(&from_values, 1), std::span(&to_rounded, 1),
                        values.size(), Stores::kCached});
      const std::size_t at =
          first_difference(type, rounded.data(), expected_rounded.data(), values.size());
      INFO("element " << at << ", float32 bits "
                      << std::bit_cast<std::uint32_t>(values[at < values.size() ? at : 0]));
      CHECK(at == values.size());
    }
  }
}

TEST_CASE("reduce uses an instruction set that was tested", "[reduce]") {
  REQUIRE_FALSE(all_tables().empty());
  bool found = false;
  for (const KernelTable& table : all_tables()) {
    found = found || std::string(table.instruction_set) == instruction_set();
  }
  CHECK(found);
  // And it reaches the tables, copies and both kinds of stores.
  const std::vector<float> a(1000, 1.5f), b(1000, 2.0f);
  std::vector<float> sum(1000), copy(1000);
  const Source sources[] = {{reinterpret_cast<const std::byte*>(a.data()), Form::kContribution},
                            {reinterpret_cast<const std::byte*>(b.data()), Form::kContribution}};
  const Target to_sum{reinterpret_cast<std::byte*>(sum.data()), Form::kResult};
  const Target to_copy{reinterpret_cast<std::byte*>(copy.data()), Form::kContribution};
  kernels::reduce({}, sources, std::span(&to_sum, 1), 1000, Stores::kStreaming);
  kernels::reduce({}, std::span(sources, 1), std::span(&to_copy, 1), 1000);
  CHECK(sum == std::vector<float>(1000, 3.5f));
  CHECK(copy == a);
}

}  // namespace tutti::kernels
