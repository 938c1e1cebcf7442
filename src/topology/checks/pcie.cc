// File: topology/checks/pcie.cc: PCI Express links against what they could do, against their slots
// and against those of parts like them.
//
// Lanes do not come and go: fewer than there could be is broken, or badly seated. The rate of a
// lane does: GPUs let it sink while nobody uses them, so a GPU's low rate alone means something
// only where others like it are awake.
#include <fmt/format.h>

#include <algorithm>

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

}  // namespace tutti::topology
