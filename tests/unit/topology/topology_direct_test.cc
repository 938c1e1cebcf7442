// What keeps two devices apart, and the way through host memory; and that checks see the same
// facts.
#include <set>

#include "support/catch.h"
#include "topology/checks/check.h"
#include "topology/checks/direct.h"
#include "topology/models/model.h"

using namespace tutti;
using namespace tutti::topology;

namespace {

using Verdict = Direct::Verdict;
using Facts = std::map<std::string, std::string>;

Graph make(const std::string& spec) {
  auto made = model(spec);
  REQUIRE(made);
  for (Node& node : made->nodes) {
    if (node.kind == NodeKind::kGpu) node.facts["vendor"] = "0x10de";
    if (node.kind == NodeKind::kNic) node.facts["guid"] = "0:0:0:1";
  }
  return *std::move(made);
}

void set(Graph& graph, const std::string& name, const Facts& facts) {
  INFO(name);
  const NodeId node = graph.find("host0" + name);
  REQUIRE(node.exists());
  for (const auto& [key, value] : facts) graph[node].facts[key] = value;
}

Direct between(const Graph& graph, const std::string& a, const std::string& b) {
  return direct_access(graph, graph.find("host0/" + a), graph.find("host0/" + b));
}

std::multiset<std::string> codes(const Graph& graph) {
  std::multiset<std::string> found;
  for (const Finding& finding : check(graph)) found.insert(finding.code);
  return found;
}

}  // namespace

TEST_CASE("Where nothing is known, nothing is refused, between any two nodes of any model") {
  for (const Model* each : models()) {
    const auto graph = model(each->name);
    REQUIRE(graph);
    INFO(each->name);
    for (std::uint32_t a = 0; a < graph->nodes.size(); a += 3) {
      for (std::uint32_t b = 0; b < graph->nodes.size(); b += 5) {
        const Direct direct = direct_access(*graph, {a}, {b});
        REQUIRE(direct.verdict == Verdict::kAllowed);
        REQUIRE(direct.why.empty());
        REQUIRE(direct.staged.empty());
      }
    }
  }
}

TEST_CASE("GPUDirect by peermem, kernel, and dma-buf of the GPU and the NIC") {
  struct Case {
    const char* kernel;
    bool peermem;
    const char* gpu;  // The fact dma_buf; "" not known.
    const char* nic;
    Verdict verdict;
  };
  const Case cases[] = {
      {"6.8.0", true, "", "", Verdict::kAllowed},
      {"5.4.0", true, "no", "no", Verdict::kAllowed},
      {"5.4.0", false, "", "", Verdict::kRefused},
      {"5.4.0", false, "yes", "", Verdict::kRefused},
      {"5.11.9", false, "", "", Verdict::kRefused},
      {"5.12.0", false, "", "", Verdict::kDepends},
      {"6.8.0", false, "yes", "", Verdict::kAllowed},
      {"6.8.0", false, "no", "", Verdict::kRefused},
      {"6.8.0", false, "", "no", Verdict::kRefused},
      {"", false, "", "", Verdict::kAllowed},
      {"6.8.0", false, "yes", "no", Verdict::kRefused},
  };
  for (const Case& each : cases) {
    INFO(each.kernel << " " << each.peermem << " " << each.gpu << " " << each.nic);
    Graph graph = make("hgx-h100");
    if (each.kernel[0] != '\0') set(graph, "", {{"kernel", each.kernel}});
    if (each.peermem) set(graph, "", {{"peermem", "loaded"}});
    for (Node& node : graph.nodes) {
      const std::string said = node.kind == NodeKind::kGpu   ? each.gpu
                               : node.kind == NodeKind::kNic ? each.nic
                                                             : "";
      if (!said.empty()) node.facts["dma_buf"] = said;
    }
    const Direct direct = between(graph, "gpu0", "mlx5_0");
    CHECK(direct.verdict == each.verdict);
    CHECK(direct.why.empty() == (each.verdict == Verdict::kAllowed));
    CHECK(between(graph, "mlx5_0", "gpu0").verdict == each.verdict);
    // The doctor says so too: a warning for what is refused, a note for what is not sure.
    CHECK((codes(graph).count("gpudirect-driver") == 1) == (each.verdict != Verdict::kAllowed));
    // What does no RDMA has nothing to refuse.
    graph[graph.find("host0/mlx5_0")].facts.erase("guid");
    CHECK(between(graph, "gpu0", "mlx5_0").verdict == Verdict::kAllowed);
  }
}

