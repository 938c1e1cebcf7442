// Choosing on real ranks: forced, forbidden, tuned, or found by trying; results stay right and
// ranks agree.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "algorithms/algorithm.h"
#include "base/output.h"
#include "comm/tuning.h"
#include "support/catch.h"
#include "support/cluster.h"
#include "topology/probe/fingerprint.h"
#include "transport/transport.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

/// A file of tables, for the length of a test.
class TableFile {
 public:
  explicit TableFile(const std::vector<planner::TuningTable>& tables) {
    REQUIRE(write_file(path(), planner::tuning_text(tables)));
  }
  explicit TableFile(const std::string& text) { std::ofstream(path()) << text; }
  ~TableFile() { std::filesystem::remove(path()); }
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;
  std::string path() const {
    return (std::filesystem::temp_directory_path() /
            ("tutti-choosing-" + std::to_string(getpid()) + ".json"))
        .string();
  }
};

/// For ranks that are threads and reach all buffers of each other: the list of mapped ones counts.
planner::TuningTable table_for(int ranks) {
  planner::TuningTable table;
  const Peer self = this_process();
  table.key = {topology::fingerprint_of_this_machine(), TUTTI_VERSION, "in_process", ranks,
               shared_cpus(std::span(&self, 1))};
  return table;
}

Result<std::vector<Communicator>> make(int ranks, const Settings& settings) {
  Settings own = settings;
  own.timeout = 60s;
  own.transport = "in_process";
  return Communicator::in_process(ranks, own);
}

std::vector<Communicator> ranks_with(int ranks, const Settings& settings) {
  auto comms = make(ranks, settings);
  INFO((comms ? "" : comms.error().to_string()));
  REQUIRE(comms);
  return *std::move(comms);
}

/// Sums small integers, exactly, `times` times. Empty, or what was wrong.
std::string sums(Communicator& comm, std::size_t count, int times, std::string_view algorithm = {},
                 bool mapped = false) {
  const Memory in(count * sizeof(float), mapped, 0), out(count * sizeof(float), mapped, 0);
  auto* const input = reinterpret_cast<float*>(in.data());
  auto* const output = reinterpret_cast<float*>(out.data());
  const auto ranks = static_cast<float>(comm.rank_count());
  for (int call = 0; call < times; ++call) {
    for (std::size_t i = 0; i < count; ++i)
      input[i] = static_cast<float>(comm.rank().value + call % 7 + static_cast<int>(i % 5));
    if (auto status = comm.call({.collective = Collective::kAllReduce,
                                 .input = input,
                                 .output = output,
                                 .count = count,
                                 .type = DataType::kFloat32,
                                 .algorithm = algorithm});
        !status)
      return status.error().to_string();
    for (std::size_t i = 0; i < count; ++i) {
      const float want =
          ranks * (ranks - 1) / 2 + ranks * static_cast<float>(call % 7 + static_cast<int>(i % 5));
      if (output[i] != want) return "a wrong sum in call " + std::to_string(call);
    }
  }
  return "";
}

TEST_CASE("a call may ask for any algorithm that applies, or for packets, and gets right results") {
  for (const int ranks : {2, 4}) {
    Settings settings;
    settings.contract = Contract::kRelaxed;
    settings.algorithm = "all_reduce=double_tree";  // It has the most lanes.
    auto comms = ranks_with(ranks, settings);
    for (int i = 0; i < kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i);
      std::vector<std::string> overrides{"packet", "^packet", "^direct"};
      for (const Algorithm* algorithm : algorithms()) {
        if (algorithm->collective == collective && algorithm->applies({collective, ranks, 0}))
          overrides.emplace_back(algorithm->name);
      }
      for (const std::string& algorithm_override : overrides) {
        if (algorithm_override == "^direct" && find_algorithm(collective, "direct") == nullptr)
          continue;
        for (const bool mapped : {false, true}) {
          Case test{.collective = collective, .count = 777, .ranks = ranks, .mapped = mapped};
          test.exact = true;
          INFO(algorithm_override << ": " << test.to_string());
          CHECK(on_all_ranks(comms, [&](Communicator& comm) -> std::string {
                  std::vector<Buffer> inputs(static_cast<std::size_t>(ranks),
                                             Buffer(test.input_bytes()));
                  for (int rank = 0; rank < ranks; ++rank)
                    fill(test, rank, 5, inputs[static_cast<std::size_t>(rank)].data());
                  const int me = comm.rank().value;
                  const Memory in(test.input_bytes(), mapped, 0);
                  const Memory out(test.output_bytes(), mapped, 0);
                  const Buffer& mine = inputs[static_cast<std::size_t>(me)];
                  std::copy(mine.begin(), mine.end(), in.data());
                  if (auto status = comm.call({.collective = collective,
                                               .input = in.data(),
                                               .output = out.data(),
                                               .count = test.count,
                                               .type = test.type,
                                               .algorithm = algorithm_override});
                      !status)
                    return status.error().to_string();
                  const Buffer want = expected(test, me, inputs);
                  return std::equal(want.begin(), want.end(), out.data()) ? "" : "wrong";
                }) == "");
        }
      }
    }
  }
}

