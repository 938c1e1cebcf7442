#include "topology/embed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "topology/embed_groups.h"

namespace tutti::topology {
namespace {

// Lanes that are one way to do it, to be judged by load().
struct Candidate {
  std::string method;
  Embedding embedding;
  double gigabytes_per_second = 0;
};

// Only the links of some kinds, for a bound that does not count what no lane uses.
Graph only_kinds(const Graph& graph, const std::vector<LinkKind>& kinds) {
  Graph part;
  part.nodes = graph.nodes;
  for (const Link& link : graph.links) {
    if (std::find(kinds.begin(), kinds.end(), link.kind) != kinds.end()) part.add(link);
  }
  return part;
}

std::vector<LinkKind> used_kinds(const Graph& graph, const Embedding& embedding) {
  std::set<std::uint32_t> routes;
  for (const Lane& lane : embedding.lanes) routes.insert(lane.hops.begin(), lane.hops.end());
  std::set<LinkKind> kinds;
  for (const std::uint32_t route : routes) {
    for (const EdgeUse& use : embedding.routes[route]) kinds.insert(graph.links[use.link].kind);
  }
  return {kinds.begin(), kinds.end()};
}

class Search {
 public:
  Search(const Graph& graph, std::span<const NodeId> endpoints, const EmbedOptions& options)
      : graph_(graph), endpoints_(endpoints), options_(options), router_(graph) {}

  /// The best of all methods; they are tried until one reaches `enough`, simplest first.
  Result<Embedding> run(const Bound& bound) {
    const auto groups = make_groups(graph_, endpoints_, false);
    const auto size = static_cast<double>(endpoints_.size());
    const double limit = entry_limit(graph_, groups) * size / (size - 1);
    const double enough = 0.999 * std::min(limit, bound.gigabytes_per_second());
    TUTTI_CHECK_OK(consider("rotations of the order of the machine's file",
                            rotations(graph_, router_, groups)));
    const auto walks = make_groups(graph_, endpoints_, true);
    if (reached_ < enough)
      TUTTI_CHECK_OK(
          consider("a walk of the PCI Express trees", rotations(graph_, router_, walks)));
    if (reached_ < enough)
      TUTTI_CHECK_OK(
          consider("packed rings", packed(graph_, router_, groups, options_.most_packed)));
    if (lanes_.empty())
      return Error{Code::kInvalidArgument,
                   "embed: no ring joins the endpoints without passing other GPUs; add the missing "
                   "links, or choose other endpoints"};
    Embedding embedding;
    embedding.lanes = std::move(lanes_);
    embedding.method = std::move(method_);
    embedding.routes = std::move(router_).take();
    embedding.ring_limit = std::isfinite(limit) ? limit : 0;
    return embedding;
  }

 private:
  // Takes the lanes if they are better by more than rounding, so that simpler ones win.
  Status consider(std::string method, std::optional<std::vector<Lane>> lanes) {
    if (!lanes || lanes->empty()) return ok();
    Embedding embedding;
    embedding.routes = router_.routes();
    embedding.lanes = *std::move(lanes);
    TUTTI_TRY(const Load loads, load(graph_, embedding));
    if (loads.gigabytes_per_second < reached_ * 1.001) return ok();
    reached_ = loads.gigabytes_per_second;
    method_ = std::move(method);
    lanes_ = std::move(embedding.lanes);
    for (Lane& lane : lanes_) lane.gigabytes_per_second /= loads.busiest;
    return ok();
  }

  const Graph& graph_;
  std::span<const NodeId> endpoints_;
  const EmbedOptions& options_;
  Router router_;
  std::vector<Lane> lanes_;
  std::string method_;
  double reached_ = 0;
};

// "nvlink, pcie"
std::string names(const std::vector<LinkKind>& kinds) {
  std::string text;
  for (const LinkKind kind : kinds) {
    text += text.empty() ? "" : ", ";
    text += to_string(kind);
  }
  return text;
}

void write_report(const Graph& graph, const Load& loads, Embedding& embedding) {
  auto& report = embedding.report;
  const Link& link = graph.links[loads.bottleneck.link];
  const NodeId from = loads.bottleneck.forward ? link.a : link.b;
  const NodeId to = loads.bottleneck.forward ? link.b : link.a;
  report.push_back(
      fmt::format("{} lanes ({}) gather {:.1f} GB/s: {:.1f} % of what is possible over "
                  "{} ({:.1f}), {:.1f} % of what is over all links ({:.1f})",
                  embedding.lanes.size(), embedding.method, embedding.gigabytes_per_second,
                  100 * embedding.share_of_kinds, names(embedding.kinds),
                  embedding.bound_of_kinds.gigabytes_per_second(), 100 * embedding.share,
                  embedding.bound.gigabytes_per_second()));
  report.push_back(fmt::format("full: {} -> {} ({}, {:.1f} GB/s)", graph[from].name, graph[to].name,
                               to_string(link.kind),
                               (loads.bottleneck.forward ? link.forward : link.backward).value));
  if (embedding.share_of_kinds >= 0.95) return;
  report.push_back(fmt::format("these rings miss {:.1f} % of the bound, whose cut is: {}",
                               100 * (1 - embedding.share_of_kinds),
                               embedding.bound_of_kinds.cut.words));
  if (embedding.ring_limit > 0 && embedding.gigabytes_per_second >= 0.99 * embedding.ring_limit)
    report.push_back(
        fmt::format("no rings gather more than {:.1f} GB/s here, for each carries all data into "
                    "every host; trees carry only what is missing there, and would be needed",
                    embedding.ring_limit));
  else
    report.emplace_back(
        "a ring sends all data over each of its hops; trees send only what is missing behind a "
        "link, and would be needed to reach the bound");
}

}  // namespace

Result<Embedding> embed(const Graph& graph, std::span<const NodeId> endpoints,
                        const EmbedOptions& options) {
  TUTTI_TRY(Bound whole, bound(graph, Pattern::kAllGather, endpoints));
  TUTTI_TRY(Embedding embedding, Search(graph, endpoints, options).run(whole));
  embedding.bound = std::move(whole);
  TUTTI_TRY(const Load loads, load(graph, embedding));
  embedding.gigabytes_per_second = loads.gigabytes_per_second;
  embedding.kinds = used_kinds(graph, embedding);
  TUTTI_TRY(embedding.bound_of_kinds,
            bound(only_kinds(graph, embedding.kinds), Pattern::kAllGather, endpoints));
  // Bounds round every bandwidth up to a whole MB/s, so a share is never above 1 but for doubles.
  const auto share = [&](const Bound& of) {
    return std::min(1.0, embedding.gigabytes_per_second / of.gigabytes_per_second());
  };
  embedding.share = share(embedding.bound);
  embedding.share_of_kinds = share(embedding.bound_of_kinds);
  write_report(graph, loads, embedding);
  return embedding;
}

}  // namespace tutti::topology
