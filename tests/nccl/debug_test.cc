// What libnccl writes with NCCL_DEBUG, and where ranks meet with NCCL_COMM_ID: in processes of
// their own, since a process reads its variables once.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>

#include "client.h"
#include "support/environment.h"
#include "support/meetings.h"
#include "support/processes.h"

using tutti::test::Environment;
using tutti::test::Processes;
using tutti::test::ScratchDirectory;

namespace {

std::string last() { return ncclGetLastError(nullptr); }

constexpr std::size_t kCount = 1 << 18;

/// Two ranks in this process: a broadcast, a mistake made three times, an abort and an end.
std::string live() {
  ncclComm_t comms[2];
  if (ncclCommInitAll(comms, 2, nullptr) != ncclSuccess) return last();
  void* data[2];
  ncclGroupStart();
  for (int rank = 0; rank < 2; ++rank) {
    cudaSetDevice(rank);
    if (ncclMemAlloc(&data[rank], kCount * sizeof(int)) != ncclSuccess) return last();
    if (ncclBroadcast(data[rank], data[rank], kCount, ncclInt, 0, comms[rank], nullptr) !=
        ncclSuccess)
      return last();
  }
  if (ncclGroupEnd() != ncclSuccess) return last();
  for (int rank = 0; rank < 2; ++rank) {
    cudaSetDevice(rank);
    cudaDeviceSynchronize();
  }
  for (int i = 0; i < 3; ++i) {
    if (ncclSend(data[0], 1, ncclInt, 9, comms[0], nullptr) != ncclInvalidArgument) return "sent";
  }
  return ncclCommDestroy(comms[0]) == ncclSuccess && ncclCommAbort(comms[1]) == ncclSuccess
             ? ""
             : last();
}

/// What a process writes into its NCCL_DEBUG_FILE while it lives, with these variables too.
std::string written(std::map<std::string, std::string> variables, std::string (*live_so)() = live) {
  const ScratchDirectory scratch;
  variables["NCCL_DEBUG_FILE"] = scratch.path() + "/%h.%p.log";
  variables["HOME"] = scratch.path();
  {
    const Environment environment({"NCCL_", "TUTTI_LOG"}, variables);
    Processes processes(1, [live_so](int) { return live_so(); });
    REQUIRE(processes.wait(0) == 0);
  }
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path())) {
    std::ifstream file(entry.path());
    text.append(std::istreambuf_iterator<char>(file), {});
  }
  return text;
}

std::size_t count(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  return static_cast<std::size_t>(std::distance(
      std::sregex_iterator(text.begin(), text.end(), expression), std::sregex_iterator()));
}

}  // namespace

TEST_CASE("NCCL_DEBUG=INFO writes lines that users of NCCL know") {
  const std::string text =
      written({{"NCCL_DEBUG", "INFO"}, {"NCCL_MAX_CTAS", "8"}, {"NCCL_ALGO", "Ring"}});
  INFO(text);
  const std::string head = R"([^ \n]+:\d+:\d+ \[\d+\] NCCL )";
  const std::string comm = R"(comm 0x[0-9a-f]+ rank [01] nranks 2 cudaDev [01] busId [0-9a-f]+ )"
                           R"(commId 0x[0-9a-f]+ - )";
  CHECK(count(text, "(^|\n)" + head + "INFO NCCL version 2\\.30\\.7\\+tutti") == 1);
  CHECK(count(text, "\n" + head + "INFO ncclCommInitAll " + comm + "Init START") == 2);
  CHECK(count(text, "\n" + head + "INFO ncclCommInitAll " + comm + "Init COMPLETE") == 2);
  CHECK(count(text, "\n" + head + "INFO ncclCommDestroy " + comm + "Destroy COMPLETE") == 1);
  CHECK(count(text, "\n" + head + "INFO ncclCommAbort " + comm + "Abort COMPLETE") == 1);
  CHECK(count(text, "NCCL INFO comm 0x[0-9a-f]+ rank 0: to rank 1: ") == 1);
  CHECK(count(text, "NCCL INFO comm 0x[0-9a-f]+ rank 0: .*8 lanes") == 1);
  CHECK(count(text, "rank 0: plans chosen:") == 1);
  CHECK(count(text, "\\[0\\] NCCL INFO comm 0x[0-9a-f]+ rank 1") == 0);
  CHECK(count(text, "INFO NCCL_MAX_CTAS set by environment to 8 ") == 1);
  CHECK(count(text, "WARN variables without a meaning here: NCCL_ALGO ") == 1);
  CHECK(count(text, "WARN [^\n]*ncclSend[^\n]*9") == 1);
  CHECK(count(text, "(^|\n)(?!" + head + ")[^\n]") == 0);
  // Both ranks have the same id.
  std::smatch first;
  REQUIRE(std::regex_search(text, first, std::regex("commId (0x[0-9a-f]+) - Init COMPLETE")));
  CHECK(count(text, "commId " + first[1].str() + " - Init COMPLETE") == 2);
}