TEST_CASE("what a call can't have is said at once, and the communicator lives on") {
  auto comms = ranks_with(3, {});
  CHECK(on_all_ranks(comms, [](Communicator& comm) -> std::string {
          for (const char* algorithm_override : {"nonsense", "ring", "^nonsense", "double_tree"}) {
            const std::string what = sums(comm, 1000, 1, algorithm_override);
            if (what.find("invalid argument") == std::string::npos)
              return algorithm_override + (": " + what);
          }
          return sums(comm, 1000, 2);
        }) == "");
}

TEST_CASE("ranks that ask for different algorithms get an error, not a wrong result") {
  auto comms = ranks_with(2, {});
  std::vector<std::string> said(2);
  on_all_ranks(comms, [&](Communicator& comm) -> std::string {
    const auto me = static_cast<std::size_t>(comm.rank().value);
    said[me] = sums(comm, 50000, 1, me == 0 ? "one_shot" : "two_shot");
    return "";
  });
  for (const std::string& text : said) CHECK_THAT(text, Catch::Contains("algorithm of its own"));
}

/// Whether describe() has a plan of that name for so many ranks. Plans are those of the process, so
/// each test that asks has a rank count of its own.
bool has_plan(const Communicator& comm, const std::string& name, int ranks) {
  std::istringstream text(comm.describe());
  for (std::string line; std::getline(text, line);) {
    if (line.find("  " + name) == 0 &&
        line.find(", " + std::to_string(ranks) + " ranks:") != std::string::npos)
      return true;
  }
  return false;
}

TEST_CASE("a table of this machine decides, and what is forced goes before it") {
  constexpr int kRanks = 6;
  planner::TuningTable table = table_for(kRanks);
  table.of(Collective::kAllReduce, true) = {
      {512, {{"packet", 1, 1}, {"one_shot", 1, 2}}},
      {65536, {{"one_shot", 1, 2}, {"packet", 1, 9}, {"two_shot", 1, 40}}}};
  const TableFile file({table});
  Settings settings;
  settings.tuning = file.path();
  // The first call is a packet: ranks do not know yet that they can map the buffers.
  {
    Settings off;
    off.tuning = "off";
    auto comms = ranks_with(kRanks, off);
    CHECK(on_all_ranks(comms, [](Communicator& comm) { return sums(comm, 3000, 2); }) == "");
    CHECK_FALSE(has_plan(comms[0], "all_reduce one_shot", kRanks));
  }
  auto comms = ranks_with(kRanks, settings);
  CHECK_THAT(comms[0].describe(), Catch::Contains("tuning: " + file.path() + " (machine "));
  CHECK(on_all_ranks(comms, [](Communicator& comm) { return sums(comm, 3000, 2); }) == "");
  CHECK(has_plan(comms[1], "all_reduce one_shot", kRanks));
  settings.algorithm = "pat";
  auto forced = ranks_with(kRanks, settings);
  CHECK(on_all_ranks(forced, [](Communicator& comm) { return sums(comm, 3000, 1); }) == "");
  CHECK(has_plan(forced[1], "all_reduce pat", kRanks));
}

