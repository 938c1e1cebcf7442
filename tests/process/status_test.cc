// Processes that hang on purpose, and what `tutti status` says of them.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "support/catch.h"
#include "support/environment.h"
#include "support/processes.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr auto kF32 = DataType::kFloat32;

struct Said {
  int code = -1;
  std::string text;
};

Said run_status(const std::string& arguments) {
  const char* const build = std::getenv("TEST_BUILD_DIR");
  const std::string command =
      std::string(build != nullptr ? build : ".") + "/tools/tutti status " + arguments;
  Said said;
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return said;
  std::array<char, 4096> part{};
  while (const std::size_t got = fread(part.data(), 1, part.size(), pipe))
    said.text.append(part.data(), got);
  const int status = pclose(pipe);
  said.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return said;
}

std::string job_name() { return "status-test-" + std::to_string(getpid()); }

/// The job's one communicator, once `is_there` says that it is as it should be; else as it was
/// last.
json eventually_status(const std::function<bool(const json&)>& is_there) {
  json last;
  eventually(
      [&] {
        const Said said = run_status(job_name() + " --json --calls");
        if (said.code == 2) return false;
        const json all = json::parse(said.text);
        if (all.size() != 1) return false;
        last = all.front();
        return is_there(last);
      },
      60s);
  return last;
}

bool waits_for(const json& comm, int blocker, std::size_t waiting) {
  return comm.contains("blocker") && comm["blocker"] == blocker &&
         comm["waiting"].size() == waiting;
}

Settings settings_of(const std::string& transport) {
  Settings settings;
  settings.transport = transport;
  settings.timeout = 300s;
  return settings;
}