TEST_CASE("NCCL_DEBUG_SUBSYS chooses among the lines of NCCL_DEBUG=INFO") {
  struct Lines {
    std::size_t version, joined, links, plans, variables, warnings;
    bool operator==(const Lines&) const = default;
  };
  const auto with = [](const char* subsystems) {
    const std::string text = written(
        {{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_SUBSYS", subsystems}, {"NCCL_MAX_CTAS", "8"}});
    INFO(subsystems << ": " << text);
    const Lines lines{.version = count(text, "NCCL INFO NCCL version"),
                      .joined = count(text, "Init COMPLETE"),
                      .links = count(text, "rank 0: to rank 1: "),
                      .plans = count(text, "rank 0: plans chosen:"),
                      .variables = count(text, "NCCL_MAX_CTAS set by environment"),
                      .warnings = count(text, "WARN [^\n]*ncclSend")};
    CHECK(lines.version == 1);
    CHECK(lines.warnings == 1);
    return lines;
  };
  CHECK(with("INIT") == Lines{1, 2, 1, 0, 0, 1});
  CHECK(with("P2P") == Lines{1, 0, 1, 0, 0, 1});
  CHECK(with("ENV,TUNING") == Lines{1, 0, 0, 1, 1, 1});
  CHECK(with("COLL") == Lines{1, 0, 0, 0, 0, 1});
  CHECK(with("^TUNING,GRAPH") == Lines{1, 2, 1, 0, 1, 1});
  CHECK(with("ALL") == Lines{1, 2, 1, 1, 1, 1});
  CHECK(with("NOISE") == Lines{1, 2, 1, 1, 1, 1});
}

namespace {

/// A communicator with a name: it is made, split, misused and destroyed.
std::string live_with_name() {
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess) return last();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  std::string name = "pipeline 3\n";
  config.commName = name.c_str();
  ncclComm_t comm = nullptr, part = nullptr, other = nullptr;
  if (ncclCommInitRankConfig(&comm, 1, id, 0, &config) != ncclSuccess) return last();
  name = "overwritten";
  if (ncclCommSplit(comm, 0, 0, &part, nullptr) != ncclSuccess) return last();
  config.commName = "experts";
  if (ncclCommSplit(comm, 0, 0, &other, &config) != ncclSuccess) return last();
  std::string wrong;
  for (const auto& [one, ending] : {std::pair{comm, " (communicator 'pipeline 3?')"},
                                    std::pair{part, " (communicator 'pipeline 3?')"},
                                    std::pair{other, " (communicator 'experts')"}}) {
    static_cast<void>(ncclSend(&id, 1, ncclInt, 9, one, nullptr));
    if (!last().ends_with(ending) || last() != ncclGetLastError(one)) wrong += last();
    static_cast<void>(ncclCommDestroy(one));
  }
  return wrong;
}

}  // namespace

TEST_CASE("a communicator's name is in its lines and errors") {
  const std::string text = written({{"NCCL_DEBUG", "INFO"}}, live_with_name);
  INFO(text);
  CHECK(count(text, "commId 0x[0-9a-f]+ commName pipeline 3\\? - Init COMPLETE") == 2);
  CHECK(count(text, "commId 0x[0-9a-f]+ commName experts - Init COMPLETE") == 1);
  CHECK(count(text, "commName experts - Destroy COMPLETE") == 1);
  CHECK(count(text, "WARN [^\n]*ncclSend[^\n]*\\(communicator 'pipeline 3\\?'\\)\n") == 1);
  CHECK(count(text, "WARN [^\n]*ncclSend[^\n]*\\(communicator 'experts'\\)\n") == 1);
}

TEST_CASE("the lower levels of NCCL_DEBUG write less") {
  const std::string warnings = written({{"NCCL_DEBUG", "WARN"}, {"NCCL_ALGO", "Ring"}});
  INFO(warnings);
  CHECK(count(warnings, "(^|\n)NCCL version 2\\.30\\.7\\+tutti") == 1);
  CHECK(count(warnings, "NCCL WARN [^\n]*ncclSend") == 1);
  CHECK(count(warnings, "NCCL WARN variables without a meaning here: NCCL_ALGO") == 1);
  CHECK(count(warnings, "NCCL INFO") == 0);
  const std::string version = written({{"NCCL_DEBUG", "VERSION"}, {"NCCL_ALGO", "Ring"}});
  CHECK(count(version, "\n") == 1);
  CHECK(count(version, "^NCCL version 2\\.30\\.7\\+tutti") == 1);
  CHECK(written({{"NCCL_ALGO", "Ring"}}).empty());
  // A variable of Tutti's goes first.
  CHECK(count(written({{"NCCL_DEBUG", "INFO"}, {"TUTTI_LOG", "error"}}), "NCCL (INFO|WARN)") == 0);
}

TEST_CASE("a configuration file counts where the environment says nothing") {
  const ScratchDirectory scratch;
  const std::string file = scratch.path() + "/nccl.conf";
  std::ofstream(file) << "NCCL_DEBUG=INFO\nNCCL_MAX_CTAS=4\n";
  const std::string text = written({{"NCCL_CONF_FILE", file}, {"NCCL_MAX_CTAS", "2"}});
  INFO(text);
  CHECK(count(text, "NCCL version") == 1);
  CHECK(count(text, "NCCL_MAX_CTAS set by environment to 2 ") == 1);
}

TEST_CASE("a configuration file that can't be read is told") {
  const std::string text = written({{"NCCL_DEBUG", "WARN"}, {"NCCL_CONF_FILE", "/nowhere"}});
  INFO(text);
  CHECK(count(text, "NCCL WARN NCCL_CONF_FILE='/nowhere' has no effect: it can't be read\n") == 1);
}

TEST_CASE("NCCL's topology files: one that is read, one that can't be, and one that is written") {
  const ScratchDirectory scratch;
  std::string devices;
  for (const int device : {0, 1}) {
    char bus[20] = {};
    REQUIRE(cudaDeviceGetPCIBusId(bus, sizeof bus, device) == cudaSuccess);
    devices += std::string("<pci busid=\"") + bus + R"(" class="0x030200"/>)";
  }
  const std::string file = scratch.path() + "/cloud.xml", dump = scratch.path() + "/dump.xml";
  std::ofstream(file) << R"(<system version="1"><cpu numaid="0">)" + devices + "</cpu></system>\n";
  std::string text = written({{"NCCL_DEBUG", "INFO"},
                              {"NCCL_TOPO_FILE", file},
                              {"NCCL_TOPO_DUMP_FILE", dump},
                              {"NCCL_TOPO_DUMP_FILE_RANK", "1"}});
  INFO(text);
  CHECK(count(text, "plans [^\n]*topology of " + file) >= 1);
  CHECK(count(text, "INFO NCCL_TOPO_FILE set by environment to ") == 1);
  CHECK(count(text, "TUTTI_TOPOLOGY_DUMP=" + dump + ": the topology was written") == 1);
  std::ifstream written_file(dump);
  const std::string xml(std::istreambuf_iterator<char>(written_file), {});
  INFO(xml);
  CHECK(xml.starts_with("<system version=\"1\">"));
  CHECK(count(xml, "<gpu [^>]*rank=\"[01]\"") == 2);

  text = written({{"NCCL_DEBUG", "WARN"}, {"NCCL_TOPO_FILE", scratch.path() + "/none.xml"}});
  INFO(text);
  CHECK(count(text,
              "NCCL WARN NCCL_TOPO_FILE='[^\n]*/none\\.xml' has no effect: it can't be read: "
              "No such file or directory\n") == 1);
}

namespace {

/// Where the ids of this process's making say that their store is: the bytes behind the secret.
std::string id_at_loopback() {
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess) return last();
  constexpr std::size_t kHowMany = 6, kAddresses = 39;
  const std::string_view bytes(id.internal, sizeof id.internal);
  return bytes[kHowMany] == 1 && bytes.substr(kAddresses).starts_with("\4\x7f")
             ? ""
             : "an id has other addresses than those of lo";
}

std::string id_refused() {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  if (ncclGetUniqueId(&id) != ncclInvalidArgument) return "an id without an interface";
  if (last().find("no interface fits") == std::string::npos) return last();
  // Ranks of one process need none.
  if (ncclCommInitAll(&comm, 1, nullptr) != ncclSuccess) return last();
  if (ncclCommGetUniqueId(comm, &id) != ncclInvalidArgument) return "an id without an interface";
  return ncclCommDestroy(comm) == ncclSuccess ? "" : last();
}

}  // namespace

