// Calls with a wire: the bits are those of the definition on every transport, whatever the plan;
// the error keeps its bound and has no mean; what can't be had is refused, and training converges.
#include "algorithms/algorithm.h"
#include "plan/structure.h"
#include "support/catch.h"
#include "support/cluster.h"
#include "support/kinds.h"
#include "support/net/networks.h"
#include "support/transports.h"

namespace tutti::test {
namespace {

const std::vector<Wire>& all_wires() {
  static const std::vector<Wire> kWires = [] {
    std::vector<Wire> wires;
    for (int format = 1; format < kWireFormats; ++format) {
      for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic})
        wires.emplace_back(static_cast<WireFormat>(format), rounding);
    }
    return wires;
  }();
  return kWires;
}

constexpr std::size_t kCounts[] = {1, 2, 31, 32, 33, 63, 64, 65, 127, 500, 1000, 4097, 10007};

Case random_case(std::mt19937_64& random, Collective collective, int ranks) {
  Case test;
  test.collective = collective;
  test.ranks = ranks;
  do {
    test.op = all_ops()[random() % all_ops().size()];
  } while (is_bitwise(test.op));
  test.wire = all_wires()[random() % all_wires().size()];
  test.count = kCounts[random() % std::size(kCounts)];
  test.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  test.in_place = random() % 2 == 0;
  test.mapped = random() % 2 == 0;
  test.misalign = random() % 3 == 0 ? random() % 32 : 0;
  return test;
}

void check_cases(const Settings& settings, Collective collective, int ranks, int cases,
                 std::uint64_t seed) {
  INFO("settings: algorithm '" << settings.algorithm << "' transport " << settings.transport
                               << " slot_bytes " << settings.slot_bytes << " slots "
                               << settings.slot_count << " lanes " << settings.lanes << "; "
                               << ranks << " ranks, seed " << seed);
  auto comms = Communicator::in_process(ranks, settings);
  if (!comms) FAIL(comms.error().to_string());
  const std::string complaint = on_all_ranks(*comms, [&](Communicator& comm) {
    std::mt19937_64 random(seed);  // The same cases on every rank.
    std::uint64_t calls = 0;
    for (int i = 0; i < cases; ++i) {
      Case test = random_case(random, collective, ranks);
      if (random() % 4 == 0) test.wire = {};  // Plain calls between them.
      if (!test.wire.is_plain()) test.wire_call = ++calls;
      if (auto wrong = run_case(comm, test, seed + static_cast<std::uint64_t>(i)); !wrong.empty())
        return wrong;
    }
    return std::string();
  });
  leave(*comms);
  CHECK(complaint == "");
}

/// With some root.
bool sends_partials(const Algorithm& algorithm, plan::Shape shape) {
  for (shape.root = 0; shape.root < shape.rank_count; ++shape.root) {
    if (plan::sends_partials(build(algorithm, shape))) return true;
    if (!has_root(shape.collective)) break;
  }
  return false;
}

TEST_CASE("a call with a wire has the bits of its definition on every transport") {
  std::mt19937_64 random(Catch::rngSeed());
  for (const Transport* transport : transports_here()) {
    Sample sample(share_with(*transport));
    for (const Algorithm* algorithm : algorithms()) {
      for (const int ranks : {1, 2, 3, 4, 5, 8}) {
        const plan::Shape shape{algorithm->collective, ranks, 0, 1};
        if (!algorithm->applies(shape) || too_many(ranks) ||
            algorithm->contract(shape) == Contract::kRelaxed || sends_partials(*algorithm, shape))
          continue;
        const std::string name =
            std::string(to_string(algorithm->collective)) + "=" + std::string(algorithm->name);
        sample.add(name, [&random, transport, algorithm, name, ranks] {
          Settings settings;
          settings.transport = transport->name;
          settings.algorithm = name;
          settings.timeout = std::chrono::seconds(10);
          settings.slot_bytes = std::size_t{256} << random() % 5;  // Many tiles.
          settings.slot_count = 1 + static_cast<int>(random() % 3);
          settings.lanes = 1 + static_cast<int>(random() % 3);
          check_cases(settings, algorithm->collective, ranks, 8, random());
        });
      }
    }
    sample.run(random);
  }
}

/// What docs/compression.md says that the sum of `ranks` values can be off, if none is larger than
/// `largest`.
double bound(const Wire& wire, int ranks, double largest) {
  double step = 0;  // That of the largest value, and so of its block.
  switch (wire.format) {
    case WireFormat::kFloat16: step = 0x1p-10; break;
    case WireFormat::kBfloat16: step = 0x1p-7; break;
    case WireFormat::kInt8: step = 2.0 / 127; break;
    case WireFormat::kFloat8: step = 0x1p-3; break;
    case WireFormat::kPlain: break;
  }
  const double share = wire.rounding == Rounding::kNearest ? 0.5 : 1;
  // Each input once, the result once (which the inputs' errors may have made larger), and what
  // float32 rounds.
  const double inputs = ranks * largest * step * share;
  const double result = (ranks * largest + inputs) * (step * share + ranks * 0x1p-24);
  return inputs + result;
}