TEST_CASE("a table for something else is left alone, and describe says why") {
  const auto said = [](auto change) {
    planner::TuningTable table = table_for(2);
    change(table.key);
    const TableFile file({table});
    Settings settings;
    settings.tuning = file.path();
    auto comms = ranks_with(2, settings);
    CHECK(on_all_ranks(comms, [](Communicator& comm) { return sums(comm, 3000, 1); }) == "");
    CHECK_THAT(comms[1].describe(), Catch::Contains(file.path() + " is not used: "));
    return comms[1].describe();
  };
  CHECK_THAT(said([](planner::TuningKey& key) { key.version = "0.0.1"; }),
             Catch::Contains("made by version 0.0.1, this is " TUTTI_VERSION));
  CHECK_THAT(said([](planner::TuningKey& key) { ++key.machine; }),
             Catch::Contains("made on another machine"));
  CHECK_THAT(said([](planner::TuningKey& key) { key.rank_count = 5; }),
             Catch::Contains("made for 5 ranks, these are 2"));
  CHECK_THAT(said([](planner::TuningKey& key) { key.transport = "tcp"; }),
             Catch::Contains("made over tcp, this is in_process"));
  Settings off;
  off.tuning = "off";
  auto comms = ranks_with(2, off);
  CHECK_THAT(comms[0].describe(), Catch::Contains("tuning: switched off"));
}

/// Four ranks over TCP, each a host of its own; the last carries half of what the others do.
struct Hosts {
  static constexpr int kRanks = 4;
  planner::TuningTable table = table_for(kRanks);

  Hosts() {
    table.key.transport = "tcp";
    table.key.hosts = {0, 1, 2, 3};
    const auto met = meet_hosts(
        table.key.hosts,
        [](std::string_view, std::span<const std::byte> mine) -> Result<std::vector<Bytes>> {
          return std::vector<Bytes>(kRanks, Bytes(mine.begin(), mine.end()));
        });
    REQUIRE(met);
    table.key.machine = met->machine;
    table.network = {{11, 0.5}, 2};
    for (int host = 0; host < kRanks; ++host)
      table.rates.push_back({met->names[0], host < 3 ? 0.5 : 0.25});
    table.of(Collective::kAllReduce, false) = {{65536, {{"weighted", 1, 40}, {"two_shot", 2, 90}}}};
  }

  std::vector<Communicator> ranks(const std::string& weights = "") const {
    const TableFile file({table});
    Settings settings;
    settings.timeout = 60s;
    settings.transport = "tcp";
    settings.tuning = file.path();
    if (!weights.empty()) settings.weights = {2, 1, 1, 1};
    auto comms = Communicator::in_process(kRanks, settings);
    INFO((comms ? "" : comms.error().to_string()));
    REQUIRE(comms);
    return *std::move(comms);
  }
};

TEST_CASE("a table of several hosts says what their network costs and which one carries less") {
  const Hosts hosts;
  auto comms = hosts.ranks();
  const Request request{
      .collective = Collective::kAllReduce, .count = 16000, .type = DataType::kFloat32};
  for (const Communicator& comm : comms) {
    CHECK_THAT(comm.describe(), Catch::Contains("hosts: 4; between them 11 us and 0.5 GB/s were "
                                                "measured, 0.25 at ") &&
                                    Catch::Contains("; weights 1,1,1,0\n") &&
                                    Catch::Contains(" (machine ") && Catch::Contains("; 4 lanes"));
    const auto why = comm.explain(request);
    REQUIRE(why);
    CHECK_THAT(*why, Catch::Contains("Taken: weighted, as measured here") &&
                         Catch::Contains("Weights: 1,1,1,0 by rank, as ") &&
                         Catch::Contains("carries 0.25 GB/s where others carry 0.5"));
  }
  CHECK(on_all_ranks(comms, [](Communicator& comm) { return sums(comm, 16000, 2); }) == "");
  CHECK(has_plan(comms[1], "all_reduce weighted", Hosts::kRanks));

  auto wished = hosts.ranks("2,1,1,1");
  CHECK_THAT(wished[2].describe(), Catch::Contains("; weights 2,1,1,1\n"));
  const auto why = wished[0].explain(request);
  REQUIRE(why);
  CHECK_THAT(*why, Catch::Contains("Weights: 2,1,1,1 by rank, as TUTTI_WEIGHTS says"));
}

