// The bound of a sweep: what the links between NUMA nodes add to it.
#include "perf/sweep/bound.h"
#include "support/catch.h"
#include "topology/bounds/bound.h"
#include "topology/models/model.h"

using namespace tutti;

namespace {

topology::NodeId add(topology::Graph& graph, topology::NodeKind kind, const std::string& name,
                     topology::NodeId host, int index) {
  topology::Node node;
  node.kind = kind;
  node.name = name;
  node.host = host;
  node.index = index;
  return graph.add(std::move(node));
}

// Two NUMA nodes, so many GB/s apart in each direction.
topology::Graph two_nodes(double rate) {
  topology::Graph graph;
  const auto host = add(graph, topology::NodeKind::kHost, "host0", {}, -1);
  topology::Link link;
  link.kind = topology::LinkKind::kSocket;
  link.a = add(graph, topology::NodeKind::kNuma, "host0/numa0", host, 0);
  link.b = add(graph, topology::NodeKind::kNuma, "host0/numa1", host, 1);
  link.forward = link.backward = {rate, topology::Origin::kTable};
  graph.add(link);
  return graph;
}

double us(const topology::Graph& graph, Collective collective, const std::vector<int>& numas,
          double bytes) {
  return bytes * perf::links_bound(graph, collective, numas, 0).us_per_byte;
}

}  // namespace

TEST_CASE("what crosses between two NUMA nodes takes its time") {
  const topology::Graph graph = two_nodes(10);  // 10,000 bytes a microsecond.
  const std::vector<int> even{0, 0, 1, 1}, uneven{0, 0, 0, 1};
  // All-reduce and broadcast: the message crosses once. All-gather: what the other side has.
  CHECK(us(graph, Collective::kAllReduce, even, 1e6) == Approx(100));
  CHECK(us(graph, Collective::kBroadcast, even, 1e6) == Approx(100));
  CHECK(us(graph, Collective::kAllGather, even, 1e6) == Approx(50));
  CHECK(us(graph, Collective::kAllGather, uneven, 1e6) == Approx(75));
  CHECK(us(graph, Collective::kReduceScatter, even, 1e6) == Approx(50));
  CHECK(us(graph, Collective::kReduce, even, 1e6) == Approx(100));
  CHECK(us(graph, Collective::kScan, uneven, 1e6) == Approx(100));
  // The shares of ranks that are not on the root's side.
  CHECK(us(graph, Collective::kGather, even, 1e6) == Approx(50));
  CHECK(us(graph, Collective::kScatter, uneven, 1e6) == Approx(25));
  // Each of two ranks sends each of the other two a quarter of what it has.
  CHECK(us(graph, Collective::kAllToAll, even, 1e6) == Approx(100));
}

TEST_CASE("where nothing is known to be in the way there is no bound, and the reason") {
  const topology::Graph graph = two_nodes(10);
  const auto none = [](const topology::Graph& host, Collective collective,
                       const std::vector<int>& numas) {
    const auto bound = perf::links_bound(host, collective, numas, 0);
    CHECK(bound.us_per_byte == 0);
    CHECK_FALSE(bound.words.empty());
  };
  none(graph, Collective::kAllReduce, {0, 0});      // One NUMA node.
  none(graph, Collective::kAllReduce, {0, -1, 1});  // One may run anywhere.
  none(graph, Collective::kAllReduce, {0, 7});      // The probe saw two.
  topology::Graph unknown = graph;
  unknown.links[0].forward = unknown.links[0].backward = {};
  none(unknown, Collective::kAllReduce, {0, 1});
}

TEST_CASE("every input is read once and every output written once") {
  perf::Shape shape{.collective = Collective::kAllReduce, .count = 1000, .ranks = 4};
  CHECK(perf::memory_traffic(shape) == 2 * 4 * 4000);
  shape.collective = Collective::kAllGather;
  CHECK(perf::memory_traffic(shape) == 4 * 4000 + 4 * 4 * 4000);
  shape.collective = Collective::kBroadcast;
  CHECK(perf::memory_traffic(shape) == 4000 + 4 * 4000);
  shape.collective = Collective::kScatter;
  CHECK(perf::memory_traffic(shape) == 4 * 4000 + 4 * 4000);
}
