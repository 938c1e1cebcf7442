#include "topology/capture/machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <set>

#include "topology/graph/nccl_figures.h"
#include "topology/graph/words.h"
#include "topology/join/repeat.h"
#include "topology/models/model.h"
#include "topology/probe/probe.h"
#include "topology/probe/sources/sysfs.h"
#include "topology/readers/reader.h"

namespace tutti::topology {
namespace {

constexpr int kAnyReason = 6;  // NVML's status of two GPUs that are no peers: "unknown".

bool of_nvidia(const Node& node) {
  const std::string& vendor = fact(node, "vendor");
  return node.kind == NodeKind::kGpu && (vendor.empty() || vendor == "0x10de");
}

int number_of(const Node& node, const char* key, int otherwise) {
  return static_cast<int>(parse_integer(fact(node, key)).value_or(otherwise));
}

class Answerer {
 public:
  explicit Answerer(const Graph& graph) : graph_(graph), adjacency_(graph) {}

  Result<LibraryAnswers> run() {
    for (const NodeId gpu : graph_.all(NodeKind::kGpu)) {
      if (!of_nvidia(graph_[gpu])) continue;
      if (gpus_.empty() || graph_[gpu].host == graph_[gpus_.front()].host) gpus_.push_back(gpu);
    }
    if (gpus_.empty()) return Error{Code::kInvalidArgument, "it has no GPUs of NVIDIA's"};
    std::stable_sort(gpus_.begin(), gpus_.end(),
                     [this](NodeId a, NodeId b) { return graph_[a].bus < graph_[b].bus; });
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      answers_.nvml.gpus.push_back(nvml(static_cast<int>(i)));
      answers_.cuda.gpus.push_back(cuda(static_cast<int>(i)));
    }
    return std::move(answers_);
  }

 private:
  NodeId gpu(int index) const { return gpus_[static_cast<std::size_t>(index)]; }

  std::string bus_of(int index) const {
    const std::string& known = graph_[gpu(index)].bus;
    return !known.empty() ? known : fmt::format("0000:{:02x}:00.0", 0x10 + index);
  }

  NvmlGpu nvml(int index) const {
    const NodeId node = gpu(index);
    NvmlGpu answer;
    answer.index = index;
    answer.bus = bus_of(index);
    answer.name = fact(graph_[node], "model");
    answer.uuid = fact(graph_[node], "uuid");
    if (answer.uuid.empty()) {
      answer.uuid = fmt::format("GPU-00000000-0000-0000-0000-{:012x}", index);
    }
    answer.sm = number_of(graph_[node], "sm", 0);
    answer.fabric_uuid = fact(graph_[node], "fabric_uuid");
    if (!answer.fabric_uuid.empty()) {
      answer.fabric_clique = number_of(graph_[node], "fabric_clique", -1);
      answer.fabric_state = number_of(graph_[node], "fabric_state", -1);
    }
    for (const Link& link : graph_.links) {
      if (link.kind != LinkKind::kPcie || link.b != node || !link.pcie) continue;
      answer.current = link.pcie->current;
      answer.maximum = link.pcie->maximum;
    }
    add_nvlinks(node, answer);
    for (const NodeId peer : gpus_) {
      answer.p2p.push_back(refuses("no_p2p", node, peer) ? kAnyReason : 0);
    }
    return answer;
  }

  CudaGpu cuda(int index) const {
    const NodeId node = gpu(index);
    const std::set<NodeId> joined = by_nvlink(node);
    const auto flag = [&](const char* key, bool otherwise) {
      const std::string text = fact(graph_[node], key);
      return text.empty() ? otherwise : text == "yes";
    };
    CudaGpu answer;
    answer.index = index;
    answer.bus = bus_of(index);
    answer.sm = number_of(graph_[node], "sm", 0);
    answer.host_numa = numa_above(node);
    constexpr int kHopper = 90;  // The first whose switches can.
    const bool switched = std::any_of(joined.begin(), joined.end(), [this](NodeId far) {
      return graph_[far].kind == NodeKind::kNvSwitch;
    });
    answer.multicast = flag("multicast", switched && answer.sm >= kHopper);
    answer.fabric_handles = flag("fabric_handles", false);
    answer.gpudirect_rdma = flag("gpudirect_rdma", true);
    answer.dma_buf = flag("dma_buf", true);
    for (const NodeId peer : gpus_) {
      const bool access = !refuses("no_peer_access", node, peer) && !refuses("no_p2p", node, peer);
      const bool atomics = access && (peer == node || joined.count(peer) != 0) &&
                           !refuses("no_peer_atomics", node, peer);
      answer.access.push_back(access ? 1 : 0);
      answer.atomics.push_back(atomics ? 1 : 0);
    }
    return answer;
  }