TEST_CASE("hosts are met by the first rank of each") {
  const std::vector<int> hosts{0, 1, 0, 2, 1};
  const auto met_with = [&](int changed, std::size_t byte) {
    const auto met = meet_hosts(
        hosts,
        [&](std::string_view, std::span<const std::byte> mine) -> Result<std::vector<Bytes>> {
          std::vector<Bytes> all(hosts.size(), Bytes(mine.begin(), mine.end()));
          if (changed >= 0) all[static_cast<std::size_t>(changed)][byte] ^= std::byte{0x81};
          return all;
        });
    REQUIRE(met);
    REQUIRE(met->names.size() == 3);
    return *met;
  };
  const TunedHosts alike = met_with(-1, 0);
  CHECK(alike.names[0] == alike.names[2]);
  for (int rank = 0; rank < 5; ++rank) {
    INFO("rank " << rank);
    const bool first = rank != 2 && rank != 4;
    CHECK((met_with(rank, 0).machine != alike.machine) == first);
    const TunedHosts renamed = met_with(rank, 8);  // To what is no letter.
    CHECK(renamed.machine == alike.machine);
    CHECK((renamed.names != alike.names) == first);
    for (const std::string& name : renamed.names) {
      CHECK(std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; }));
    }
  }
  CHECK_FALSE(meet_hosts(hosts, [&](std::string_view, std::span<const std::byte>) {
    return Result<std::vector<Bytes>>(std::vector<Bytes>(hosts.size(), Bytes(3)));
  }));
}

TEST_CASE(
    "what hosts carry holds for these hosts; the rest of their table for machines like them") {
  Hosts hosts;
  hosts.table.rates[1].name = "elsewhere";
  const std::string others = hosts.ranks()[3].describe();
  CHECK_THAT(others, Catch::Contains("11 us and 0.5 GB/s were measured\n") &&
                         !Catch::Contains("weights") && Catch::Contains(" (machine "));
  ++hosts.table.key.machine;
  CHECK_THAT(hosts.ranks()[1].describe(), Catch::Contains("is not used: made on other machines"));
  hosts.table.key.hosts = {0, 0, 1, 1};
  hosts.table.rates.resize(2);
  const std::string otherwise = hosts.ranks()[1].describe();
  CHECK_THAT(otherwise, Catch::Contains("is not used: made for ranks that share hosts otherwise") &&
                            Catch::Contains("GB/s are assumed"));
}

TEST_CASE("a call may say how often a plan's lanes are repeated") {
  Settings settings;
  settings.algorithm = "all_reduce=two_shot:3";
  auto comms = ranks_with(3, settings);
  CHECK_THAT(comms[0].describe(), Catch::Contains("; 3 lanes"));
  for (const char* algorithm_override :
       {"", "two_shot:2", "two_shot:3", "one_shot:1", "two_shot:4"}) {
    INFO(algorithm_override);
    const std::string said = on_all_ranks(
        comms, [&](Communicator& comm) { return sums(comm, 3000, 2, algorithm_override); });
    if (std::string_view(algorithm_override) == "two_shot:4")
      CHECK_THAT(said, Catch::Contains("takes 4 lanes, this communicator has 3"));
    else
      CHECK(said == "");
  }
  const auto why = comms[0].explain({.collective = Collective::kAllReduce,
                                     .count = 100000,
                                     .type = DataType::kFloat32,
                                     .algorithm = "one_shot:2"});
  REQUIRE(why);
  CHECK_THAT(*why, Catch::Contains(" 1 one_shot               2 "));
}

TEST_CASE("a file that was asked for and is broken or missing is one error for all ranks") {
  const auto broken = [](const Settings& settings) {
    const auto rendezvous = memory_rendezvous();
    std::vector<std::string> said(3);
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
          const auto comm = Communicator::create(*rendezvous, Rank{rank}, 3, settings);
          said[static_cast<std::size_t>(rank)] = comm ? "made" : comm.error().what;
        });
      }
    }
    CHECK(said[0] == said[1]);
    CHECK(said[0] == said[2]);
    return said[0];
  };
  const TableFile file("{\n\"tutti_tuning\": 1,\n,");
  Settings settings;
  settings.tuning = file.path();
  CHECK_THAT(broken(settings), Catch::StartsWith("TUTTI_TUNING: " + file.path() + ": line 3"));
  settings.tuning = "/nowhere/tuning.json";
  CHECK_THAT(broken(settings), Catch::StartsWith("TUTTI_TUNING: /nowhere/tuning.json: "));
}

TEST_CASE("ranks that are split off use the table for their number") {
  planner::TuningTable table = table_for(5);
  table.of(Collective::kAllReduce, true) = {{512, {{"one_shot", 1, 1}}}};
  const TableFile file({table_for(10), table});
  Settings settings;
  settings.tuning = file.path();
  auto comms = ranks_with(10, settings);
  CHECK(on_all_ranks(comms, [](Communicator& comm) -> std::string {
          auto half = comm.split(comm.rank().value % 2, 0);
          if (!half) return half.error().to_string();
          const std::string what = sums(*half, 3000, 2);
          if (!what.empty()) return what;
          return has_plan(*half, "all_reduce one_shot", 5) ? "" : half->describe();
        }) == "");
}