TEST_CASE("NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY choose where unique ids are served") {
  const auto check = [](std::map<std::string, std::string> variables, std::string (*live_so)()) {
    const Environment environment({"NCCL_", "TUTTI_NET"}, variables);
    Processes processes(1, [live_so](int) { return live_so(); });
    CHECK(processes.wait(0) == 0);
  };
  check({{"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_SOCKET_FAMILY", "AF_INET"}}, id_at_loopback);
  check({{"TUTTI_NET_INTERFACES", "127.0.0.0/8"}, {"NCCL_SOCKET_IFNAME", "nowhere7"}},
        id_at_loopback);
  check({{"NCCL_SOCKET_IFNAME", "nowhere7"}}, id_refused);
}

namespace {

/// A rank that has its own id of NCCL_COMM_ID: two communicators one after the other, and parts.
std::string meet_twice(int rank, int size) {
  cudaSetDevice(rank % 2);
  for (int round = 0; round < 2; ++round) {
    ncclUniqueId id, again;
    if (ncclGetUniqueId(&id) != ncclSuccess || ncclGetUniqueId(&again) != ncclSuccess)
      return last();
    if (std::memcmp(&id, &again, sizeof id) != 0) return "two ids differ";
    ncclComm_t comm = nullptr, part = nullptr, grown = nullptr;
    if (ncclCommInitRank(&comm, size, id, rank) != ncclSuccess) return last();
    if (ncclCommSplit(comm, 0, rank, &part, nullptr) != ncclSuccess) return last();
    int excluded = size - 1;
    if (rank != excluded &&
        ncclCommShrink(comm, &excluded, 1, &grown, nullptr, NCCL_SHRINK_DEFAULT) != ncclSuccess)
      return last();
    int count = 0;
    if (ncclCommCount(part, &count) != ncclSuccess || count != size) return "wrong size";
    for (ncclComm_t one : {grown, part, comm}) {
      if (ncclCommDestroy(one) != ncclSuccess) return last();
    }
  }
  return "";
}

}  // namespace

