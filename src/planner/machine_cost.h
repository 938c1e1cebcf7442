// File: planner/machine_cost.h: what sending over a machine (topology/graph/graph.h) costs.
//
// Ranks are endpoints of the graph. What goes from one to another takes all shortest ways by shares
// (topology/embedding/routes.h), so its resources are link directions; a rank computes with its
// memory's bandwidth. Bandwidths are the graph's. Latencies and the share of a link that carries
// data are of a protocol: how slots are handed over. The figures are published ones; each says
// whose it is (machine_cost.cc). None is fitted to a row of docs/simulator.md.
//
// To add a protocol: a line of the table in machine_cost.cc.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/estimate/estimate.h"
#include "planner/machine_shape.h"
#include "topology/bounds/bound.h"
#include "topology/embedding/routes.h"
#include "topology/graph/graph.h"
#include "tutti/result.h"
#include "tutti/types.h"

namespace tutti::planner {

/// How data and the news that it is there travel.
struct Protocol {
  std::string_view name;
  bool devices = true;           // Between GPUs; else between hosts' own ranks.
  bool needs_nvlink = false;     // Relies on stores that NVLink keeps whole.
  bool joins_in_switch = false;  // Multicast and reduction in NVSwitches (NVLS).
  double base_us = 0;            // Once a call.
  /// From one rank's step to the other's, by the slowest that a hop goes over.
  struct Hop {
    double nvlink = 0, pcie = 0, network = 0;
  } hop_us{};
  double efficiency = 1;  // Data of what is sent.
  /// What a step takes its lane by itself (plan::CostModel).
  double lane_us = 0, lane_gigabytes_per_second = 0;
  bool sees_slots = true;
};

/// Those whose figures are published: NCCL's, and what ranks on CPUs do.
std::span<const Protocol> protocols();
/// Those of this library's kernels, predicted (kernel_phases.h): "slots", "packed" (half of a slot
/// are flags), "lines" (a flag for each 128 bytes), "multimem" (multicast memory).
std::span<const Protocol> kernel_protocols();
/// One of either.
const Protocol* find_protocol(std::string_view name);
/// "simple, ll128, ...".
std::string protocol_names();

/// The pattern that bounds the collective.
topology::Pattern pattern_of(Collective collective);
/// The ranks that its bound asks for; `place` says where a rank is in the endpoints.
template <class Place>
topology::BoundOptions ends_of(Collective collective, int root, int ranks, Place&& place) {
  return {.root = place(has_root(collective) ? root : 0), .last = place(ranks - 1)};
}

class MachineCost {
 public:
  /// The graph has to outlive this. Endpoints: as bound() takes them, any number.
  MachineCost(const topology::Graph& graph, std::span<const topology::NodeId> endpoints);
  /// Ranks at the endpoints of the groups, as they are.
  MachineCost(const topology::Graph& graph, Groups groups);

  const topology::Graph& graph() const { return graph_; }
  const Groups& groups() const { return groups_; }
  int rank_count() const { return static_cast<int>(groups_.endpoints.size()); }

  /// Whether ranks can use it here.
  bool has(const Protocol& protocol) const;
  /// Costs of places: place i is endpoints[i]. Resources: link directions, 2 * link + (backward),
  /// then the places' memories. Shares the machine; as long as it lives.
  plan::CostModel model(const Protocol& protocol);
  /// What a way over such links alone takes of the resources; empty: there is none.
  std::vector<plan::Use> uses(topology::NodeId from, topology::NodeId to, topology::Over over);
  /// "host0/gpu3 -> nvswitch1 (nvlink)", "memory of host0/gpu3".
  std::string name_of(std::size_t resource) const;
  /// "nvlink", "memory".
  std::string_view kind_of(std::size_t resource) const;

  /// The figures that are guesses, in words: "the rate of 8 nvlink links, ..."; "" if none is.
  std::string assumed() const;

  /// Two places between which the last models found no way, if any.
  std::optional<Error> unreachable() const;

  /// Rank orders to lay lanes on: the order of the groups, and those of the rings that embed()
  /// finds, where that is another. If many groups are alike, two are embedded and repeated.
  std::vector<std::vector<std::vector<Rank>>> layouts() const;

 private:
  /// The way from one place to the network: nearest NICs, by shares. Only if all lead to one node
  /// of it, and back as wide as there.
  struct WayOut {
    topology::NodeId to;  // None: not so.
    int spare = 0;        // So many links more are to the nearest NIC that leads elsewhere.
    topology::Route out, in;
  };
  plan::Path path(Rank from, Rank to, const Protocol& protocol);
  std::optional<topology::Route> route(std::size_t from, std::size_t to);
  const WayOut& way_out(std::size_t place);
  double hop_us(const topology::Route& route, const Protocol& protocol) const;
  topology::Quantity memory_rate(topology::NodeId place) const;
  std::optional<std::vector<std::vector<Rank>>> ring_orders() const;

  const topology::Graph& graph_;
  Groups groups_;
  topology::Adjacency adjacency_;
  topology::Router router_;
  std::vector<std::optional<WayOut>> ways_out_;  // By place; made when asked for.
  std::optional<Error> unreachable_;
};

}  // namespace tutti::planner
