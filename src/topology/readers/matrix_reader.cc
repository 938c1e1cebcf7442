// File: topology/readers/matrix_reader.cc: `nvidia-smi topo -m` and `rocm-smi --showtopo` as
// graphs.
//
// The model: classes say how near two devices are, not what is between them. The smallest tree that
// agrees is built: PIX makes one switch, PXB joins switches under another, PHB and NODE make one
// NUMA node, SYS two. Where there is NODE, what hangs on a NUMA node has a port, and the port a
// host bridge: PHB is within one, NODE between two. NVLinks that no chip could have to all its
// peers lead to NVSwitches, whatever GPUs have none. No figure is in the text, so all are assumed,
// and said to be.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "topology/graph/nccl_figures.h"
#include "topology/graph/sets.h"
#include "topology/graph/words.h"
#include "topology/readers/matrix_text.h"
#include "topology/readers/reader.h"

namespace tutti::topology {
namespace {

int nvlinks(std::string_view text) {
  int count = 0;
  if (text.starts_with("NV")) std::from_chars(text.data() + 2, text.data() + text.size(), count);
  return count;
}

class MatrixReader {
 public:
  MatrixReader(Matrix matrix, std::string_view source)
      : matrix_(std::move(matrix)),
        source_(source),
        near_(matrix_.devices.size()),
        far_(matrix_.devices.size()),
        bridge_(matrix_.devices.size()),
        numa_(matrix_.devices.size()) {}

  Imported read() {
    host_ = made_.graph.add({NodeKind::kHost, "host0"});
    group();
    note_alone();
    numa_nodes();
    devices();
    gpu_links();
    network();
    note_conflicts();
    note_cut();
    made_.graph.notes.push_back(fmt::format(
        "read from {} ({})", source_, matrix_.amd ? "rocm-smi --showtopo" : "nvidia-smi topo -m"));
    return std::move(made_);
  }

 private:
  void group() {
    const std::size_t count = matrix_.devices.size();
    bool said = false;
    for (std::size_t i = 0; i < count; ++i) {
      const MatrixDevice& device = matrix_.devices[i];
      said = said || device.numa >= 0 || !device.affinity.empty();
      for (std::size_t j = 0; j < count; ++j) {
        const std::string& word = matrix_.classes[i][j];
        if (word == "PIX") near_.join(i, j);
        if (word == "PIX" || word == "PXB" || word == "PIB") far_.join(i, j);
        has_bridges_ = has_bridges_ || word == "NODE";
        said = said || word == "SYS" || word == "SOC";
      }
    }
    group_numa();
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < count; ++j) {
        if (matrix_.classes[i][j] == "PHB" && numa_.of(i) == numa_.of(j)) bridge_.join(i, j);
      }
      bridge_.join(i, far_.of(i));
    }
    if (said) return;
    for (std::size_t i = 0; i < count; ++i) numa_.join(i, 0);
    made_.findings.push_back(
        {Severity::kWarning, "numa-assumed", std::string(source_),
         "nothing in the text says which NUMA node a device is in; one assumed"});
  }

