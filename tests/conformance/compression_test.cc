// Averages with error feedback: what is sent and what is kept make up the gradient, the error is
// what the header states, all ranks have the same bits, and gradient descent converges.
#include "tutti/compression.h"

#include <cmath>
#include <functional>
#include <random>

#include "support/catch.h"
#include "support/cluster.h"

namespace tutti::test {
namespace {

constexpr std::size_t kRows = 12, kColumns = 10, kCount = kRows * kColumns;

using Average = std::function<Status(Communicator&, std::span<float>)>;

/// One compressor of each kind for a rank, and how to see what it keeps.
struct Compressor {
  const char* name;
  Average average;
  std::function<std::span<const float>()> residual;
};
template <class Kind>
Compressor make(const char* name, Kind kind) {
  auto shared = std::make_shared<Kind>(std::move(kind));
  return {name,
          [shared](Communicator& comm, std::span<float> gradient) {
            return shared->average(comm, gradient);
          },
          [shared] { return shared->residual(); }};
}
std::vector<Compressor> all_compressors() {
  return {make("top-k", TopK(kCount, kCount / 10)), make("one bit", OneBit(kCount)),
          make("PowerSGD", PowerSgd(kRows, kColumns, 2))};
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * double{value};
  return std::sqrt(sum);
}

std::vector<float> draw(int rank, int step) {
  std::mt19937_64 random(static_cast<std::uint64_t>(1000 * rank + step));
  std::vector<float> values(kCount);
  for (float& value : values) value = std::normal_distribution<float>()(random);
  return values;
}

TEST_CASE("what was averaged and what is kept make up what was given, on all ranks alike") {
  for (const int ranks : {1, 2, 3}) {
    auto comms = Communicator::in_process(ranks);
    REQUIRE(comms);
    CHECK(on_all_ranks(*comms, [&](Communicator& comm) {
            for (Compressor& compressor : all_compressors()) {
              const std::string name(compressor.name);
              std::vector<double> given(kCount), averaged(kCount), kept(kCount);
              for (int step = 0; step < 5; ++step) {
                auto gradient = draw(comm.rank().value, step);
                for (std::size_t i = 0; i < kCount; ++i) given[i] += double{gradient[i]};
                if (auto status = compressor.average(comm, gradient); !status)
                  return status.error().to_string();
                for (std::size_t i = 0; i < kCount; ++i) averaged[i] += double{gradient[i]};
                std::vector<float> first = gradient;
                (void)comm.broadcast(first.data(), first.data(), kCount, DataType::kFloat32,
                                     Rank{0});
                if (std::memcmp(first.data(), gradient.data(), kCount * sizeof(float)) != 0)
                  return name + ": ranks differ";
              }
              for (std::size_t i = 0; i < kCount; ++i) kept[i] = double{compressor.residual()[i]};
              for (auto* const values : {&given, &kept}) {
                (void)comm.all_reduce(values->data(), values->data(), kCount, DataType::kFloat64,
                                      ReduceOp::kAvg);
              }
              for (std::size_t i = 0; i < kCount; ++i) {
                if (std::abs(averaged[i] + kept[i] - given[i]) > 1e-4)
                  return name + ": element " + std::to_string(i) + " was lost";
              }
            }
            return std::string();
          }) == "");
  }
}

TEST_CASE("the error of one call is what the header states") {
  auto comms = Communicator::in_process(1);
  REQUIRE(comms);
  Communicator& comm = comms->front();
  for (int step = 0; step < 20; ++step) {
    const auto given = draw(7, step);
    double magnitudes = 0;
    for (const float value : given) magnitudes += std::abs(double{value});
    const double whole = norm(given) * norm(given);
    const auto left_by = [&](auto compressor) {
      auto gradient = given;
      REQUIRE(compressor.average(comm, gradient));
      const double size = norm(compressor.residual());
      return size * size;
    };
    CHECK(left_by(TopK(kCount, 30)) <= (1 - 30.0 / kCount) * whole);
    CHECK(left_by(TopK(kCount, kCount)) == 0);
    CHECK(left_by(OneBit(kCount)) == Approx(whole - magnitudes * magnitudes / kCount));
    CHECK(left_by(PowerSgd(kRows, kColumns, 2)) <= whole * (1 + 1e-5));
    CHECK(left_by(PowerSgd(kRows, kColumns, kColumns)) <= whole * 1e-8);
  }
}

TEST_CASE("an object that takes another's state goes on as that one") {
  auto comms = Communicator::in_process(2);
  REQUIRE(comms);
  CHECK(on_all_ranks(*comms, [&](Communicator& comm) {
          const auto goes_on = [&](auto one, auto other) -> std::string {
            const int rank = comm.rank().value;
            for (int step = 0; step < 3; ++step) {
              auto gradient = draw(rank, step);
              if (auto status = one.average(comm, gradient); !status)
                return status.error().to_string();
            }
            std::vector<float> state = one.state();
            if (auto status = other.restore(state); !status) return status.error().to_string();
            for (int step = 3; step < 6; ++step) {
              auto gradient = draw(rank, step), same = gradient;
              if (!one.average(comm, gradient) || !other.average(comm, same)) return "an error";
              if (gradient != same) return "the averages differ";
            }
            state.push_back(0);
            const Status refused = other.restore(state);
            return !refused && refused.error().code == Code::kInvalidArgument
                       ? ""
                       : "took a wrong state";
          };
          std::string wrong = goes_on(TopK(kCount, 9), TopK(kCount, 9));
          wrong += goes_on(OneBit(kCount), OneBit(kCount));
          return wrong + goes_on(PowerSgd(kRows, kColumns, 2), PowerSgd(kRows, kColumns, 2));
        }) == "");
}

TEST_CASE("PowerSGD finds a matrix of its rank, and goes on where it was") {
  auto comms = Communicator::in_process(1);
  REQUIRE(comms);
  std::vector<float> matrix(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto row = static_cast<float>(i / kColumns), column = static_cast<float>(i % kColumns);
    matrix[i] = (row + 1) * (column - 3);
  }
  PowerSgd compressor(kRows, kColumns, 1);
  auto gradient = matrix;
  REQUIRE(compressor.average(comms->front(), gradient));
  CHECK(norm(compressor.residual()) < 1e-4 * norm(matrix));
}

TEST_CASE("a gradient of another size is refused, and the state stays") {
  auto comms = Communicator::in_process(1);
  REQUIRE(comms);
  std::vector<float> small(kCount - 1, 1.0F);
  for (Compressor& compressor : all_compressors()) {
    const Status status = compressor.average(comms->front(), small);
    REQUIRE_FALSE(status);
    CHECK(status.error().code == Code::kInvalidArgument);
    CHECK(norm(compressor.residual()) == 0);
  }
}

/// Two ranks with halves of a least-squares problem; the distance from the solution at the end.
double descend(Communicator& comm, const Average& average, std::string& complaint) {
  constexpr int kSteps = 1500;
  constexpr float kRate = 0.05F;
  std::vector<float> solution = draw(99, 0), weights(kCount),
                     curvature = draw(50, comm.rank().value);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> gradient(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      gradient[i] = (1 + std::abs(curvature[i])) * (weights[i] - solution[i]);
    if (auto status = average(comm, gradient); !status) complaint = status.error().to_string();
    for (std::size_t i = 0; i < kCount; ++i) weights[i] -= kRate * gradient[i];
  }
  for (std::size_t i = 0; i < kCount; ++i) weights[i] -= solution[i];
  return norm(weights);
}

TEST_CASE("gradient descent converges with what is left out") {
  auto comms = Communicator::in_process(2);
  REQUIRE(comms);
  CHECK(on_all_ranks(*comms, [&](Communicator& comm) {
          for (Compressor& compressor : all_compressors()) {
            std::string complaint;
            const double distance = descend(comm, compressor.average, complaint);
            if (!complaint.empty()) return complaint;
            if (!(distance < 1e-2))  // It begins at 11.
              return std::string(compressor.name) + " is still off by " + std::to_string(distance);
          }
          return std::string();
        }) == "");
}

}  // namespace
}  // namespace tutti::test
