// File: topology/models/model.h: systems by name and size, from published figures.
//
// A model makes hosts with NICs; a network (network.h) then joins the NICs. Bandwidths are payload,
// as everywhere in a graph; what is a guess has Origin::kAssumed and a note of the graph says so.
// PCI addresses are made up, but have the order and the form of real ones.
//
// A specification is `name[:size[/network[/parameter]]]`:
//   hgx-h100                  one host, its NICs joined to the plane "network"
//   hgx-h100:4                four hosts on the model's own network, here a rail-optimised fat tree
//   hgx-h100:64/fat-tree/2    64 hosts, network and its parameter: an oversubscription of 2 to 1
//   p5:16/torus/4x4           see network.h for all of them
// The size counts hosts; of gb200-nvl72 it counts racks of 18 hosts.
//
// To add one: a function make_my_model() in nvlink.cc or other.cc, and an entry of models.def.
// The tests that run over the registry then cover it.
#pragma once
#include <span>
#include <string_view>

#include "topology/graph/graph.h"
#include "tutti/result.h"

namespace tutti::topology {

struct Model {
  std::string_view name;         // "hgx-h100"
  std::string_view network;      // What joins the NICs of several hosts if nobody says.
  int most;                      // The largest size.
  std::string_view description;  // One line: parts and their links.
  /// Hosts with NICs that are not joined to any network yet; `size` as in the specification.
  Graph (*make)(int size);
};

#define TUTTI_MODEL(id, ...) Graph make_##id(int size);
#include "topology/models/models.def"
#undef TUTTI_MODEL

std::span<const Model* const> models();

/// The graph of a specification, see above. Whatever is wrong with it is a kInvalidArgument that
/// says what there is instead. Time is linear in the size: 1,024 GPUs take some ten milliseconds.
Result<Graph> model(std::string_view spec);

}  // namespace tutti::topology