TEST_CASE(
    "What is refused goes through the memory next to the GPU, and its narrowest link counts") {
  Graph graph = make("hgx-h100");
  set(graph, "", {{"kernel", "5.4.0"}});
  for (const char* nic : {"mlx5_0", "mlx5_7"}) {
    const Direct direct = between(graph, "gpu0", nic);
    INFO(nic);
    REQUIRE(direct.staged.size() == 2);
    const Path &up = direct.staged[0], &down = direct.staged[1];
    CHECK(graph[up.from].name == "host0/gpu0");
    CHECK(graph[up.to].name == "host0/numa0");
    CHECK(down.from == up.to);
    CHECK(graph[down.to].name == std::string("host0/") + nic);
    CHECK(up.gigabytes_per_second > 0);
    CHECK(down.gigabytes_per_second > 0);
  }
  // To the NIC of the other socket the sockets' link is the narrowest.
  const Direct far = between(graph, "gpu0", "mlx5_7");
  CHECK(far.staged[1].gigabytes_per_second < far.staged[0].gigabytes_per_second);
}

TEST_CASE("Between GPUs: what NVML and CUDA refuse, each way for itself") {
  Graph graph = make("pcie-8");
  set(graph, "/gpu1", {{"no_p2p", "gpu10:topology gpu2:chipset"}});
  set(graph, "/gpu3", {{"no_peer_access", "gpu10 gpu2"}});
  CHECK(between(graph, "gpu1", "gpu2").verdict == Verdict::kRefused);
  CHECK(between(graph, "gpu1", "gpu2").why == "the driver refuses peer access (NVML: chipset)");
  CHECK(between(graph, "gpu1", "gpu2").staged.size() == 2);
  CHECK(between(graph, "gpu2", "gpu1").verdict == Verdict::kAllowed);
  CHECK(between(graph, "gpu1", "gpu0").verdict == Verdict::kAllowed);  // gpu10 is not gpu1 or gpu0.
  CHECK(between(graph, "gpu3", "gpu2").why == "the driver refuses peer access (CUDA)");
  CHECK(codes(graph).count("p2p-refused") == 2);
}

TEST_CASE("ACS and the IOMMU send what passes bridges on a detour, and not NVLink") {
  Graph graph = make("hgx-h100");
  const NodeId gpu = graph.find("host0/gpu0");
  for (const Link& link : graph.links) {
    if (link.kind == LinkKind::kPcie && link.b == gpu) graph[link.a].facts["acs"] = "on";
  }
  const Direct direct = between(graph, "gpu0", "mlx5_0");
  CHECK(direct.verdict == Verdict::kDetour);
  CHECK(direct.why.find("access control (ACS) is on at host0/") == 0);
  CHECK(between(graph, "gpu1", "mlx5_1").verdict == Verdict::kAllowed);
  CHECK(between(graph, "gpu0", "gpu1").verdict == Verdict::kAllowed);
  // Only below the place where both ways meet: what is above, they do not pass.
  Graph above = make("hgx-h100");
  std::map<NodeId, NodeId> parent;
  for (const Link& link : above.links) {
    if (link.kind == LinkKind::kPcie || link.kind == LinkKind::kInternal) parent[link.b] = link.a;
  }
  std::set<NodeId> mine, common;
  for (NodeId at = gpu; parent.count(at) != 0; at = parent[at]) mine.insert(parent[at]);
  for (NodeId at = above.find("host0/mlx5_0"); parent.count(at) != 0; at = parent[at]) {
    if (mine.count(parent[at]) != 0) common.insert(parent[at]);
  }
  REQUIRE(common.size() >= 2);
  for (const NodeId bridge : common) above[bridge].facts["acs"] = "on";
  CHECK(between(above, "gpu0", "mlx5_0").verdict == Verdict::kAllowed);
  CHECK(codes(above).count("gpudirect-acs") == 0);
  Graph other = make("hgx-h100");
  set(other, "/gpu0", {{"iommu_type", "DMA-FQ"}});
  CHECK(between(other, "gpu0", "mlx5_0").verdict == Verdict::kDetour);
  CHECK(between(other, "gpu0", "gpu1").verdict == Verdict::kAllowed);
  set(other, "/gpu0", {{"iommu_type", "identity"}});
  CHECK(between(other, "gpu0", "mlx5_0").verdict == Verdict::kAllowed);
  // What is refused is not on a detour.
  set(graph, "", {{"kernel", "5.4.0"}});
  CHECK(between(graph, "gpu0", "mlx5_0").verdict == Verdict::kRefused);
}

TEST_CASE("A GPU in a fabric of hosts has to have handles for them") {
  Graph graph = make("gb200-nvl72");
  CHECK(codes(graph).count("fabric-no-handles") == 0);
  set(graph, "/gpu1", {{"fabric_uuid", "ab"}, {"fabric_handles", "yes"}});
  set(graph, "/gpu2", {{"fabric_handles", "no"}});  // It is in no fabric: nothing is missed.
  CHECK(codes(graph).count("fabric-no-handles") == 0);
  set(graph, "/gpu2", {{"fabric_uuid", "ab"}});
  CHECK(codes(graph).count("fabric-no-handles") == 1);
}
