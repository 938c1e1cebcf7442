// Processes that choose plans by a graph of their host: TUTTI_TOPOLOGY, comm/topology.h.
#include "comm/topology.h"

#include <fmt/format.h>
#include <sched.h>

#include <fstream>
#include <numeric>

#include "base/cpus.h"
#include "support/catch.h"
#include "support/processes.h"
#include "topology/graph/text.h"
#include "tutti/rendezvous.h"

namespace tutti::test {
namespace {

/// The CPUs of this process, one NUMA node each.
std::vector<int> own_cpus() {
  std::vector<int> cpus;
  const CpuSet set = affinity();
  for (int cpu = 0; cpu < 1024 && cpus.size() < 2; ++cpu) {
    if ((set[static_cast<std::size_t>(cpu / 64)] >> (cpu % 64) & 1) != 0) cpus.push_back(cpu);
  }
  return cpus;
}

std::string two_nodes(const std::vector<int>& cpus) {
  return fmt::format(
      "tutti topology 1\nhost h\nnuma h/a host=h .cpus={}\nnuma h/b host=h .cpus={}\n"
      "socket h/a h/b forward=20:measured backward=20:measured\n",
      cpus.at(0), cpus.at(1));
}

std::string write(const ScratchDirectory& directory, const std::string& text) {
  std::ofstream(directory.path() + "/machine.topo") << text;
  return directory.path() + "/machine.topo";
}

/// Ranks in order, the first half on the first CPU, or `anywhere`. What each says of its topology.
void all_say(int ranks, const Settings& settings, const std::vector<int>& cpus, bool anywhere,
             const std::string& expected, const std::string& groups) {
  const ScratchDirectory meeting;
  Processes processes(ranks, [&](int rank) -> std::string {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(cpus[2 * rank < ranks ? 0 : 1]), &one);
    if (!anywhere && sched_setaffinity(0, sizeof(one), &one) != 0) return "not pinned";
    const auto comm = join(meeting, rank, ranks, settings);
    if (!comm) {
      const bool as_expected = comm.error().what.find(expected) != std::string::npos &&
                               comm.error().code == Code::kInvalidArgument;
      return as_expected ? "" : comm.error().to_string();
    }
    const std::string said = comm->describe();
    if (said.find(expected) == std::string::npos) return said;
    if (!groups.empty() && said.find(groups) == std::string::npos) return said;
    std::vector<float> data(200'000, static_cast<float>(rank));
    const Status done = const_cast<Communicator&>(*comm).all_reduce(
        data.data(), data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum);
    if (!done) return done.error().to_string();
    const float sum = static_cast<float>(ranks * (ranks - 1) / 2);
    for (const float value : data) {
      if (value != sum) return "a wrong sum";
    }
    auto part = const_cast<Communicator&>(*comm).split(rank % 2, rank);
    if (!part) return part.error().to_string();
    const std::string of_part = part->describe();
    const bool known = expected.starts_with("topology: topology of") || anywhere;
    return known && of_part.find("topology: ") == std::string::npos ? of_part : "";
  });
  for (int rank = 0; rank < ranks; ++rank) CHECK(processes.wait(rank) == 0);
}

TEST_CASE("ranks of two NUMA nodes choose by them") {
  const auto cpus = own_cpus();
  if (cpus.size() < 2) return;  // Then there is nothing to pin ranks to.
  const ScratchDirectory files;
  Settings settings;
  settings.transport = "shared_memory";
  settings.topology = write(files, two_nodes(cpus));
  all_say(4, settings, cpus, false,
          fmt::format("topology: topology of {}: 2 NUMA nodes", settings.topology), "groups of 2");
  all_say(4, settings, cpus, true, "rank 0 may run on CPUs of several NUMA nodes", "");
}

TEST_CASE("a topology that can't be read is an error on all ranks") {
  const auto cpus = own_cpus();
  const ScratchDirectory files;
  Settings settings;
  settings.transport = "shared_memory";
  settings.topology = files.path() + "/nothing";
  const std::vector<int> any(2, cpus.at(0));
  all_say(3, settings, any, true, "nothing: it can't be read: No such file or directory", "");
  settings.topology = write(files, "<topology/>\n");
  all_say(3, settings, any, true, "a communicator reads the text form and NCCL's XML alone", "");
  settings.topology = write(files, "<system version=\"1\"/>\n");
  all_say(3, settings, any, true, ":1: a <system> without any <cpu>", "");
}

Peer peer_on(const std::string& host, const std::vector<int>& cpus) {
  Peer peer{};
  host.copy(peer.host_name, sizeof(peer.host_name) - 1);
  peer.host[0] = std::hash<std::string>()(host);
  for (const int cpu : cpus)
    peer.cpus[static_cast<std::size_t>(cpu / 64)] |= std::uint64_t{1} << (cpu % 64);
  return peer;
}

/// Where the ranks are, by name; or why that can't be said.
std::string names_of(const topology::Graph& graph, const std::vector<Peer>& peers) {
  const auto places = find_places(graph, peers);
  if (!places) return places.error().what;
  std::string text;
  for (const auto place : *places) text += graph[place].name + " ";
  return text;
}

TEST_CASE("the places of ranks follow from the names and CPUs of their hosts") {
  const auto graph = topology::parse_graph(
      "tutti topology 1\nhost x .hostname=node1\nhost y .hostname=node2\n"
      "numa x/a host=x .cpus=0-1,64\nnuma x/b host=x .cpus=2-3\nnuma y/a host=y\n",
      "test");
  REQUIRE(graph);
  const auto names = [&](const std::vector<Peer>& peers) { return names_of(*graph, peers); };
  CHECK(names({peer_on("node1", {3}), peer_on("node2", {0, 9}), peer_on("node1", {0, 64})}) ==
        "x/b y/a x/a ");
  CHECK(names({peer_on("node1", {1, 2})}) ==
        "rank 0 may run on CPUs of several NUMA nodes, or of none of x");
  CHECK(names({peer_on("node1", {65})}) ==
        "rank 0 may run on CPUs of several NUMA nodes, or of none of x");
  CHECK(names({peer_on("node1", {0}), peer_on("node3", {0})}) == "it has no host called node3");
}

TEST_CASE(
    "hosts of which a file names none are those of the ranks in their order, if all are there") {
  const auto graph = topology::parse_graph(
      "tutti topology 1\nhost x\nhost y\nnuma x/a host=x\nnuma y/a host=y\n", "test");
  REQUIRE(graph);
  const auto names = [&](const std::vector<Peer>& peers) { return names_of(*graph, peers); };
  CHECK(names({peer_on("node7", {0}), peer_on("node2", {0}), peer_on("node7", {1})}) ==
        "x/a y/a x/a ");
  CHECK(names({peer_on("node7", {0}), peer_on("node7", {1})}) ==
        "it names none of its 2 hosts, and ranks are on 1");
}

}  // namespace
}  // namespace tutti::test
