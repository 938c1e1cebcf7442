#include "topology/models/model.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "base/nearest.h"
#include "topology/graph/words.h"
#include "topology/join/network.h"

namespace tutti::topology {

namespace {

#define TUTTI_MODEL(id, ...) constexpr Model id##_model{__VA_ARGS__, make_##id};
#include "topology/models/models.def"
#undef TUTTI_MODEL

constexpr std::array kModels{
#define TUTTI_MODEL(id, ...) &id##_model,
#include "topology/models/models.def"
#undef TUTTI_MODEL
};

Result<const Model*> find_model(std::string_view name) {
  for (const Model* candidate : kModels) {
    if (candidate->name == name) return candidate;
  }
  std::vector<std::string_view> known;
  for (const Model* one : kModels) known.push_back(one->name);
  return invalid("{}", unknown_of("model", name, known));
}

}  // namespace

std::span<const Model* const> models() { return kModels; }

Result<Graph> model(std::string_view spec) {
  const std::size_t colon = spec.find(':');
  TUTTI_TRY(const Model* const known, find_model(spec.substr(0, colon)));
  int size = 1;
  std::string_view network = "plane";
  if (colon != std::string_view::npos) {
    std::string_view text = spec.substr(colon + 1);
    const std::size_t slash = text.find('/');
    if (slash != std::string_view::npos) {
      network = text.substr(slash + 1);
      text = text.substr(0, slash);
    }
    size = parse_number<int>(text).value_or(0);
    if (size < 1 || size > known->most) {
      return invalid("model '{:.128}': the size has to be 1 to {}, not '{:.32}'", spec, known->most,
                     text);
    }
    if (slash == std::string_view::npos && size > 1) network = known->network;
  }
  Graph graph = known->make(size);
  if (auto joined = join_network(graph, network); !joined) {
    return invalid("model '{:.128}': {}", spec, joined.error().what);
  }
  graph.notes.push_back(fmt::format("model {:.128}", spec));
  graph.notes.emplace_back(
      "latencies of links are assumed, by kind of link: parts' own are not published");
  return graph;
}

}  // namespace tutti::topology
