// File: topology/checks/pcie.cc: PCI Express links against what they could do, against their slots,
// against those of parts like them; and, where all of a kind are alike, against what hangs below
// and what a chip is made for.
//
// Lanes do not come and go: fewer than there could be is broken, or badly seated. The rate of a
// lane does: GPUs let it sink while nobody uses them, so a GPU's low rate alone means something
// only where others like it are awake.
#include <fmt/format.h>

#include <algorithm>

#include "topology/checks/chips.h"
#include "topology/checks/parts.h"

namespace tutti::topology {
namespace {

// The end of a PCI Express link that is farther from the processor.
NodeId lower_end(const Machine& machine, const Link& link) {
  return machine.parent[link.a.value] == link.b ? link.a : link.b;
}

bool is_slow(const Pcie& pcie) {
  return pcie.current.gigatransfers > 0 &&
         pcie.current.gigatransfers < pcie.maximum.gigatransfers * 0.99;
}

bool is_measured(const Link& link) {
  return std::max(link.forward.origin, link.backward.origin) == Origin::kMeasured;
}

// What was measured tells more than what registers say.
void judge_measured(const Machine& machine, const Link& link, NodeId child, Findings& findings) {
  const double could = pcie_bandwidth(link.pcie->maximum);
  double own = could;
  for (const Quantity& side : {link.forward, link.backward}) {
    if (side.origin == Origin::kMeasured) own = std::min(own, side.value);
  }
  if (own >= could * 0.8) return;
  findings.push_back(
      {Severity::kWarning, "pcie-measured", machine.graph[child].name,
       "the PCI Express link carries less than its rate allows",
       fmt::format("{:.1f} GB/s (measured), {:.1f} of {}", own, could, text_of(link.pcie->maximum)),
       "look for errors (dmesg, lspci -vv), for other traffic on the same switch, "
       "and for a payload size of 128 bytes",
       loss_of(own, could)});
}

}  // namespace

void check_pcie_current(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  std::map<std::string, int> awake;  // Links at their full rate, by the part below.
  for (const Link& link : graph.links) {
    if (!link.pcie || !link.pcie->current.known() || is_slow(*link.pcie)) continue;
    ++awake[likeness(graph[lower_end(machine, link)])];
  }
  for (const Link& link : graph.links) {
    if (!link.pcie) continue;
    const NodeId child = lower_end(machine, link);
    const Node& node = graph[child];
    const auto& [current, maximum] = *link.pcie;
    const std::string evidence =
        fmt::format("{} (current), {} (maximum)", text_of(current), text_of(maximum));
    if (current.width > 0 && current.width < maximum.width) {
      const double loss = loss_of(current.width, maximum.width);
      findings.push_back(
          {Severity::kError, "pcie-width", node.name,
           fmt::format("the PCI Express link has {} of {} lanes", current.width, maximum.width),
           evidence, "reseat the device, or replace it, its riser or its cable", loss});
      continue;
    }
    if (is_measured(link)) {
      judge_measured(machine, link, child, findings);
      continue;
    }
    if (!is_slow(*link.pcie)) continue;
    const double loss = loss_of(current.gigatransfers, maximum.gigatransfers);
    const std::string like = likeness(node);
    // A switch's and a port's link sleeps with the GPU below it; NICs stay awake.
    const bool sleeps = node.kind != NodeKind::kNic && node.kind != NodeKind::kCard;
    const bool others_awake = !like.empty() && awake[like] > 0;
    if (sleeps && !others_awake) {
      findings.push_back({Severity::kNote, "pcie-asleep", node.name,
                          "the PCI Express link runs below its rate: asleep or degraded", evidence,
                          "look again under load", loss});
    } else {
      findings.push_back({Severity::kWarning, "pcie-speed", node.name,
                          sleeps ? "the PCI Express link runs below its rate, and those of others "
                                   "like it do not"
                                 : "the PCI Express link runs below its rate",
                          evidence,
                          "look again under load; then reseat, and look at the link "
                          "speed in the firmware's settings",
                          loss});
    }
  }
}

void check_pcie_slot(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  // The best of each kind of part: those of the same make should have links alike.
  std::map<std::string, PcieRate> best;
  for (const Link& link : graph.links) {
    if (!link.pcie || !link.pcie->maximum.known()) continue;
    PcieRate& rate = best[likeness(graph[lower_end(machine, link)])];
    if (pcie_bandwidth(rate) < pcie_bandwidth(link.pcie->maximum)) rate = link.pcie->maximum;
  }
  for (const Link& link : graph.links) {
    if (!link.pcie || !link.pcie->maximum.known()) continue;
    const Node& node = graph[lower_end(machine, link)];
    const PcieRate& own = link.pcie->maximum;
    const auto device = number_fact(node, "pcie_device_width");
    if (device && *device > own.width) {
      findings.push_back(
          {Severity::kWarning, "pcie-slot", node.name,
           fmt::format("a device of {} lanes is in a slot of {}", *device, own.width),
           fmt::format("{} (maximum of both), x{} (maximum of the device)", text_of(own), *device),
           "put it into a wider slot, or set the slot's bifurcation",
           loss_of(own.width, static_cast<double>(*device))});
      continue;
    }
    const std::string like = likeness(node);
    if (like.empty() || node.kind == NodeKind::kPciePort) continue;
    if (node.kind == NodeKind::kPcieSwitch) continue;  // Their ports differ by design.
    const PcieRate& most = best[like];
    const double loss = loss_of(pcie_bandwidth(own), pcie_bandwidth(most));
    if (loss < 0.01) continue;
    findings.push_back(
        {Severity::kWarning, "pcie-below-siblings", node.name,
         "the PCI Express link can do less than those of other devices of this make",
         fmt::format("{} (maximum), others {} (maximum)", text_of(own), text_of(most)),
         "compare slot, riser and firmware settings with theirs", loss});
  }
}

namespace {

// GB/s that a PCI Express link could carry; 0 where nobody knows, or where it is a guess. A rate of
// the moment says nothing of what an idle link could do.
double could_carry(const Link& link) {
  if (link.pcie && link.pcie->maximum.known()) return pcie_bandwidth(link.pcie->maximum);
  const bool known =
      link.forward.origin > Origin::kAssumed && link.forward.origin != Origin::kReportedCurrent;
  return known ? link.forward.value : 0;
}

// What hangs below a bridge: GB/s of the links to what is next, but a NIC's no more than its
// port's.
struct Below {
  double sum = 0, widest = 0;
  int parts = 0;
};
// By bridge. Functions of one device share its link, each as a link of the graph.
std::map<NodeId, Below> below_bridges(const Machine& machine) {
  const Graph& graph = machine.graph;
  std::map<NodeId, std::map<std::string, double>> devices;
  for (const Link& link : graph.links) {
    if (link.kind != LinkKind::kPcie) continue;
    const NodeId child = lower_end(machine, link);
    NodeId bridge = child == link.a ? link.b : link.a;
    // Past the port of a switch to the switch, whose own link is the next.
    while (bridge.exists() && machine.parent[bridge.value].exists() &&
           graph.links[machine.up[bridge.value]].kind != LinkKind::kPcie) {
      bridge = machine.parent[bridge.value];
    }
    if (!bridge.exists() || !machine.parent[bridge.value].exists()) continue;
    const Node& node = graph[child];
    double needs = could_carry(link);
    const auto speed = static_cast<double>(number_fact(node, "speed_mbps").value_or(0));
    if (node.kind == NodeKind::kNic && speed > 0) needs = std::min(needs, speed / 8000);
    const std::string device =
        node.bus.empty() ? node.name : node.bus.substr(0, node.bus.rfind('.'));
    double& own = devices[bridge][device];
    own = std::max(own, needs);
  }
  std::map<NodeId, Below> below;
  for (const auto& [bridge, parts] : devices) {
    Below& all = below[bridge];
    for (const auto& [device, needs] : parts) {
      if (needs <= 0) continue;
      all.sum += needs;
      all.widest = std::max(all.widest, needs);
      ++all.parts;
    }
  }
  return below;
}

}  // namespace

// Where all uplinks are alike, no sibling shows that they are narrow.
void check_pcie_uplink(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  for (const auto& [bridge, below] : below_bridges(machine)) {
    const Link& link = graph.links[machine.up[bridge.value]];
    const double carries = could_carry(link), share = carries > 0 ? below.sum / carries : 0;
    if (share <= 2.001) continue;
    // Boards let up to five GPUs and a NIC share one link of their width, or of the generation
    // before. What is narrower is not made so, or is what a virtual machine is told.
    const bool narrow = share > 6.001 || below.widest > 2.001 * carries;
    findings.push_back(
        {narrow ? Severity::kWarning : Severity::kNote, "pcie-uplink", graph[bridge].name,
         narrow
             ? "the PCI Express link up is far narrower than what hangs below it"
             : "parts below this bridge share a PCI Express link up that is narrower than all of "
               "them",
         fmt::format("{:.1f} GB/s{}, below it {:.1f} GB/s in {}", carries,
                     link.pcie && link.pcie->maximum.known()
                         ? fmt::format(" ({}, maximum)", text_of(link.pcie->maximum))
                         : fmt::format(" ({})", to_string(link.forward.origin)),
                     below.sum,
                     below.parts == 1 ? "one part" : fmt::format("{} parts", below.parts)),
         narrow ? "look at the bridge outside of the virtual machine (lspci -vv); if the figure is "
                  "wrong, correct the file, for NCCL believes it too"
                : "count on the share, and keep traffic below the switch",
         narrow ? loss_of(carries, below.widest > carries ? below.widest : below.sum) : 0});
  }
}

void check_pcie_chip(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  for (const Link& link : graph.links) {
    if (link.kind != LinkKind::kPcie || !link.pcie) continue;
    const Node& gpu = graph[lower_end(machine, link)];
    if (gpu.kind != NodeKind::kGpu) continue;
    const double own = link.pcie->maximum.gigatransfers, due = pcie_generation(gpu);
    // A slot a generation older than its GPU is usual; the first two are none that such a GPU is
    // in.
    if (own <= 0 || own > 5.001 || due < 3 * own) continue;
    findings.push_back(
        {Severity::kWarning, "pcie-generation", gpu.name,
         "the PCI Express link can do far less than the GPU's chip",
         fmt::format("{} (maximum), the chip is made for {} GT/s (table)",
                     text_of(link.pcie->maximum), due),
         "look at the link outside of the virtual machine (lspci -vv), at the firmware's settings "
         "and at riser and cable; if the figure is wrong, correct the file, for NCCL believes it "
         "too",
         loss_of(own, due)});
  }
}

}  // namespace tutti::topology