  void add_nvlinks(NodeId node, NvmlGpu& answer) const {
    for (const auto& edge : adjacency_.from(node)) {
      const Link& link = graph_.links[edge.link];
      const Node& far = graph_[edge.to];
      if (link.kind == LinkKind::kC2c) {
        answer.c2c_count += link.count;
        answer.c2c_gbs = link.forward.value / std::max(1, link.count);
      }
      if (link.kind != LinkKind::kNvlink) continue;
      const auto remote = far.kind == NodeKind::kGpu        ? NvmlLink::Remote::kGpu
                          : far.kind == NodeKind::kNvSwitch ? NvmlLink::Remote::kSwitch
                                                            : NvmlLink::Remote::kCpu;
      for (int i = 0; i < link.count; ++i)
        answer.links.push_back({static_cast<int>(answer.links.size()), true, remote, far.bus});
    }
  }

  int numa_above(NodeId node) const {
    const NodeId above = topology::numa_above(graph_, node, true);
    return above.exists() && graph_[above].kind == NodeKind::kNuma ? graph_[above].index : -1;
  }

  /// All GPUs that NVLink joins to this one: those next to it, and those behind switches.
  std::set<NodeId> by_nvlink(NodeId from) const {
    std::set<NodeId> seen;
    const std::function<void(NodeId)> visit = [&](NodeId node) {
      for (const auto& edge : adjacency_.from(node)) {
        const NodeKind kind = graph_[edge.to].kind;
        if (graph_.links[edge.link].kind != LinkKind::kNvlink) continue;
        if (kind != NodeKind::kGpu && kind != NodeKind::kNvSwitch) continue;
        if (seen.insert(edge.to).second && kind == NodeKind::kNvSwitch) visit(edge.to);
      }
    };
    visit(from);
    return seen;
  }

  // Facts like "no_p2p" name peers, "gpu1:chipset gpu4".
  bool refuses(const char* fact, NodeId from, NodeId peer) const {
    return !listed(topology::fact(graph_[from], fact), graph_[peer]).empty();
  }

  const Graph& graph_;
  const Adjacency adjacency_;
  std::vector<NodeId> gpus_;
  LibraryAnswers answers_;
};

}  // namespace

namespace {

Result<Imported> load_file(const std::string& path) {
  constexpr std::array kEnds{".tar", ".tar.gz", ".tar.bz2", ".tgz"};
  const bool is_archive = std::any_of(kEnds.begin(), kEnds.end(),
                                      [&path](const char* end) { return path.ends_with(end); });
  return is_archive ? probe_archive(path) : import_file(path);
}

}  // namespace

Result<Imported> load_machine_file(const std::string& path) {
  std::error_code error;
  const std::size_t colon = path.rfind(':');
  const bool counted = colon != std::string::npos && colon + 1 < path.size() &&
                       path.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  if (!counted || std::filesystem::exists(path, error)) return load_file(path);
  TUTTI_TRY(Imported one, load_file(path.substr(0, colon)));
  const auto times = parse_number<int>(std::string_view(path).substr(colon + 1));
  auto all = repeated(one.graph, times.value_or(0));
  if (!all) return invalid("{}: {}", path, all.error().what);
  one.graph = *std::move(all);
  return one;
}

bool is_model(std::string_view file_or_model) {
  const std::string_view name = file_or_model.substr(0, file_or_model.find(':'));
  const auto known = models();
  return std::any_of(known.begin(), known.end(),
                     [name](const Model* model) { return model->name == name; });
}

Result<Imported> load_machine(const std::string& file_or_model) {
  std::error_code error;
  // A plain name that is no file is taken for an unknown model: the error lists the models.
  const bool name = file_or_model.find_first_of("/.") == std::string::npos &&
                    !std::filesystem::exists(file_or_model, error);
  if (!is_model(file_or_model) && !name) return load_machine_file(file_or_model);
  TUTTI_TRY(auto graph, model(file_or_model));
  return Imported{std::move(graph), {}};
}

Result<LibraryAnswers> library_answers(const Graph& graph) { return Answerer(graph).run(); }

}  // namespace tutti::topology