/// What the parts of a communicator of 3 ranks say of their tuning, rank 0 alone and the others
/// together, if ranks' settings are these.
std::vector<std::string> parts_of(const std::array<std::string, 3>& tuning) {
  const auto meeting = memory_rendezvous();
  std::vector<std::string> said(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank, r = static_cast<std::size_t>(rank)] {
      Settings settings;
      settings.timeout = 60s;
      settings.transport = "in_process";
      settings.tuning = tuning[r];
      auto whole = Communicator::create(*meeting, Rank{rank}, 3, settings);
      if (!whole) return;
      auto part = whole->split(rank == 0 ? 0 : 1, rank);
      said[r] = part ? part->describe() : part.error().to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return said;
}

TEST_CASE("a part has the tables of the whole, or what its first rank finds on another machine") {
  const TableFile file({table_for(2)});
  const std::string used = "tuning: " + file.path() + " (machine ";
  const std::string nowhere = "/nowhere/tuning.json";
  // The whole has none: no machine was looked at.
  auto said = parts_of({"off", file.path(), nowhere});
  CHECK_THAT(said[0], Catch::Contains("tuning: switched off"));
  CHECK_THAT(said[1], Catch::Contains(used));
  CHECK_THAT(said[2], Catch::Contains(used));
  // It has some, of this machine.
  said = parts_of({file.path(), nowhere, "off"});
  CHECK_THAT(said[0], Catch::Contains(file.path() + " is not used: made for 2 ranks"));
  CHECK_THAT(said[1], Catch::Contains(used));
  CHECK_THAT(said[2], Catch::Contains(used));
  // Nor has a part any: that is no error there.
  said = parts_of({"off", nowhere, "off"});
  CHECK_THAT(said[1], Catch::Contains("tuning: TUTTI_TUNING: " + nowhere + ": "));
  CHECK_THAT(said[2], Catch::Contains("tuning: TUTTI_TUNING: " + nowhere + ": "));
}

TEST_CASE("the first rank of a part looks for tables if the whole's are of another machine") {
  const TableFile file({table_for(2), table_for(3)});
  Settings settings;
  settings.tuning = file.path();
  Tuning whole;
  whole.machine = topology::fingerprint_of_this_machine();
  CHECK_FALSE(find_tuning_of_part(settings, 2, whole));
  whole.machine = ~whole.machine;
  const auto found = find_tuning_of_part(settings, 2, whole);
  REQUIRE(found);
  CHECK(found->machine == ~whole.machine);
  REQUIRE(found->tables.size() == 1);  // No part of it has 3 ranks.
  CHECK(found->tables[0] == table_for(2));
}

TEST_CASE(
    "where an estimate is wrong ranks try other plans, all the same ones, and settle, if they "
    "adapt") {
  // More ranks than the rules are for; and a machine of which the table says that bytes and hops
  // cost nothing, so that every call takes far longer than predicted.
  constexpr int kRanks = 9;
  planner::TuningTable table = table_for(kRanks);
  table.costs = {{1e-6, 1e6}, 1e6};
  const TableFile file({table});
  for (const bool adapt : {true, false}) {
    Settings settings;
    settings.tuning = file.path();
    settings.adapt = adapt;
    auto comms = ranks_with(kRanks, settings);
    CHECK(on_all_ranks(comms, [](Communicator& comm) -> std::string {
            for (const bool mapped : {false, true}) {
              // Two sizes and packets in turns, so that times come late, and by way of other calls.
              for (int round = 0; round < 30; ++round) {
                for (const std::size_t count : {20000, 3, 5000}) {
                  const std::string what = sums(comm, count, 1, {}, mapped);
                  if (!what.empty()) return what;
                }
              }
            }
            return "";
          }) == "");
    // Several were tried: each is prepared when it is, or when it is estimated; the trial says so.
    const std::string said = comms[0].describe();
    CHECK_THAT(said, Catch::Contains(adapt ? "adapting: on" : "adapting: off"));
    CHECK((said.find("trials: 0 plans") != std::string::npos) == !adapt);
    CHECK((said.find("eager limits: of buffers that all ranks can map") != std::string::npos) ==
          adapt);
  }
}

}  // namespace
}  // namespace tutti::test