TEST_CASE("status names the rank that makes no call, and the one that is stopped") {
  const std::string transport = GENERATE("shared_memory", "tcp");
  const std::size_t count = GENERATE(2, 300'000);
  INFO(transport << " " << count);
  // As `tutti run` names it, and found by what the user named it.
  const Environment environment({"TUTTI_"}, {{"TUTTI_JOB", job_name() + "-4711@123"}});
  const ScratchDirectory meeting;
  RankProcesses processes(meeting, 4, settings_of(transport), [&](int rank, Communicator& comm) {
    std::vector<float> data(count);
    for (int call = 0; call < 3; ++call) {
      if (rank == 2 && call == 2) std::this_thread::sleep_for(300s);
      if (!comm.all_reduce(data.data(), data.data(), count, kF32, ReduceOp::kSum)) return "failed";
    }
    return "";
  });
  // On a busy machine ranks also wait for rank 2 in the calls that it makes.
  json comm = eventually_status([](const json& now) {
    return waits_for(now, 2, 3) && !now["here"][2]["in_call"] && now["waited_s"] > 0.5;
  });
  INFO(comm.dump(1));
  REQUIRE(waits_for(comm, 2, 3));
  CHECK(comm["waiting"] == json({0, 1, 3}));
  CHECK(comm["transport"] == transport);
  CHECK(comm["here"].size() == 4);
  const auto call = comm["here"][0]["call"].get<std::uint64_t>();
  const std::string what = "rank 2 has not made call " + std::to_string(call) + " (all_reduce of " +
                           std::to_string(count) + " float32 (sum));";
  CHECK(comm["sentence"].get<std::string>().starts_with(what +
                                                        " ranks 0, 1, 3 have waited for it for "));
  CHECK(!comm["here"][2]["in_call"]);
  std::this_thread::sleep_for(300ms);
  const Said stuck = run_status(job_name() + " --stuck 0.2");
  CHECK(stuck.code == 1);
  CHECK(stuck.text.find(what + "\n  ranks 0, 1, 3 have waited for it for ") != std::string::npos);
  std::size_t longest = 0, begin = 0;
  for (std::size_t end = 0; (end = stuck.text.find('\n', begin)) != std::string::npos;
       begin = end + 1)
    longest = std::max(longest, end - begin);
  CHECK(longest <= 100);
  CHECK(run_status(job_name() + " --stuck 1000").code == 0);
  processes.signal(2, SIGSTOP);
  comm = eventually_status([](const json& now) { return now["here"][2]["stopped"] == true; });
  CHECK(comm["sentence"].get<std::string>().starts_with("rank 2 is stopped by a signal"));
}

TEST_CASE("status follows a chain of ranks, work in the background and messages to its end") {
  const Environment environment({"TUTTI_"}, {{"TUTTI_JOB", job_name()}});
  const ScratchDirectory meeting;
  const bool message = GENERATE(true, false);
  RankProcesses processes(
      meeting, 3, settings_of("shared_memory"), [&](int rank, Communicator& comm) {
        std::vector<float> data(4);
        if (rank == 2) std::this_thread::sleep_for(300s);
        if (rank == 1 && message) (void)comm.recv(data.data(), 4, kF32, Rank{2});
        if (rank == 1) {  // Rank 2 does not join it.
          auto work = comm.start_broadcast(data.data(), data.data(), 4, kF32, Rank{2});
          if (work) (void)work->wait();
        }
        if (rank == 0 && message) (void)comm.broadcast(data.data(), data.data(), 4, kF32, Rank{1});
        if (rank == 0) (void)comm.recv(data.data(), 4, kF32, Rank{1});
        return "";
      });
  const json comm = eventually_status([](const json& now) { return waits_for(now, 2, 2); });
  INFO(comm.dump(1));
  REQUIRE(waits_for(comm, 2, 2));
  CHECK(comm["waiting"] == json({0, 1}));
  CHECK(comm["here"][0]["waits_for"] == 1);
  CHECK(comm["here"][1]["waits_for"] == 2);
  CHECK(comm["sentence"].get<std::string>().starts_with(
      message ? "rank 2 has not answered recv of 4 float32 from rank 2"
              : "rank 2 has not made call 1 (broadcast of 4 float32 from rank 2)"));
}

TEST_CASE("status follows a chain of three ranks and names it") {
  const Environment environment({"TUTTI_"}, {{"TUTTI_JOB", job_name()}});
  const ScratchDirectory meeting;
  RankProcesses processes(meeting, 3, settings_of("shared_memory"),
                          [&](int rank, Communicator& comm) {
                            float value = 0;
                            if (rank == 2) std::this_thread::sleep_for(300s);
                            (void)comm.recv(&value, 1, kF32, Rank{rank + 1});
                            return "";
                          });
  const json comm = eventually_status([](const json& now) { return waits_for(now, 2, 2); });
  REQUIRE(waits_for(comm, 2, 2));
  CHECK(comm["chain"] == json({0, 1, 2}));
  const std::string text = run_status(job_name()).text;
  INFO(text);
  CHECK(text.find("chain of waits: 0 -> 1 -> 2\n") != std::string::npos);
}

TEST_CASE("status, metrics and saved files tell which rank comes late, and what ranks have done") {
  const Environment environment({"TUTTI_"}, {{"TUTTI_JOB", job_name()}});
  const ScratchDirectory meeting, files;
  RankProcesses processes(
      meeting, 3, settings_of("shared_memory"), [&](int rank, Communicator& comm) {
        std::vector<float> data(300'000);
        for (int call = 0; call < 8; ++call) {
          if (rank == 1) std::this_thread::sleep_for(50ms);
          if (!comm.all_reduce(data.data(), data.data(), data.size(), kF32, ReduceOp::kSum))
            return "failed";
        }
        if (!comm.barrier()) return "failed";
        say_ready(meeting, rank);
        std::this_thread::sleep_for(300s);
        return "";
      });
  REQUIRE(all_ready(meeting, 3));
  const std::string saved = files.path() + "/host.json", metrics = files.path() + "/tutti.prom";
  const Said said = run_status(job_name() + " --save " + saved + " --metrics " + metrics);
  INFO(said.text);
  CHECK(said.code == 0);
  CHECK(said.text.find("  rank    1 came last to ") != std::string::npos);
  const json comm = json::parse(run_status(job_name() + " --json").text).front();
  const auto late =
      std::ranges::find_if(comm["late"], [](const json& one) { return one["rank"] == 1; });
  REQUIRE(late != comm["late"].end());
  CHECK((*late)["calls"].get<int>() >= 8);
  CHECK((*late)["share"].get<double>() > 0.5);
  CHECK((*late)["median_s"].get<double>() > 0.02);
  CHECK((*late)["p99_s"].get<double>() >= (*late)["median_s"].get<double>());
  std::ifstream file(metrics);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  INFO(text);
  const auto has = [&](const std::string& name, const std::string& labels) {
    const auto at = text.find("\n" + name + "{job=\"" + job_name() + "\"");
    return at != std::string::npos && text.find(labels, at) != std::string::npos;
  };
  CHECK(has("tutti_calls_total", "rank=\"2\",collective=\"all_reduce\"} 8\n"));
  CHECK(has("tutti_calls_total", "rank=\"2\",collective=\"barrier\"} 1\n"));
  CHECK(has("tutti_bytes_total", "rank=\"0\",collective=\"all_reduce\"} 9600000\n"));
  CHECK(has("tutti_wait_seconds_total", "rank=\"0\",last=\"1\"} 0."));
  CHECK(has("tutti_waiting_seconds", "rank=\"1\"} 0\n"));
  // The same once the processes are gone, from the file.
  for (int rank = 0; rank < 3; ++rank) processes.signal(rank, SIGKILL);
  for (int rank = 0; rank < 3; ++rank) CHECK(processes.wait(rank) == 128 + SIGKILL);
  const Said merged = run_status("--json --calls --merge " + saved);
  REQUIRE(merged.code == 0);
  const json again = json::parse(merged.text).front();
  // Each look at a record measures anew how long a tick is.
  REQUIRE(again["late"].size() == comm["late"].size());
  for (std::size_t i = 0; i < again["late"].size(); ++i) {
    CHECK(again["late"][i]["rank"] == comm["late"][i]["rank"]);
    CHECK(again["late"][i]["calls"] == comm["late"][i]["calls"]);
    CHECK(again["late"][i]["lost_s"].get<double>() ==
          Approx(comm["late"][i]["lost_s"].get<double>()).epsilon(0.01));
  }
  CHECK(again["here"][2]["call"] == comm["here"][2]["call"]);
  CHECK(run_status("--merge " + metrics).code == 2);
}

TEST_CASE("files that --merge does not take") {
  for (const std::string path : {"/", "/nonexistent", "/dev/zero", "/dev/null"})
    CHECK(run_status("--merge " + path).code == 2);
}

TEST_CASE("nothing of a job is left once its ranks are killed") {
  const Environment environment({"TUTTI_"}, {{"TUTTI_JOB", job_name()}});
  const ScratchDirectory meeting;
  RankProcesses processes(meeting, 2, settings_of("shared_memory"),
                          [&](int rank, Communicator& comm) {
                            if (!comm.barrier()) return "failed";
                            say_ready(meeting, rank);
                            std::this_thread::sleep_for(300s);
                            return "";
                          });
  REQUIRE(all_ready(meeting, 2));
  CHECK(run_status(job_name()).code == 0);
  for (int rank = 0; rank < 2; ++rank) processes.signal(rank, SIGKILL);
  for (int rank = 0; rank < 2; ++rank) CHECK(processes.wait(rank) == 128 + SIGKILL);
  CHECK(run_status(job_name()).code == 2);
  CHECK(run_status("no-such-job-" + job_name()).code == 2);
}

TEST_CASE("a small call that fails is in the record of each rank, as what it failed by") {
  const ScratchDirectory records;
  Settings settings;
  settings.flight = records.path();
  auto comms = Communicator::in_process(2, settings);
  REQUIRE(comms);
  const auto works = [](Communicator& comm) {
    const bool late = comm.rank().value == 0;
    std::vector<float> data(3);
    const auto sum = [&](std::size_t count) {
      return comm.all_reduce(data.data(), data.data(), count, kF32, ReduceOp::kSum);
    };
    for (int call = 1; call <= 5; ++call)
      if (!sum(2)) return false;
    // Rank 0 makes the call that it made before, and finds at once that rank 1 made another.
    if (late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const Status differs = sum(late ? 2 : 3);
    return !differs && differs.error().code == Code::kMismatch;
  };
  std::atomic<int> worked{0};
  {
    std::vector<std::jthread> ranks;
    for (Communicator& comm : *comms) ranks.emplace_back([&] { worked += works(comm) ? 1 : 0; });
  }
  CHECK(worked == 2);
  int files = 0;
  for (const auto& at : std::filesystem::directory_iterator(records.path())) {
    if (at.path().extension() == ".record") continue;
    ++files;
    const json record = json::parse(std::ifstream(at.path()));
    INFO("rank " << record["rank"]);
    REQUIRE(record["calls"].size() == 6);
    CHECK(record["calls"].back()["call"] == 6);
    CHECK(record["calls"].back()["state"] == "mismatch");
    CHECK(record["calls"][4]["state"] == "ok");
  }
  CHECK(files == 2);
}

TEST_CASE("ranks that outlive another write their calls, and its latest ones") {
  const std::string transport = GENERATE("shared_memory", "tcp");
  const ScratchDirectory meeting, records;
  Settings settings = settings_of(transport);
  settings.flight = records.path();
  RankProcesses processes(meeting, 3, settings, [&](int rank, Communicator& comm) {
    std::vector<float> data(100);
    for (int call = 0;; ++call) {
      if (rank == 1 && call == 5) raise(SIGKILL);
      if (!comm.all_reduce(data.data(), data.data(), data.size(), kF32, ReduceOp::kSum)) break;
    }
    return comm.barrier() ? "it works" : "";
  });
  CHECK(processes.wait(1) == 128 + SIGKILL);
  for (const int rank : {0, 2}) CHECK(processes.wait(rank) == 0);
  int files = 0;
  std::string killed_record;
  for (const auto& at : std::filesystem::directory_iterator(records.path())) {
    if (at.path().extension() == ".record") {
      CHECK(killed_record.empty());  // The others removed theirs.
      killed_record = at.path();
      continue;
    }
    ++files;
    const json record = json::parse(std::ifstream(at.path()));
    CHECK(record["code"] == "peer failed");
    CHECK(record["blamed"] == 1);
    // A rank may have been told of the death before it got to the call that rank 1 did not make.
    REQUIRE(record["calls"].size() >= 5);
    CHECK(record["calls"].back()["what"] == "all_reduce of 100 float32 (sum)");
    const auto killed =
        std::ranges::find_if(record["peers"], [](const json& peer) { return peer["rank"] == 1; });
    REQUIRE(killed != record["peers"].end());
    REQUIRE(!(*killed)["calls"].empty());
    CHECK((*killed)["calls"].back()["call"] == 5);
  }
  CHECK(files == 2);
  // The killed rank's own record says what it did last, and from when to when.
  REQUIRE(!killed_record.empty());
  const json merged = json::parse(run_status("--json --calls --merge " + killed_record).text);
  REQUIRE(merged.size() == 1);
  const json& rank = merged.front()["here"].front();
  CHECK(rank["rank"] == 1);
  CHECK(rank["calls"].back()["call"] == 5);
  CHECK(rank["calls"].back()["what"] == "all_reduce of 100 float32 (sum)");
}

}  // namespace
}  // namespace tutti::test
