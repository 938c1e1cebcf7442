// TUTTI_TRACE: the file that the ranks of a job write together.
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "support/catch.h"
#include "support/processes.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr auto kF32 = DataType::kFloat32;

Settings traced(const std::string& transport, const std::string& path) {
  Settings settings;
  settings.transport = transport;
  settings.trace = path;
  return settings;
}

json read_trace(const std::string& path) { return json::parse(std::ifstream(path)); }

/// The events of that phase.
std::vector<json> of_phase(const json& trace, const std::string& phase) {
  std::vector<json> events;
  for (const json& event : trace) {
    if (event["ph"] == phase) events.push_back(event);
  }
  return events;
}

std::string calls_of(int rank, Communicator& comm, int late, bool leave) {
  std::vector<float> data(300'000);
  for (int call = 0; call < 4; ++call) {
    if (rank == late && call == 2) std::this_thread::sleep_for(100ms);
    if (!comm.all_reduce(data.data(), data.data(), data.size(), kF32, ReduceOp::kSum))
      return "failed";
  }
  if (!leave) std::exit(0);  // Its communicator is never destroyed.
  return "";
}

TEST_CASE("all ranks' calls are in one trace, and arrows from the rank that came last") {
  const std::string transport = GENERATE("shared_memory", "tcp");
  const bool leave = GENERATE(true, false);
  INFO(transport << (leave ? ", destroyed" : ", at exit"));
  const ScratchDirectory meeting, traces;
  const std::string path = traces.path() + "/calls.json";
  std::ofstream(path) << "of an earlier run";
  std::this_thread::sleep_for(20ms);
  RankProcesses processes(meeting, 3, traced(transport, path), [&](int rank, Communicator& comm) {
    return calls_of(rank, comm, 1, leave);
  });
  for (int rank = 0; rank < 3; ++rank) REQUIRE(processes.wait(rank) == 0);
  const json trace = read_trace(path);
  std::map<int, int> calls;  // By rank, those that ran a plan.
  std::uint64_t late_call = 0;
  double late_us = 0;
  for (const json& slice : of_phase(trace, "X")) {
    const json& args = slice["args"];
    CHECK(slice["tid"] == args["rank"]);
    CHECK(slice["ts"].get<double>() > 0);
    if (args["path"] != "plan") continue;
    CHECK(slice["name"] == "all_reduce of 300000 float32 (sum)");
    CHECK(args["bytes"] == 1'200'000);
    CHECK(!args["plan"].get<std::string>().empty());
    ++calls[args["rank"].get<int>()];
    if (args["rank"] == 0 && slice["dur"].get<double>() > 80'000) {
      late_call = args["call"].get<std::uint64_t>();
      late_us = slice["dur"].get<double>();
    }
  }
  CHECK(calls == std::map<int, int>{{0, 4}, {1, 4}, {2, 4}});
  CHECK(late_us < 60'000'000);
  REQUIRE(late_call != 0);
  std::set<int> told;
  for (const json& arrow : of_phase(trace, "s")) {
    const std::string id = arrow["id"].get<std::string>();
    if (id.find("." + std::to_string(late_call) + ".") == std::string::npos) continue;
    CHECK(arrow["tid"] == 1);
    for (const json& end : of_phase(trace, "f")) {
      if (end["id"] != id) continue;
      told.insert(end["tid"].get<int>());
      CHECK(end["ts"].get<double>() > arrow["ts"].get<double>());
    }
  }
  CHECK(told == std::set<int>{0, 2});
}

TEST_CASE("every communicator of a job is in its trace") {
  const ScratchDirectory meeting, traces;
  const std::string path = traces.path() + "/calls.json";
  RankProcesses processes(meeting, 4, traced("", path), [&](int rank, Communicator& comm) {
    auto half = comm.split(rank % 2, rank);
    if (!half) return half.error().to_string();
    std::this_thread::sleep_for(2ms);  // A record that is younger than 1 ms has no times.
    std::vector<float> data(100'000);
    return std::string(half->all_gather(data.data(), data.data(), 25'000, kF32) ? "" : "failed");
  });
  for (int rank = 0; rank < 4; ++rank) REQUIRE(processes.wait(rank) == 0);
  const json trace = read_trace(path);
  std::set<int> communicators;
  int half = 0;
  for (const json& event : of_phase(trace, "M")) {
    if (event["name"] == "process_name") communicators.insert(event["pid"].get<int>());
    half += event["name"] == "process_name" &&
            event["args"]["name"].get<std::string>().find(" 2 ranks") != std::string::npos;
  }
  CHECK(communicators.size() == 3);
  CHECK(half == 4);
}

TEST_CASE("a file that is no trace stays as it is") {
  const ScratchDirectory meeting, traces;
  const std::string path = traces.path() + "/notes";
  RankProcesses processes(meeting, 1, traced("", path), [&](int, Communicator& comm) {
    std::this_thread::sleep_for(20ms);
    std::ofstream(path) << "newer than this process";
    return comm.barrier() ? "" : "failed";
  });
  REQUIRE(processes.wait(0) == 0);
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  CHECK(text == "newer than this process");
}

}  // namespace
}  // namespace tutti::test