TEST_CASE("NCCL_COMM_ID is where all processes meet, each with an id of its own making") {
  const int size = GENERATE(2, 3);
  const Environment environment(
      {"NCCL_"},
      {{"NCCL_COMM_ID", "127.0.0.1:" + std::to_string(tutti::test::free_port("127.0.0.1"))},
       {"TUTTI_SECRET", "of the test"}});
  Processes processes(size, [&](int rank) { return meet_twice(rank, size); });
  for (int rank = 0; rank < size; ++rank) REQUIRE(processes.wait(rank) == 0);
}

TEST_CASE(
    "a rank that waits at NCCL_COMM_ID for rank 0 can be aborted, and a bad address is told") {
  Processes processes(1, [](int) -> std::string {
    const std::string place = "127.0.0.1:" + std::to_string(tutti::test::free_port("127.0.0.1"));
    const Environment environment({"NCCL_"}, {{"NCCL_COMM_ID", place}});
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    if (ncclGetUniqueId(&id) != ncclSuccess) return last();
    if (ncclCommInitRankConfig(&comm, 2, id, 1, &config) != ncclInProgress) return last();
    if (ncclCommAbort(comm) != ncclSuccess) return last();
    setenv("NCCL_COMM_ID", "nowhere", 1);
    if (ncclGetUniqueId(&id) != ncclInvalidArgument) return "a bad address was taken";
    return last().find("NCCL_COMM_ID='nowhere'") != std::string::npos ? "" : last();
  });
  REQUIRE(processes.wait(0) == 0);
}
