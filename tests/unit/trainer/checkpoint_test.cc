// Checkpoints: other numbers of ranks and other strategies go on from them, to the same bits; what
// is not whole or of another task is refused on all ranks.
#include "trainer/checkpoint.h"

#include <filesystem>
#include <fstream>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/processes.h"
#include "trainer/train.h"
#include "unit/trainer/digits.h"

namespace tutti::test {
namespace {

using namespace trainer;
namespace fs = std::filesystem;

TrainOptions options_of(const std::string& strategy) {
  TrainOptions options;
  options.strategy.name = strategy;
  options.strategy.optimiser.name = "adam";
  options.epochs = 4;
  options.slices = 4;
  options.batch = 144;
  return options;
}

struct Run {
  std::vector<float> weights;
  std::size_t epochs = 0;
  std::string complaint;  // Some rank's.
};

/// `at_epoch(epoch)` is called on rank 0, before that epoch's checkpoint is written.
Run train_on(
    int ranks, const TrainOptions& options, const std::function<void(int)>& at_epoch = [](int) {}) {
  const Split& data = digits();
  auto comms = Communicator::in_process(ranks);
  REQUIRE(comms);
  Run run;
  run.complaint = on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
    auto outcome =
        train(comm, data, options, [&](int epoch, int, const Epoch&) { at_epoch(epoch); });
    if (!outcome) return outcome.error().to_string();
    if (comm.rank().value == 0)
      run.weights = std::move(outcome->weights), run.epochs = outcome->epochs.size();
    return "";
  });
  return run;
}

TEST_CASE("other ranks and strategies go on from a checkpoint, to the same bits") {
  const ScratchDirectory scratch;
  TrainOptions options = options_of("zero3");
  options.checkpoint = scratch.path() + "/all";
  const std::string middle = scratch.path() + "/middle";
  const Run whole = train_on(4, options, [&](int epoch) {
    if (epoch == 3) fs::copy(options.checkpoint, middle, fs::copy_options::recursive);
  });
  REQUIRE(whole.complaint == "");
  std::size_t turns = 0;
  for (const auto& entry : fs::directory_iterator(options.checkpoint))
    turns += entry.is_directory() ? 1 : 0;
  CHECK(turns == 1);  // Only the latest stays.
  for (const auto& [strategy, ranks] : std::vector<std::pair<std::string, int>>{
           {"zero3", 4}, {"zero3", 2}, {"zero1", 4}, {"fsdp", 2}, {"ddp", 1}, {"ddp", 4}}) {
    INFO(strategy << " on " << ranks);
    TrainOptions then = options_of(strategy);
    then.resume = middle;
    const Run rest = train_on(ranks, then);
    CHECK(rest.complaint == "");
    CHECK(rest.epochs == 4);
    CHECK(rest.weights == whole.weights);
  }
}

TEST_CASE("a checkpoint that can't be gone on from is refused on all ranks") {
  const ScratchDirectory scratch;
  const std::string folder = scratch.path() + "/made";
  TrainOptions options = options_of("ddp");
  options.epochs = 1;
  options.checkpoint = folder;
  REQUIRE(train_on(2, options).complaint == "");
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == "rank-1") CHECK(fs::file_size(entry.path()) == 3);  // "[]"
  }

  const auto refused = [&](TrainOptions then, const char* why) {
    then.checkpoint.clear();
    if (then.resume.empty()) then.resume = folder;
    const Run run = train_on(2, then);
    INFO(run.complaint);
    CHECK(run.complaint.find(why) != std::string::npos);
    CHECK(run.complaint.find("checkpoint: ") != std::string::npos);
  };
  TrainOptions other = options;
  other.seed = 7;
  refused(other, "seed 1");
  other = options;
  other.resume = scratch.path() + "/none";
  refused(other, "there is none in");
  other = options;
  refused(other, "1 epochs are done already");
  other = options;
  other.strategy.name = "gossip";
  other.checkpoint = scratch.path() + "/gossip";
  CHECK(train_on(2, other).complaint.find("that no checkpoint keeps") != std::string::npos);

  int told = 0;  // Epochs: it is refused before any of them.
  other.checkpoint = folder + "/latest/below";
  other.strategy.name = "ddp";
  CHECK(train_on(2, other, [&](int) { ++told; }).complaint.find("can't make") != std::string::npos);
  CHECK(told == 0);

  std::string whole;
  std::ifstream latest(folder + "/latest");
  std::getline(latest, whole, '\0');
  std::ofstream(folder + "/latest") << R"({"turn": "first", "task": 7})";
  refused(options, "can't read");
  std::ofstream(folder + "/latest") << whole;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == "rank-0") fs::resize_file(entry.path(), 5000);
  }
  refused(options, "is not whole");
}

TEST_CASE("a rank that can't write ends the checkpoint on all, and the one before stays") {
  const ScratchDirectory scratch;
  TrainOptions options = options_of("zero1");
  options.epochs = 2;
  options.checkpoint = scratch.path() + "/made";
  // The second folder's name is a file's, so no rank can write into it.
  const std::size_t steps = (digits().train.size() + options.batch - 1) / options.batch;
  fs::create_directory(options.checkpoint);
  std::ofstream(options.checkpoint + "/turn-" + std::to_string(2 * (steps + 1))).put('x');
  const Run run = train_on(2, options);
  CHECK(run.complaint.find("checkpoint: can't make") != std::string::npos);
  TrainOptions then = options_of("zero1");
  then.epochs = 2;
  then.resume = options.checkpoint;
  const Run rest = train_on(2, then);
  CHECK(rest.complaint == "");
  CHECK(rest.epochs == 2);
}

}  // namespace
}  // namespace tutti::test
