// Checkpoints: other numbers of ranks and other strategies go on from them, to the same bits; what
// is not whole or of another task is refused on all ranks.
#include "trainer/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/processes.h"
#include "trainer/checkpoint_file.h"
#include "trainer/train.h"
#include "trainer/worker.h"
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
  std::string note;
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
      run = {std::move(outcome->weights), outcome->epochs.size(), outcome->note, ""};
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

/// The whole run, and a copy in `middle` of the checkpoint after its first epoch: of 9 steps.
Run train_and_keep(int ranks, TrainOptions& options, const std::string& middle) {
  options.batch = 160;
  options.epochs = 3;
  options.checkpoint = middle + ".all";
  const Run whole = train_on(ranks, options, [&](int epoch) {
    if (epoch == 2) fs::copy(options.checkpoint, middle, fs::copy_options::recursive);
  });
  options.checkpoint.clear();
  options.resume = middle;
  CHECK(whole.complaint == "");
  return whole;
}

TEST_CASE("strategies whose ranks differ go on to the same bits, on as many ranks") {
  const ScratchDirectory scratch;
  TrainOptions local = options_of("local"), outer = options_of("local");
  local.strategy.local_steps = 4;  // So that ranks differ after 9.
  outer.strategy.local_steps = 4;
  outer.strategy.outer_rate = 0.7;
  outer.strategy.outer_momentum = 0.9;
  int number = 0;
  for (TrainOptions options : {local, outer, options_of("gossip")}) {
    INFO(options.strategy.name << ", run " << number);
    const Run whole = train_and_keep(4, options, scratch.path() + "/" + std::to_string(number++));
    const Run rest = train_on(4, options);
    CHECK(rest.complaint == "");
    CHECK(rest.epochs == 3);
    CHECK(rest.weights == whole.weights);
    const Run fewer = train_on(2, options);
    INFO(fewer.complaint);
    CHECK(fewer.complaint.find("go on with 4 ranks") != std::string::npos);
    options.strategy.name = "ddp";  // The weights that all ranks have are in no file.
    CHECK(train_on(4, options).complaint.find("lacks values of this strategy") !=
          std::string::npos);
  }
}

TEST_CASE("parameter servers and other strategies go on from each other, to the same bits") {
  const ScratchDirectory scratch;
  TrainOptions options = options_of("ps");
  const Run whole = train_and_keep(3, options, scratch.path() + "/ps");
  for (const auto& [strategy, ranks, servers] : std::vector<std::tuple<std::string, int, int>>{
           {"ps", 3, 1}, {"ps", 4, 2}, {"ps", 4, 3}, {"ddp", 2, 1}, {"zero3", 4, 1}}) {
    INFO(strategy << " on " << ranks << " with " << servers);
    options.strategy.name = strategy;
    options.strategy.servers = servers;
    const Run rest = train_on(ranks, options);
    CHECK(rest.complaint == "");
    CHECK(rest.weights == whole.weights);
  }
  TrainOptions sharded = options_of("zero2");
  CHECK(train_and_keep(2, sharded, scratch.path() + "/zero2").weights == whole.weights);
  sharded.strategy.name = "ps";
  sharded.strategy.servers = 2;
  CHECK(train_on(4, sharded).weights == whole.weights);
}

TEST_CASE("an asynchronous server with one worker goes on to the same bits") {
  const ScratchDirectory scratch;
  for (const char* strategy : {"async_ps", "dcasgd"}) {
    INFO(strategy);
    TrainOptions options = options_of(strategy);
    options.rate.peak = 0.001;
    const Run whole = train_and_keep(2, options, scratch.path() + "/" + strategy);
    const Run rest = train_on(2, options);
    CHECK(rest.complaint == "");
    CHECK(rest.weights == whole.weights);
  }
}

/// The values of a kind that a run's ranks hold together.
using Vectors = std::map<std::string, std::vector<float>>;