  /// Which devices are in one NUMA node: those of which the text says that, or that one switch
  /// joins; then those that are near by their classes, unless the text says that their NUMA nodes
  /// are two. The nearest count first: a NIC is in the NUMA node of the GPU beside it.
  void group_numa() {
    const std::size_t count = matrix_.devices.size();
    std::map<std::string, std::size_t> by_affinity;
    std::map<int, std::size_t> by_numa;
    for (std::size_t i = 0; i < count; ++i) {
      const MatrixDevice& device = matrix_.devices[i];
      if (device.numa >= 0) {
        numa_.join(i, by_numa.try_emplace(device.numa, i).first->second);
      } else if (!device.affinity.empty() && device.affinity != "N/A") {
        numa_.join(i, by_affinity.try_emplace(device.affinity, i).first->second);
      }
    }
    for (std::size_t i = 0; i < count; ++i) numa_.join(i, far_.of(i));
    std::vector<int> number(count, -1);  // By set, what the text says.
    for (std::size_t i = 0; i < count; ++i) {
      if (number[numa_.of(i)] < 0) number[numa_.of(i)] = matrix_.devices[i].numa;
    }
    for (const std::string_view word : {"PHB", "NODE"}) {
      for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t j = 0; j < count; ++j) {
          if (matrix_.classes[i][j] != word) continue;
          const int one = number[numa_.of(i)], two = number[numa_.of(j)];
          if (one >= 0 && two >= 0 && one != two) continue;  // See note_conflicts.
          numa_.join(i, j);
          number[numa_.of(i)] = std::max(one, two);
        }
      }
    }
  }

  /// Devices that the text ties to no NUMA node and to no other device have one of their own.
  void note_alone() {
    int alone = 0;
    for (std::size_t i = 0; i < matrix_.devices.size(); ++i) {
      const MatrixDevice& device = matrix_.devices[i];
      const bool said = device.numa >= 0 || !device.affinity.empty();
      alone += !said && numa_.size(numa_.of(i)) == 1 ? 1 : 0;
    }
    if (alone == 0 || matrix_.devices.size() == 1) return;
    made_.findings.push_back(
        {Severity::kWarning, "numa-assumed", std::string(source_),
         fmt::format(
             "no NUMA node in the text, and near to no other device: {} of {} devices; each "
             "has a NUMA node of its own in the graph",
             alone, matrix_.devices.size()),
         "", "copy the whole table, with its columns of affinity"});
  }

  void numa_nodes() {
    std::map<std::size_t, int> index;
    std::vector<bool> taken(65536 + matrix_.devices.size());
    for (std::size_t i = 0; i < matrix_.devices.size(); ++i) {
      const int numa = matrix_.devices[i].numa;
      if (numa < 0) continue;
      index.try_emplace(numa_.of(i), numa);
    }
    for (const auto& [group, numa] : index) taken[static_cast<std::size_t>(numa)] = true;
    for (std::size_t i = 0; i < matrix_.devices.size(); ++i) {
      const std::size_t own = numa_.of(i);
      if (numa_nodes_.contains(own)) continue;
      int number = -1;
      std::size_t name = 0;
      if (const auto at = index.find(own); at != index.end()) {
        number = at->second;
        name = static_cast<std::size_t>(number);
      } else {
        while (taken[name]) ++name;
        taken[name] = true;
      }
      numa_nodes_.emplace(own, made_.graph.add({NodeKind::kNuma, fmt::format("host0/numa{}", name),
                                                host_, number}));
    }
    const Quantity figure{16, Origin::kAssumed};
    for (auto a = numa_nodes_.begin(); a != numa_nodes_.end(); ++a) {
      for (auto b = std::next(a); b != numa_nodes_.end(); ++b) {
        made_.graph.join(LinkKind::kSocket, a->second, b->second, figure);
      }
    }
  }

  void devices() {
    for (std::size_t i = 0; i < matrix_.devices.size(); ++i) {
      const MatrixDevice& device = matrix_.devices[i];
      Node node{device.gpu ? NodeKind::kGpu : NodeKind::kNic, "", host_};
      if (device.gpu) node.index = parse_number<int>(device.name.substr(3)).value_or(-1);
      if (!device.affinity.empty()) node.facts.emplace("cpu_affinity", device.affinity);
      const NodeId parent = above(i);
      node.name = unique_name(device, i);
      nodes_.push_back(made_.graph.add(std::move(node)));
      join_pcie(parent, nodes_.back());
    }
    made_.findings.push_back(
        {Severity::kWarning, "figures-assumed", std::string(source_),
         "the text has classes and no figures: 16 GT/s x16 assumed for PCI links, 16 GB/s between "
         "NUMA nodes, 20 GB/s a NVLink, 24 GB/s an xGMI link",
         "", "probe the machine, or import NCCL's or hwloc's file"});
  }

  /// What a device, or its outermost switch, hangs on: its NUMA node, or a port there.
  NodeId root_of(std::size_t device) {
    const NodeId numa = numa_nodes_.at(numa_.of(device));
    if (!has_bridges_) return numa;
    const std::size_t number = host_bridges_.size();
    const std::size_t bridge = host_bridges_.try_emplace(bridge_.of(device), number).first->second;
    Node port{NodeKind::kPciePort, fmt::format("host0/port{}", ports_++), host_};
    port.facts.emplace("host_bridge", std::to_string(bridge));
    const NodeId made = made_.graph.add(std::move(port));
    made_.graph.join(LinkKind::kInternal, numa, made, kInside);
    return made;
  }

  /// What a device hangs on: its switch, made if need be, or its root.
  NodeId above(std::size_t device) {
    const std::size_t far = far_.of(device), near = near_.of(device);
    NodeId parent;  // None: the root.
    const auto a_switch = [&](std::map<std::size_t, NodeId>& made, std::size_t group) {
      const auto [at, fresh] = made.try_emplace(group);
      if (fresh) {
        const std::size_t number = near_switches_.size() + far_switches_.size() - 1;
        at->second =
            made_.graph.add({NodeKind::kPcieSwitch, fmt::format("host0/switch{}", number), host_});
        join_pcie(parent.exists() ? parent : root_of(device), at->second);
      }
      return at->second;
    };
    const bool apart = far_.size(far) > near_.size(near);  // PXB needs a switch at each end.
    if (apart) parent = a_switch(far_switches_, far);
    if (apart || near_.size(near) > 1) parent = a_switch(near_switches_, near);
    return parent.exists() ? parent : root_of(device);
  }

  int links_between(std::size_t i, std::size_t j) const {
    const bool gpus = i != j && matrix_.devices[i].gpu && matrix_.devices[j].gpu;
    return gpus ? nvlinks(matrix_.classes[i][j]) : 0;
  }

  void gpu_links() {
    const std::size_t count = matrix_.devices.size();
    Sets joined(count);
    std::vector<int> most(count), sum(count);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < count; ++j) {
        const int links = links_between(i, j);
        if (links > 0) joined.join(i, j);
        most[i] = std::max(most[i], links);
        sum[i] += links;
      }
    }
    // By set of GPUs that NVLinks join: whether one has more than its chip could.
    std::vector<bool> switched(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (sum[i] > most_nvlinks(0)) switched[joined.of(i)] = true;
    }
    through_switches(joined, switched, most);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = i + 1; j < count; ++j) {
        if (!matrix_.devices[i].gpu || !matrix_.devices[j].gpu) continue;
        if (switched[joined.of(i)] && joined.of(i) == joined.of(j)) continue;
        const int there = links_between(i, j), back = links_between(j, i);
        const bool xgmi = matrix_.classes[i][j] == "XGMI" && matrix_.hops[i][j] <= 1;
        if (there == 0 && back == 0 && !xgmi) continue;
        const auto rate = [xgmi](int links) {
          return Quantity{xgmi ? 24.0 : 20.0 * links, Origin::kAssumed};
        };
        made_.graph.add({xgmi ? LinkKind::kXgmi : LinkKind::kNvlink, nodes_[i], nodes_[j],
                         xgmi ? 1 : std::max(there, back), rate(there), rate(back)});
      }
    }
  }

  /// One node for the NVSwitches of each set. What a GPU has to its best peer it has to the
  /// switches; between two GPUs that is the fewer of both.
  void through_switches(Sets& joined, const std::vector<bool>& switched,
                        const std::vector<int>& most) {
    std::map<std::size_t, NodeId> made;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const std::size_t set = joined.of(i);
      if (!switched[set]) continue;
      const auto [at, fresh] = made.try_emplace(set);
      if (fresh) {
        at->second = made_.graph.add(
            {NodeKind::kNvSwitch, fmt::format("host0/nvswitch{}", made.size() - 1), host_});
      }
      // Hopper was the first with 18 links, so their figure is the least that it can be.
      const Quantity figure{most[i] * (most[i] == 18 ? 20.6 : 20), Origin::kAssumed};
      made_.graph.join(LinkKind::kNvlink, nodes_[i], at->second, figure).count = most[i];
      for (std::size_t j = i + 1; j < nodes_.size(); ++j) {
        if (joined.of(j) != set) continue;
        const int there = links_between(i, j), back = links_between(j, i);
        const int due = std::min(most[i], most[j]);
        if (there != due || back != due) note_odd(i, j, due);
      }
    }
  }

  void note_odd(std::size_t i, std::size_t j, int due) {
    const auto word = [&](std::size_t a, std::size_t b) {
      return fmt::format("row {} has {}", matrix_.devices[a].name, matrix_.classes[a][b]);
    };
    made_.findings.push_back(
        {Severity::kWarning, "classes-contradict",
         fmt::format("{}:{}", source_, matrix_.devices[links_between(i, j) == due ? j : i].line),
         fmt::format("{} and {} are joined otherwise than their links to other GPUs say; NV{} is "
                     "believed",
                     matrix_.devices[i].name, matrix_.devices[j].name, due),
         fmt::format("{}, {}", word(i, j), word(j, i)),
         "copy the table again; nvidia-smi nvlink -s counts the links of each GPU"});
  }

  void network() {
    NodeId plane;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (matrix_.devices[i].gpu) continue;
      if (!plane.exists()) plane = made_.graph.add({NodeKind::kPlane, "network"});
      made_.graph.join(LinkKind::kPort, nodes_[i], plane);
    }
  }

  void note_conflicts() {
    int apart = 0, together = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (std::size_t j = i + 1; j < nodes_.size(); ++j) {
        const std::string& word = matrix_.classes[i][j];
        const bool one = numa_.of(i) == numa_.of(j);
        apart += (word == "SYS" || word == "SOC") && one ? 1 : 0;
        together += (word == "PHB" || word == "NODE") && !one ? 1 : 0;
      }
    }
    const auto note = [&](int pairs, std::string_view what) {
      if (pairs == 0) return;
      made_.findings.push_back(
          {Severity::kWarning, "classes-contradict", std::string(source_), std::string(what),
           fmt::format("{} pairs", pairs),
           "a virtual machine, or a GPU on C2C? compare with the PCI tree of the host"});
    };
    note(apart, "devices of one NUMA node are said to be SYS apart; the NUMA node is believed");
    note(together,
         "devices of two NUMA nodes are said to be in one (NODE or PHB); the NUMA nodes are "
         "believed");
  }

  void note_cut() {
    std::string cut;
    std::size_t line = 0;
    for (const MatrixDevice& device : matrix_.devices) {
      if (!device.cut && (device.line > 0 || !device.gpu)) continue;
      append(cut, device.name);
      if (line == 0) line = device.line;
    }
    if (!matrix_.amd && !cut.empty() && matrix_.devices.size() > 1) {
      made_.findings.push_back(
          {Severity::kWarning, "rows-cut",
           fmt::format("{}:{}", source_, std::max<std::size_t>(line, 1)),
           fmt::format("rows are cut short or absent, and read from those of the others: {}", cut),
           "", "copy the whole table"});
    }
    if (matrix_.more_tables == 0) return;
    made_.findings.push_back({Severity::kWarning, "tables-left-out", std::string(source_),
                              fmt::format("the text has {} tables of classes; the first is read",
                                          1 + matrix_.more_tables),
                              "", "put each machine's table into a file of its own"});
  }

  std::string unique_name(const MatrixDevice& device, std::size_t at) const {
    if (device.gpu) return "host0/gpu" + device.name.substr(3);
    for (std::size_t i = 0; i < at; ++i) {
      if (matrix_.devices[i].real == device.real) return "host0/" + device.name;
    }
    const std::string name = "host0/" + device.real;
    return made_.graph.find(name).exists() ? fmt::format("host0/nic@{}", at) : name;
  }

  void join_pcie(NodeId a, NodeId b) {
    // Generation 4 with 16 lanes, neither the newest nor the oldest in use.
    const PcieRate rate{16, 16};
    made_.graph.join(LinkKind::kPcie, a, b, {pcie_bandwidth(rate), Origin::kAssumed});
  }

  Matrix matrix_;
  std::string_view source_;
  Sets near_, far_, bridge_, numa_;  // PIX; and PXB; and PHB; the same NUMA node.
  bool has_bridges_ = false;         // NODE tells them apart.
  Imported made_;
  NodeId host_;
  std::vector<NodeId> nodes_;
  std::map<std::size_t, NodeId> numa_nodes_, near_switches_, far_switches_;
  std::map<std::size_t, std::size_t> host_bridges_;  // Numbers, by set of devices.
  std::size_t ports_ = 0;
};

bool is_matrix(std::string_view text) {
  text = text.substr(0, 65536);
  return text.find("GPU0") != std::string_view::npos && !text.starts_with('<');
}

Result<Imported> read_matrix(std::string_view text, std::string_view source) {
  TUTTI_TRY(Matrix matrix, parse_matrix(text, source));
  return MatrixReader(std::move(matrix), source).read();
}

}  // namespace

constinit const Reader matrix_reader{
    "matrix", "what `nvidia-smi topo -m` or `rocm-smi --showtopo` prints", is_matrix, read_matrix};

}  // namespace tutti::topology