TEST_CASE("the error of an all-reduce keeps the bound that the page states") {
  std::mt19937_64 random(Catch::rngSeed());
  for (const int ranks : {2, 3, 5, 8}) {
    const std::uint64_t seed = random();
    auto comms = Communicator::in_process(ranks);
    REQUIRE(comms);
    CHECK(on_all_ranks(*comms, [&](Communicator& comm) {
            std::mt19937_64 same(seed);
            for (int i = 0; i < 40; ++i) {
              Case test = random_case(same, Collective::kAllReduce, ranks);
              std::vector<double> exact(test.count);
              std::vector<float> mine(test.count), sum(test.count);
              double largest = 0;
              for (int rank = 0; rank < ranks; ++rank) {
                for (std::size_t at = 0; at < test.count; ++at) {
                  const float value = std::normal_distribution<float>()(same);
                  if (rank == comm.rank().value) mine[at] = value;
                  exact[at] += double{value};
                  largest = std::max<double>(largest, std::abs(value));
                }
              }
              test.op = ReduceOp::kSum;
              const double most = bound(test.wire, ranks, largest);
              // Not by CHECK, which several threads can't do at once.
              if (!(error_bound(test.wire, ranks, largest) == Approx(most)))
                return "error_bound is " + std::to_string(error_bound(test.wire, ranks, largest));
              if (auto status = call(comm, test, mine.data(), sum.data()); !status)
                return status.error().to_string();
              for (std::size_t at = 0; at < test.count; ++at) {
                if (std::abs(double{sum[at]} - exact[at]) > most)
                  return test.to_string() + ": " + std::to_string(sum[at]) + " is not near " +
                         std::to_string(exact[at]);
              }
            }
            return std::string();
          }) == "");
  }
}

TEST_CASE("with stochastic rounding the mean of many calls is the exact sum") {
  constexpr int kRanks = 3, kCalls = 3000;
  constexpr std::size_t kCount = 40;
  for (const WireFormat format : {WireFormat::kBfloat16, WireFormat::kInt8, WireFormat::kFloat8}) {
    auto comms = Communicator::in_process(kRanks);
    REQUIRE(comms);
    CHECK(on_all_ranks(*comms, [&](Communicator& comm) {
            std::mt19937_64 random(5);
            std::vector<double> exact(kCount), total(kCount), square(kCount);
            std::vector<float> mine(kCount), sum(kCount);
            for (int rank = 0; rank < kRanks; ++rank) {
              for (std::size_t at = 0; at < kCount; ++at) {
                const float value = std::normal_distribution<float>()(random);
                if (rank == comm.rank().value) mine[at] = value;
                exact[at] += double{value};
              }
            }
            Case test;
            test.ranks = kRanks;
            test.count = kCount;
            test.wire = Wire(format, Rounding::kStochastic);
            for (int i = 0; i < kCalls; ++i) {
              if (auto status = call(comm, test, mine.data(), sum.data()); !status)
                return status.error().to_string();
              for (std::size_t at = 0; at < kCount; ++at) {
                const double error = double{sum[at]} - exact[at];
                total[at] += error;
                square[at] += error * error;
              }
            }
            for (std::size_t at = 0; at < kCount; ++at) {
              if (square[at] == 0) return std::string("nothing was rounded");
              // The sum itself is rounded to float32.
              if (std::abs(total[at]) > 5 * std::sqrt(square[at]) + kCalls * 1e-6)
                return "element " + std::to_string(at) + " is off by " +
                       std::to_string(total[at] / kCalls) + " on average";
            }
            return std::string();
          }) == "");
  }
}

/// The outcome of a request on four ranks that make the same.
Error refusal(const Request& request, const Settings& settings = {}) {
  auto comms = Communicator::in_process(4, settings);
  REQUIRE(comms);
  std::vector<Error> errors(4);
  on_all_ranks(*comms, [&](Communicator& comm) {
    if (auto status = comm.call(request); !status)
      errors[static_cast<std::size_t>(comm.rank().value)] = status.error();
    return std::string();
  });
  CHECK(errors[0].code == errors[1].code);
  return errors[0];
}

TEST_CASE("a call that a wire can't take is refused, and says why") {
  std::vector<float> data(64);
  Request request{.input = data.data(),
                  .output = data.data(),
                  .count = 64,
                  .type = DataType::kFloat32,
                  .wire = WireFormat::kInt8};
  const auto refuses = [&](const std::string& why) {
    const Error error = refusal(request);
    CHECK(error.code == Code::kInvalidArgument);
    INFO(error.what);
    CHECK(error.what.find(why) != std::string::npos);
  };
  request.type = DataType::kBfloat16;
  refuses("all_reduce: the wire int8 is for float32, not bfloat16");
  request.type = DataType::kFloat32;
  request.algorithm = "halving_doubling";
  refuses("halving_doubling");
  request.algorithm = {};
  request.wire = Wire(static_cast<WireFormat>(99), Rounding::kNearest);
  refuses("does not exist");
  request.wire = WireFormat::kFloat8;
  const std::size_t counts[] = {32, 32, 32, 32};
  request.collective = Collective::kAllGather;
  request.vector_variant = true;
  request.count = 32;
  request.output_blocks = {counts, {}};
  refuses("the wire float8 is for blocks of one size");
}