/// Trains until the first checkpoint, or goes on from it: what there is then. `stale`: some worker
/// has other weights than the servers.
Vectors state_of(int ranks, TrainOptions options, bool& stale) {
  const Split& data = digits();
  const auto network = make_network(options.model, data.train);
  auto comms = Communicator::in_process(ranks);
  REQUIRE((network && comms));
  std::mutex mutex;  // Guards what follows.
  Vectors all;
  std::vector<std::vector<float>> held;
  const auto collect = [&](Worker& worker) -> Status {
    std::vector<float> mine;
    for (std::size_t u = 0; u < network->units().size(); ++u) {
      TUTTI_TRY(const float* values, worker.strategy().parameters(u));
      mine.insert(mine.end(), values, values + network->units()[u].size);
    }
    const std::scoped_lock lock(mutex);
    if (worker.strategy().pieces().empty()) held.push_back(std::move(mine));
    for (const Piece& piece : worker.strategy().pieces()) {
      std::vector<float>& into = all[piece.what];
      into.resize(network->size());
      std::copy(piece.values.begin(), piece.values.end(), into.begin() + piece.begin);
    }
    return ok();
  };
  const auto work = [&](Communicator& comm) -> Status {
    Worker worker(data, options, *network);
    TUTTI_RETURN_IF_ERROR(worker.use(comm));
    if (!options.resume.empty()) TUTTI_RETURN_IF_ERROR(resume(worker, comm, options.resume));
    while (options.resume.empty() && worker.epochs().empty())
      TUTTI_RETURN_IF_ERROR(worker.advance());
    if (!options.checkpoint.empty())
      TUTTI_RETURN_IF_ERROR(save_checkpoint(worker, comm, options.checkpoint));
    return collect(worker);
  };
  CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
          const Status status = work(comm);
          return status ? "" : status.error().to_string();
        }) == "");
  for (const auto& weights : held) stale = stale || weights != all["weights"];
  return all;
}

TEST_CASE("asynchronous servers have their state again, and workers its weights") {
  const ScratchDirectory scratch;
  for (const char* strategy : {"async_ps", "dcasgd"}) {
    INFO(strategy);
    TrainOptions options = options_of(strategy);
    options.rate.peak = 0.001;
    options.checkpoint = scratch.path() + "/" + strategy;
    bool stale = false;
    const Vectors saved = state_of(4, options, stale);
    CHECK(saved.size() == 3);  // Weights, and two of Adam's.
    CHECK(stale);              // All workers but the last one that was answered.
    options.resume = std::exchange(options.checkpoint, "");
    for (const int servers : {1, 2}) {
      INFO(servers << " servers");
      options.strategy.servers = servers;
      bool stale_again = false;
      CHECK(state_of(4, options, stale_again) == saved);
      CHECK_FALSE(stale_again);
    }
  }
}

TEST_CASE("the scale of the loss of mixed precision goes on too") {
  const ScratchDirectory scratch;
  TrainOptions options = options_of("fsdp");
  options.strategy.precision = DataType::kBfloat16;
  options.model = {.name = "mlp", .width = 8, .depth = 1};
  options.batch = 16;  // 90 steps in an epoch: the scale doubles in the third.
  options.epochs = 2;
  options.checkpoint = scratch.path() + "/made";
  CHECK(train_on(2, options).note.find("scaled by 1024,") != std::string::npos);
  options.resume = std::exchange(options.checkpoint, "");
  options.epochs = 3;
  const Run rest = train_on(3, options);
  CHECK(rest.complaint == "");
  CHECK(rest.note.find("scaled by 2048,") != std::string::npos);
  // From a checkpoint without a scale it begins with its own.
  options.strategy.precision = DataType::kFloat32;
  options.checkpoint = scratch.path() + "/float32";
  options.resume.clear();
  options.epochs = 1;
  REQUIRE(train_on(2, options).complaint == "");
  options.strategy.precision = DataType::kBfloat16;
  options.resume = std::exchange(options.checkpoint, "");
  options.epochs = 2;
  CHECK(train_on(2, options).complaint == "");
}

