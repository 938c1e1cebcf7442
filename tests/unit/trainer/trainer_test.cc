// The trainer: its gradient, its data, and that the number of ranks does not matter.
#include "trainer/train.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <set>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/processes.h"
#include "trainer/models/network.h"
#include "unit/trainer/digits.h"

namespace tutti::test {
namespace {

using namespace trainer;

Outcome train_on(int ranks, const TrainOptions& options) {
  auto comms = Communicator::in_process(ranks);
  REQUIRE(comms);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
          auto outcome = train(comm, digits(), options, [](int, int, const Epoch&) {});
          if (!outcome) return outcome.error().to_string();
          outcomes[static_cast<std::size_t>(comm.rank().value)] = *outcome;
          return "";
        }) == "");
  return outcomes.front();
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max<double>(most, std::abs(a[i] - b[i]));
  return most;
}

TEST_CASE("the split is stratified and complete") {
  std::array<std::array<int, 2>, kClasses> count{};
  for (const auto label : digits().train.labels) ++count[label][0];
  for (const auto label : digits().test.labels) ++count[label][1];
  CHECK(digits().train.size() + digits().test.size() == 1797);
  for (const auto& [train, test] : count) CHECK(test == (train + test) / 5);
}

TEST_CASE("bad data is one line with file, line and reason") {
  const ScratchDirectory directory;
  const std::string path = directory.path() + "/digits.csv";
  const auto refused = [&](const std::string& text, std::string_view part) {
    std::ofstream(path) << text;
    const auto result = read_digits(path);
    REQUIRE_FALSE(result);
    INFO(result.error().what);
    CHECK(result.error().what.find(part) != std::string::npos);
    CHECK(result.error().what.find('\n') == std::string::npos);
  };
  std::string good;
  for (int i = 0; i < 64; ++i) good += "3,";
  good += "7\n";
  CHECK_FALSE(read_digits(directory.path() + "/nothing.csv"));
  refused("", "only 0 images");
  refused(good + "1,2,3", ":2: only 3 of 65 fields (is the file cut short?)");
  refused(good + "1,2,x,4\n", ":2: field 3");
  refused(good + "17," + good.substr(2), ":2: a pixel is 17");
  refused(good.substr(0, good.size() - 2) + "12\n", "the digit is 12");
  refused(good.substr(0, good.size() - 1) + ",1\n", "something follows");
  refused(std::string(5000, '1') + "\n", "too long");
}

TEST_CASE("1, 2, 4, 8 and 16 ranks give the same weights to the last bit, others to rounding") {
  TrainOptions options;
  options.epochs = 2;
  const Outcome one = train_on(1, options);
  for (const int ranks : {2, 4, 8, 16}) {
    INFO(ranks << " ranks");
    CHECK(train_on(ranks, options).weights == one.weights);
  }
  const Outcome three = train_on(3, options);
  CHECK(three.weights != one.weights);
  CHECK(distance(three.weights, one.weights) < 1e-3);
}

TEST_CASE("buckets of any size give the same weights") {
  TrainOptions options;
  options.epochs = 1;
  const Outcome whole = train_on(2, options);
  options.strategy.bucket_bytes = 64;
  const Outcome pieces = train_on(2, options);
  CHECK(pieces.note == "3 buckets");
  CHECK(pieces.weights == whole.weights);
}

TEST_CASE("accumulating batches equals a larger batch, to rounding") {
  TrainOptions options;
  options.epochs = 1;
  options.batch = 128;
  const Outcome large = train_on(2, options);
  options.batch = 32;
  options.accumulate = 4;
  const Outcome accumulated = train_on(2, options);
  CHECK(distance(large.weights, accumulated.weights) < 1e-3);
}

TEST_CASE("two ranks reach 97 %") {
  const Outcome outcome = train_on(2, {});
  CHECK(outcome.epochs.back().accuracy >= 0.97);
  CHECK(outcome.epochs.back().loss < outcome.epochs.front().loss);
}

TEST_CASE("the rank that the others waited for is the straggler, alike on all ranks") {
  using namespace std::chrono_literals;
  auto comms = Communicator::in_process(3);
  REQUIRE(comms);
  std::vector<Straggler> found(3);
  CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
          const auto before = comm.counters();
          std::vector<float> data(100'000);
          for (int call = 0; call < 4; ++call) {
            if (comm.rank() == Rank{2}) std::this_thread::sleep_for(50ms);
            const auto reduced = comm.all_reduce(data.data(), data.data(), data.size(),
                                                 DataType::kFloat32, ReduceOp::kSum);
            if (!reduced) return reduced.error().to_string();
          }
          auto straggler = find_straggler(comm, *before, {.seconds = 2, .idle_seconds = 1});
          if (!straggler) return straggler.error().to_string();
          found[static_cast<std::size_t>(comm.rank().value)] = *straggler;
          return "";
        }) == "");
  for (const Straggler& straggler : found) {
    CHECK(straggler.rank == 2);
    CHECK(straggler.last_share == Approx(1));
    CHECK(straggler.time_share > 0.25);
    CHECK(straggler.time_share <= 0.5);  // Half of the time was idle.
    CHECK(straggler.time_share == found[0].time_share);
  }
}

}  // namespace
}  // namespace tutti::test