TEST_CASE("ranks that differ in the wire get a mismatch that says so") {
  auto comms = Communicator::in_process(2);
  REQUIRE(comms);
  CHECK(on_all_ranks(*comms, [&](Communicator& comm) {
          std::vector<float> data(1000, 1.0F);
          Request request{.input = data.data(),
                          .output = data.data(),
                          .count = data.size(),
                          .type = DataType::kFloat32};
          request.wire = comm.rank() == Rank{0} ? Wire(WireFormat::kInt8)
                                                : Wire(WireFormat::kInt8, Rounding::kNearest);
          const Status status = comm.call(request);
          if (status) return std::string("no error");
          const bool both = status.error().what.find("as int8:nearest") != std::string::npos &&
                            status.error().what.find("as int8,") != std::string::npos;
          return status.error().code == Code::kMismatch && both ? "" : status.error().to_string();
        }) == "");
}

TEST_CASE("the setting is for all-reduces of float32 that sum or average, and for no other call") {
  Settings settings;
  settings.wire = WireFormat::kBfloat16;
  auto comms = Communicator::in_process(2, settings);
  REQUIRE(comms);
  CHECK(on_all_ranks(*comms, [&](Communicator& comm) {
          const float odd = 1 + 0x1p-20F;  // No bfloat16.
          for (int round = 0; round < 3; ++round) {
            const auto reduced = [&](Collective collective, ReduceOp op) {
              std::vector<float> in(2, odd), out(4);
              (void)comm.call({.collective = collective,
                               .input = in.data(),
                               .output = out.data(),
                               .count = 1,
                               .type = DataType::kFloat32,
                               .reduction = op});
              return out[0];
            };
            if (reduced(Collective::kAllReduce, ReduceOp::kSum) != 2) return "a sum is exact";
            if (reduced(Collective::kAllReduce, ReduceOp::kAvg) != 1) return "an average is exact";
            if (reduced(Collective::kAllReduce, ReduceOp::kMax) != odd) return "max is rounded";
            if (reduced(Collective::kReduceScatter, ReduceOp::kSum) != 2 * odd)
              return "a reduce-scatter is rounded";
            if (reduced(Collective::kAllGather, ReduceOp::kSum) != odd)
              return "a gather is rounded";
          }
          return "";
        }) == "");
}

/// Least squares by gradient descent on `ranks` ranks; the distance from the solution at the end.
double descend(Communicator& comm, const Wire& wire, std::string& complaint) {
  constexpr std::size_t kUnknowns = 48, kRows = 96;
  constexpr int kSteps = 300;
  constexpr float kRate = 0.4F;
  std::mt19937_64 random(100 + static_cast<std::uint64_t>(comm.rank().value));
  std::normal_distribution<float> normal;
  std::vector<float> solution(kUnknowns), matrix(kRows * kUnknowns), weights(kUnknowns);
  for (std::size_t i = 0; i < kUnknowns; ++i) solution[i] = std::sin(static_cast<float>(i));
  for (float& entry : matrix) entry = normal(random);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> gradient(kUnknowns);
    for (std::size_t row = 0; row < kRows; ++row) {
      const float* const a = &matrix[row * kUnknowns];
      float residual = 0;
      for (std::size_t i = 0; i < kUnknowns; ++i) residual += a[i] * (weights[i] - solution[i]);
      for (std::size_t i = 0; i < kUnknowns; ++i) gradient[i] += a[i] * residual / kRows;
    }
    Request request{.input = gradient.data(),
                    .output = gradient.data(),
                    .count = kUnknowns,
                    .type = DataType::kFloat32,
                    .reduction = ReduceOp::kAvg};
    request.wire = wire;
    if (auto status = comm.call(request); !status) complaint = status.error().to_string();
    for (std::size_t i = 0; i < kUnknowns; ++i) weights[i] -= kRate * gradient[i];
  }
  double distance = 0;
  for (std::size_t i = 0; i < kUnknowns; ++i)
    distance += std::pow(double{weights[i]} - double{solution[i]}, 2);
  return std::sqrt(distance);
}

TEST_CASE("gradient descent converges with each wire") {
  for (const Wire& wire : all_wires()) {
    auto comms = Communicator::in_process(2);
    REQUIRE(comms);
    INFO(to_string(wire));
    CHECK(on_all_ranks(*comms, [&](Communicator& comm) {
            std::string complaint;
            const double distance = descend(comm, wire, complaint);
            // It begins at 4.9. Errors shrink with the gradient.
            return !complaint.empty() || distance < 1e-4
                       ? complaint
                       : "is still off by " + std::to_string(distance);
          }) == "");
  }
}

}  // namespace
}  // namespace tutti::test