TEST_CASE("a checkpoint that can't be gone on from is refused on all ranks") {
  const ScratchDirectory scratch;
  const std::string folder = scratch.path() + "/made";
  TrainOptions options = options_of("ddp");
  options.epochs = 1;
  options.checkpoint = folder;
  REQUIRE(train_on(2, options).complaint == "");
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == "rank-1")
      CHECK(fs::file_size(entry.path()) < 100);  // No values.
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

  int told = 0;  // Epochs: it is refused before any of them.
  other.checkpoint = folder + "/latest/below";
  CHECK(train_on(2, other, [&](int) { ++told; }).complaint.find("can't make") != std::string::npos);
  CHECK(told == 0);

  std::string whole;
  std::ifstream latest(folder + "/latest");
  std::getline(latest, whole, '\0');
  std::ofstream(folder + "/latest") << R"({"turn": "first", "task": 7})" << '\n';
  refused(options, "/latest is damaged");
  std::ofstream(folder + "/latest") << R"({"turn": "first", "task": 7})";
  refused(options, "/latest is not whole");
  std::ofstream(folder + "/latest") << "{\n \"turn\": 1\n}\n";
  refused(options, "/latest is of an older version");
  std::ofstream(folder + "/latest").close();
  refused(options, "/latest is empty");
  fs::remove(folder + "/latest");
  fs::create_directory(folder + "/latest");
  refused(options, "/latest: Is a directory");
  fs::remove(folder + "/latest");
  std::ofstream(folder + "/latest") << whole;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == "rank-0") fs::resize_file(entry.path(), 5000);
  }
  refused(options, "rank-0 is not whole");
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == "rank-0") fs::resize_file(entry.path(), 0);
  }
  refused(options, "rank-0 is empty");
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("one changed bit anywhere in a checkpoint is refused on all ranks, by the file's name") {
  const ScratchDirectory scratch;
  TrainOptions options = options_of("zero1");
  options.epochs = 1;
  options.checkpoint = scratch.path() + "/made";
  REQUIRE(train_on(2, options).complaint == "");
  options.resume = std::exchange(options.checkpoint, "");
  options.epochs = 2;
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(options.resume)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  REQUIRE(files.size() == 3);
  for (const fs::path& path : files) {
    const std::string whole = bytes_of(path);
    const auto with = [&](const std::string& bytes) {
      std::ofstream(path, std::ios::binary) << bytes;
      return train_on(2, options).complaint;
    };
    const std::size_t line = whole.find('\n');
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{3}, std::size_t{10}, line / 2, line - 18, line - 3, line - 1,
          line, whole.size() / 2, whole.size() * 3 / 4, whole.size() - 1}) {
      INFO(path << ", byte " << at << " of " << whole.size());
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 1 << at % 8);
      const std::string complaint = with(changed);
      CHECK_THAT(complaint, Catch::Contains("checkpoint: " + path.string() + " is ") &&
                                Catch::Contains("resume from another copy"));
    }
    CHECK_THAT(with(whole + "more"), Catch::Contains(path.string() + " is damaged"));
    CHECK(with(whole) == "");
  }
}

TEST_CASE("a checkpoint of another format is told from a damaged one") {
  const ScratchDirectory scratch;
  const fs::path path = scratch.path() + "/file";
  REQUIRE(write_checked(path, {{"format", 3}, {"parts", Json::array()}}, {}));
  const auto newer = open_checked(path);
  REQUIRE_FALSE(newer);
  CHECK(newer.error().what.find("is of another version") != std::string::npos);
  std::ofstream(path) << "[{\"what\":\"weights\",\"begin\":0,\"count\":0}]\n";
  const auto older = open_checked(path);
  REQUIRE_FALSE(older);
  CHECK(older.error().what.find("is of an older version") != std::string::npos);
}

TEST_CASE("a checkpoint that can't be written says why, and leaves nothing behind") {
  const ScratchDirectory scratch;
  const fs::path path = scratch.path() + "/file";
  fs::create_symlink("/dev/full", path.string() + ".draft");
  const Status status = write_checked(path, {{"parts", Json::array()}}, {});
  REQUIRE_FALSE(status);
  CHECK(status.error().what.find("No space left on device") != std::string::npos);
  CHECK_FALSE(fs::exists(path));
  CHECK_FALSE(fs::is_symlink(path.string() + ".draft"));
}

TEST_CASE("values that only one rank lacks are refused on all") {
  const ScratchDirectory scratch;
  TrainOptions options = options_of("zero1");
  options.epochs = 1;
  options.checkpoint = scratch.path() + "/made";
  REQUIRE(train_on(2, options).complaint == "");
  for (const auto& entry : fs::recursive_directory_iterator(options.checkpoint)) {
    if (entry.path().filename() == "rank-1") fs::resize_file(entry.path(), 5000);
  }
  options.resume = std::exchange(options.checkpoint, "");
  options.epochs = 2;
  const Run run = train_on(2, options);
  const std::string reason = "rank-1 is not whole";
  std::size_t told = 0;
  for (auto at = run.complaint.find(reason); at != std::string::npos;
       at = run.complaint.find(reason, at + 1))
    ++told;
  INFO(run.complaint);
  CHECK(told == 2);
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
  CHECK(run.complaint.find("Not a directory") != std::string::npos);
  TrainOptions then = options_of("zero1");
  then.epochs = 2;
  then.resume = options.checkpoint;
  const Run rest = train_on(2, then);
  CHECK(rest.complaint == "");
  CHECK(rest.epochs == 2);
}

}  // namespace
}  // namespace tutti::test
