// NVML, CUDA and libibverbs by way of fake drivers that are really loaded and called; what they
// say, in the graph and in captures.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "support/catch.h"
#include "support/environment.h"
#include "support/topology/topology_tree.h"
#include "topology/probe/probe.h"
#include "topology/probe/sources/cuda.h"
#include "topology/probe/sources/nvml.h"
#include "topology/probe/sources/verbs.h"
#include "topology/readers/reader.h"

using namespace tutti;
using namespace tutti::topology;

namespace {

std::string fake_driver(const std::string& name) {
  const char* const build = std::getenv("TEST_BUILD_DIR");
  return fmt::format("{}/tests/fake_driver_{}.so", build == nullptr ? "." : build, name);
}

Result<NvmlFacts> nvml() { return read_nvml(fake_driver("nvml").c_str()); }
Result<CudaFacts> cuda() { return read_cuda(fake_driver("cuda").c_str()); }
Result<VerbsFacts> verbs() { return read_verbs(fake_driver("verbs").c_str()); }

// What the fake driver has opened and not closed again.
int open_count(const std::string& name) {
  void* const handle = dlopen(fake_driver(name).c_str(), RTLD_NOW);
  REQUIRE(handle != nullptr);
  const auto count = reinterpret_cast<int (*)()>(dlsym(handle, "tutti_fake_driver_open_count"));
  REQUIRE(count != nullptr);
  return count();
}

// The machine of sysfs-hgx, and what these libraries say of it.
Imported probe_with(const Result<NvmlFacts>& n, const Result<CudaFacts>& c,
                    const Result<VerbsFacts>& v) {
  MemoryTree tree;
  load(tree, "sysfs-hgx");
  tree.add_file("/tutti/nvml.json", nvml_to_json(n));
  tree.add_file("/tutti/cuda.json", cuda_to_json(c));
  tree.add_file("/tutti/verbs.json", verbs_to_json(v));
  Imported imported = probe_tree(tree);
  const auto sound = validate(imported.graph, "probe");
  INFO((sound ? "" : sound.error().what));
  REQUIRE(sound);
  return imported;
}

const std::string& fact(const Graph& graph, const std::string& node, const std::string& key) {
  static const std::string kNone;
  const NodeId found = graph.find("host0/" + node);
  INFO(node);
  REQUIRE(found.exists());
  const auto at = graph[found].facts.find(key);
  return at == graph[found].facts.end() ? kNone : at->second;
}

bool has(const std::vector<std::string>& notes, const std::string& note) {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

const Error kAbsent{Code::kUnsupported, "no such library", {}, {}};

}  // namespace

TEST_CASE("NVML's answers arrive, and it is shut down again") {
  const auto facts = nvml();
  REQUIRE(facts);
  CHECK(open_count("nvml") == 0);
  CHECK(facts->driver == "550.54");
  REQUIRE(facts->gpus.size() == 2);
  const NvmlGpu &a = facts->gpus[0], &b = facts->gpus[1];
  CHECK(a.bus == "0000:19:00.0");
  CHECK(b.bus == "0000:98:00.0");
  CHECK(b.uuid == "GPU-b");
  for (const NvmlGpu& gpu : facts->gpus) {
    const auto links = read_nvlinks(gpu.bus, fake_driver("nvml").c_str());
    REQUIRE(links);
    CHECK(*links == gpu.links);
  }
  CHECK(open_count("nvml") == 0);
  CHECK_FALSE(read_nvlinks("0000:20:00.0", fake_driver("nvml").c_str()));
  CHECK(a.name == "a GPU");
  CHECK(a.sm == 90);
  CHECK(a.current == PcieRate{2.5, 8});
  CHECK(a.maximum == PcieRate{32, 16});
  REQUIRE(b.links.size() == 18);
  CHECK(b.links[16] ==
        NvmlLink{16, true, NvmlLink::Remote::kSwitch, std::string("0000:a9:00.0"), 4});
  CHECK(!b.links[17].active);
  CHECK(b.links[17].bus.empty());
  CHECK(a.c2c_count == 1);
  CHECK(a.c2c_gbs == Approx(44.712));
  CHECK(b.c2c_count == 0);
  CHECK(a.fabric_uuid == "abababababababababababababababab");
  CHECK(a.fabric_clique == 7);
  CHECK(a.fabric_state == 3);
  CHECK(a.p2p == std::vector<int>{0, 0});
  CHECK(b.p2p == std::vector<int>{3, 0});
}

TEST_CASE("CUDA's answers arrive, by device and not by ordinal") {
  const auto facts = cuda();
  REQUIRE(facts);
  CHECK(facts->version == 12040);
  REQUIRE(facts->gpus.size() == 2);
  const CudaGpu &a = facts->gpus[0], &b = facts->gpus[1];
  CHECK(a.bus == "0000:19:00.0");
  CHECK(b.bus == "0000:98:00.0");
  CHECK(b.index == 1);
  CHECK(a.sm == 90);
  CHECK(a.host_numa == 0);
  CHECK(b.host_numa == 1);
  CHECK(a.multicast == true);
  CHECK(a.gpudirect_rdma == true);
  CHECK(a.dma_buf == true);
  CHECK(b.dma_buf == false);
  CHECK(!a.fabric_handles);  // An old driver: not known is not "no".
  CHECK(a.access == std::vector<int>{1, 0});
  CHECK(b.access == std::vector<int>{1, 1});
  CHECK(b.atomics == std::vector<int>{0, 1});
}

TEST_CASE("libibverbs' answers arrive, and all it lent goes back") {
  const auto facts = verbs();
  if (!facts) {  // A build without the header says so, and has nothing to test.
    CHECK(facts.error().what.find("no verbs: ") == 0);
    return;
  }
  CHECK(open_count("verbs") == 0);
  const VerbsDevice first{"mlx5_0", "device", "yes", {{1, 1024, 4096}, {2, 256, 4096}}};
  CHECK(facts->devices == std::vector<VerbsDevice>{first, {"mlx4_0", "", "", {}}});
}

TEST_CASE("Whichever function of a library fails, the others' answers stay") {
  struct Case {
    const char* function;
    bool none;  // Whether there is nothing at all to say without it.
  };
  const NvmlFacts whole = *nvml();
  for (const auto& [function, none] : std::initializer_list<Case>{
           {"nvmlInit_v2", true},
           {"nvmlSystemGetDriverVersion", false},
           {"nvmlDeviceGetCount_v2", true},
           {"nvmlDeviceGetHandleByIndex_v2", false},
           {"nvmlDeviceGetHandleByPciBusId_v2", false},
           {"nvmlDeviceGetPciInfo_v3", false},
           {"nvmlDeviceGetUUID", false},
           {"nvmlDeviceGetName", false},
           {"nvmlDeviceGetCudaComputeCapability", false},
           {"nvmlDeviceGetCurrPcieLinkGeneration", false},
           {"nvmlDeviceGetCurrPcieLinkWidth", false},
           {"nvmlDeviceGetMaxPcieLinkGeneration", false},
           {"nvmlDeviceGetMaxPcieLinkWidth", false},
           {"nvmlDeviceGetNvLinkState", false},
           {"nvmlDeviceGetNvLinkVersion", false},
           {"nvmlDeviceGetNvLinkRemotePciInfo_v2", false},
           {"nvmlDeviceGetNvLinkRemoteDeviceType", false},
           {"nvmlDeviceGetP2PStatus", false},
           {"nvmlDeviceGetFieldValues", false},
           {"nvmlDeviceGetGpuFabricInfoV", false},
           {"cuInit", true},
           {"cuDriverGetVersion", false},
           {"cuDeviceGetCount", true},
           {"cuDeviceGet", false},
           {"cuDeviceGetPCIBusId", false},
           {"cuDeviceGetAttribute", false},
           {"cuDeviceCanAccessPeer", false},
           {"cuDeviceGetP2PAttribute", false},
           {"ibv_get_device_list", true},
           {"ibv_get_device_name", false},
           {"ibv_open_device", false},
           {"ibv_query_device", false},
           {"ibv_query_port", false},
           {"ibv_alloc_pd", false},
           {"ibv_reg_dmabuf_mr", false},
       }) {
    INFO(function);
    const test::Environment failing({}, {{"TUTTI_STAND_IN_FAILS", function}});
    const auto n = nvml();
    const auto c = cuda();
    const auto v = verbs();
    CHECK(open_count("nvml") == 0);
    const std::string name = function;
    if (name.rfind("nvml", 0) == 0) CHECK(bool(n) == !none);
    if (name.rfind("cu", 0) == 0) CHECK(bool(c) == !none);
    if (name.rfind("ibv", 0) == 0 && v) CHECK(!none);
    const auto links = read_nvlinks("0000:98:00.0", fake_driver("nvml").c_str());
    CHECK(bool(links) == (name != "nvmlInit_v2" && name != "nvmlDeviceGetHandleByPciBusId_v2"));
    // The same facts but for what the function tells: none are made up, and the graph is sound.
    if (n && n->gpus.size() == 2 && name != "nvmlDeviceGetNvLinkState") {
      CHECK(n->gpus[1].links.size() == 18);
    }
    // Where the old function is gone the new field says whether a link is up.
    if (name == "nvmlDeviceGetNvLinkState") CHECK(n->gpus[1].links == whole.gpus[1].links);
    if (name == "nvmlDeviceGetP2PStatus") CHECK(n->gpus[0].p2p == std::vector<int>{0, 6});
    if (name == "cuDeviceCanAccessPeer") CHECK(c->gpus[0].access == std::vector<int>{1, 2});
    if (name == "cuDeviceGetAttribute") CHECK(!c->gpus[0].multicast);
    if (name == "ibv_reg_dmabuf_mr" && v) CHECK(v->devices[0].dma_buf == "no");
    probe_with(n, c, v);
  }
}

TEST_CASE("A library without the functions, or none at all, is absent and says so") {
  const std::string bare = fake_driver("bare");
  CHECK(read_nvml(bare.c_str()).error().what ==
        fmt::format("no NVML: {} does not find a driver", bare));
  CHECK(read_cuda(bare.c_str()).error().what == fmt::format("no CUDA: {} has no cuInit", bare));
  CHECK(!read_verbs(bare.c_str()));
  CHECK(read_cuda("libnone-such.so.9").error().what == "no CUDA: there is no libnone-such.so.9");
  CHECK(read_verbs("libnone-such.so.9").error().code == Code::kUnsupported);
}

TEST_CASE("What libraries answered comes back from a capture as it was") {
  CHECK(*nvml_from_json(nvml_to_json(nvml()), "x") == *nvml());
  CHECK(*cuda_from_json(cuda_to_json(cuda()), "x") == *cuda());
  if (verbs()) CHECK(*verbs_from_json(verbs_to_json(verbs()), "x") == *verbs());
  CHECK(cuda_from_json(cuda_to_json(kAbsent), "x").error().what == kAbsent.what);
  CHECK(verbs_from_json(verbs_to_json(kAbsent), "x").error().what == kAbsent.what);
  for (const char* text :
       {"", "[]", "{", "{\"gpus\": 3, \"devices\": 3}", "{\"gpus\": [3], \"devices\": [3]}"}) {
    INFO(text);
    CHECK(!cuda_from_json(text, "x"));
    CHECK(!verbs_from_json(text, "x"));
  }
  const auto odd = cuda_from_json(
      R"({"version": "x", "gpus": [{"bus": 3, "dma_buf": 1, "access": [-1, 1e9, "x", 1]}]})", "x");
  REQUIRE(odd);
  CHECK(odd->gpus[0].bus.empty());
  CHECK(!odd->gpus[0].dma_buf);
  CHECK(odd->gpus[0].access == std::vector<int>{2, 2, 2, 1});
}

TEST_CASE("A capture of this machine has what each library answered") {
  const TempDir dir;
  const ProbeOptions options{"/", fake_driver("nvml"), fake_driver("cuda"), fake_driver("verbs")};
  REQUIRE(capture(options, dir.path + "/here.tar"));
  const auto again = probe_archive(dir.path + "/here.tar");
  REQUIRE(again);
  const Imported here = probe_machine(options);
  CHECK(again->graph.notes == here.graph.notes);
  CHECK(has(again->graph.notes, "NVML of driver 550.54: 2 GPUs"));
  CHECK(has(again->graph.notes, "CUDA 12.4: 2 GPUs"));
  if (verbs()) CHECK(has(again->graph.notes, "verbs: 2 devices"));
}

TEST_CASE("What CUDA says of a GPU's memory stands in the graph") {
  const Imported imported = probe_with(nvml(), cuda(), kAbsent);
  const Graph& graph = imported.graph;
  CHECK(has(graph.notes, "CUDA 12.4: 2 GPUs"));
  CHECK(fact(graph, "gpu0", "no_peer_access") == "gpu1");
  CHECK(fact(graph, "gpu1", "no_peer_access").empty());
  CHECK(fact(graph, "gpu1", "no_p2p") == "gpu0:topology");
  CHECK(fact(graph, "gpu0", "multicast") == "yes");
  CHECK(fact(graph, "gpu0", "dma_buf") == "yes");
  CHECK(fact(graph, "gpu1", "dma_buf") == "no");
  CHECK(fact(graph, "gpu0", "fabric_handles").empty());
  // Less than all: CUDA_VISIBLE_DEVICES. The bus address says which, not CUDA's number.
  auto less = cuda();
  less->gpus.erase(less->gpus.begin());
  less->gpus[0].index = 0;
  const Graph seen = probe_with(nvml(), less, kAbsent).graph;
  CHECK(fact(seen, "gpu0", "cuda_index").empty());
  CHECK(fact(seen, "gpu1", "cuda_index") == "0");
  CHECK(has(seen.notes, "CUDA shows 1 of 2 GPUs here: CUDA_VISIBLE_DEVICES, or a container"));
}

TEST_CASE("Where sysfs does not know a GPU's NUMA node, CUDA may") {
  MemoryTree tree;
  load(tree, "sysfs-vm");
  const auto before = probe_tree(tree);
  const auto parent = [](const Graph& graph, const std::string& gpu) {
    for (const Link& link : graph.links) {
      if (link.kind == LinkKind::kPcie && graph[link.b].name == gpu) return graph[link.a].name;
    }
    return std::string();
  };
  const NodeId gpu = before.graph.all(NodeKind::kGpu).at(0);
  CHECK(parent(before.graph, before.graph[gpu].name) == "host0/numa0");
  CudaFacts facts;
  facts.gpus.resize(2);
  facts.gpus[0].bus = before.graph[gpu].bus;
  facts.gpus[1].bus = "0000:ee:00.0";  // Hidden in sysfs.
  facts.gpus[1].index = 9;
  facts.gpus[0].host_numa = facts.gpus[1].host_numa = 1;
  tree.add_file("/tutti/cuda.json", cuda_to_json(facts));
  const auto after = probe_tree(tree);
  CHECK(parent(after.graph, before.graph[gpu].name) == "host0/numa1");
  CHECK(parent(after.graph, "host0/gpu9") == "host0/numa1");
  facts.gpus[0].host_numa = 77;  // No such node.
  tree.add_file("/tutti/cuda.json", cuda_to_json(facts));
  CHECK(parent(probe_tree(tree).graph, before.graph[gpu].name) == "host0/numa0");
}

TEST_CASE("A driver that NVML finds and CUDA is refused by is an error; none at all is not") {
  const test::Environment failing({}, {{"TUTTI_STAND_IN_FAILS", "cuInit"}});
  const auto refused = [](const Imported& imported) {
    const auto& all = imported.findings;
    const auto found = std::find_if(all.begin(), all.end(), [](const Finding& finding) {
      return finding.code == "cuda-refused";
    });
    return found == all.end() ? std::string() : found->what;
  };
  CHECK(refused(probe_with(nvml(), cuda(), kAbsent)).find("802: the system is not ready") !=
        std::string::npos);
  CHECK(refused(probe_with(kAbsent, cuda(), kAbsent)).empty());
  CHECK(refused(probe_with(nvml(), kAbsent, kAbsent)).empty());
}

TEST_CASE("Of RDMA devices, sysfs tells the rest, and the GID to use") {
  const VerbsFacts facts{{{"mlx5_0", "global", "yes", {{1, 2048, 4096}}}}};
  const Graph graph = probe_with(kAbsent, kAbsent, facts).graph;
  CHECK(fact(graph, "mlx5_0", "active_mtu") == "2048");
  CHECK(fact(graph, "mlx5_0", "maximum_mtu") == "4096");
  CHECK(fact(graph, "mlx5_0", "rdma_atomics") == "global");
  CHECK(fact(graph, "mlx5_0", "dma_buf") == "yes");
  CHECK(fact(graph, "mlx4_0:1", "active_mtu").empty());
  CHECK(has(graph.notes, "verbs: 1 devices"));
  CHECK(fact(graph, "mlx5_0", "roce_gid") == "1");

  // A table as a RoCE port has it: the first IPv4 entry of version 2 wins, wherever it stands.
  MemoryTree tree;
  load(tree, "sysfs-hgx");
  const std::string port = *tree.real_path("/sys/class/infiniband/mlx5_0") + "/ports/1";
  const auto table = [&](const std::vector<std::pair<std::string, std::string>>& entries) {
    for (std::size_t i = 0; i < 30; ++i) {
      const bool some = i < entries.size();
      tree.add_file(fmt::format("{}/gids/{}", port, i),
                    some ? entries[i].first : "0000:0000:0000:0000:0000:0000:0000:0000");
      tree.add_file(fmt::format("{}/gid_attrs/types/{}", port, i), some ? entries[i].second : "");
    }
    return fact(probe_tree(tree).graph, "mlx5_0", "roce_gid");
  };
  const std::string local = "fe80:0000:0000:0000:0000:00ff:fe00:0001";
  const std::string four = "0000:0000:0000:0000:0000:ffff:0a00:0001";
  const std::string six = "fd00:0000:0000:0000:0000:0000:0000:0001";
  const std::string one = "IB/RoCE v1", two = "RoCE v2";
  CHECK(table({{local, one}, {local, two}, {four, one}, {four, two}, {four, two}}) == "3");
  CHECK(table({{local, one}, {local, two}, {six, one}, {six, two}}) == "3");
  CHECK(table({{local, one}, {local, two}}) == "1");
  CHECK(table({{local, one}, {four, one}}).empty());
  std::vector<std::pair<std::string, std::string>> many(25, {local, one});
  many.emplace_back(four, two);  // Behind as many as are facts.
  CHECK(table(many) == "25");
}

TEST_CASE("RDMA devices made of software are NICs of the first NUMA node") {
  MemoryTree tree;
  load(tree, "sysfs-vm");
  const std::string device = "/sys/devices/virtual/infiniband/rxe0";
  tree.add_link("/sys/class/infiniband/rxe0", "../../devices/virtual/infiniband/rxe0");
  tree.add_file(device + "/parent", "eth7\n");
  tree.add_file(device + "/node_guid", "0000:0000:0000:0001\n");
  tree.add_file(device + "/ports/1/state", "4: ACTIVE\n");
  tree.add_file(device + "/ports/1/rate", "10 Gb/sec (4X SDR)\n");
  const Graph graph = probe_tree(tree).graph;
  CHECK(fact(graph, "rxe0", "software_over") == "eth7");
  CHECK(fact(graph, "rxe0", "speed_mbps") == "10000");
  bool joined = false;
  for (const Link& link : graph.links) {
    joined |= graph[link.b].name == "host0/rxe0" && graph[link.a].name == "host0/numa0";
  }
  CHECK(joined);
}
