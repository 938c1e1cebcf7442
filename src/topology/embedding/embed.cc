#include "topology/embedding/embed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "topology/embedding/forests.h"
#include "topology/embedding/groups.h"
#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

// Rings that reach this share of the bound are good enough, and so are trees.
constexpr double kEnough = 0.95;

// Only what lanes over links of some kinds could use: for a bound that does not count more.
Graph only_kinds(const Graph& graph, std::span<const NodeId> endpoints,
                 const std::vector<LinkKind>& kinds) {
  std::vector<bool> passes(graph.nodes.size());
  for (std::uint32_t i = 0; i < passes.size(); ++i)
    passes[i] = graph.nodes[i].kind != NodeKind::kGpu;
  for (const NodeId id : endpoints) passes[id.value] = true;
  Graph part;
  part.nodes = graph.nodes;
  for (const Link& link : graph.links) {
    const bool used = std::find(kinds.begin(), kinds.end(), link.kind) != kinds.end();
    if (used && passes[link.a.value] && passes[link.b.value]) part.add(link);
  }
  return part;
}

std::vector<LinkKind> used_kinds(const Graph& graph, const Load& loads) {
  std::set<LinkKind> kinds;
  for (std::size_t i = 0; i < loads.links.size(); ++i) {
    if (loads.links[i].forward > 0 || loads.links[i].backward > 0)
      kinds.insert(graph.links[i].kind);
  }
  return {kinds.begin(), kinds.end()};
}

// Lanes, at weights that just fit, and what load() says of them.
struct Found {
  std::string method;
  std::vector<Lane> lanes;
  Load loads;
  double reached = 0;  // GB/s, gathered.
};

void scale(std::vector<Lane>& lanes, double by) {
  for (Lane& lane : lanes) lane.gigabytes_per_second *= by;
}

// Two kinds of lanes at once.
struct Mixture {
  double share = 0;  // The second's.
  double busiest = 0, gathered = 0;
};

// The mixture that gathers the most: by the share t of the second, (1-t) a + t b over the largest
// of linear functions of t, so there is one peak.
Mixture best_mixture(const Graph& graph, const Found& a, const Found& b) {
  const auto at = [&](double t) {
    Mixture mixture{t, 0, 0};
    for (std::size_t i = 0; i < graph.links.size(); ++i) {
      const Link& link = graph.links[i];
      const Load::Link &x = a.loads.links[i], &y = b.loads.links[i];
      const auto look = [&](double first, double second, double rate) {
        if (rate > 0)
          mixture.busiest = std::max(mixture.busiest, ((1 - t) * first + t * second) / rate);
      };
      look(x.forward, y.forward, link.forward.value);
      look(x.backward, y.backward, link.backward.value);
    }
    mixture.gathered = ((1 - t) * a.reached + t * b.reached) / mixture.busiest;
    return mixture;
  };
  double low = 0, high = 1;
  for (int round = 0; round < 60; ++round) {
    const double left = low + (high - low) / 3, right = high - (high - low) / 3;
    if (at(left).gathered < at(right).gathered) {
      low = left;
    } else {
      high = right;
    }
  }
  return at((low + high) / 2);
}

class Search {
 public:
  Search(const Graph& graph, std::span<const NodeId> endpoints, const EmbedOptions& options)
      : graph_(graph),
        endpoints_(endpoints),
        options_(options),
        router_(graph),
        groups_(make_groups(graph, endpoints, false)) {}

  Result<Embedding> run(const Bound& whole) {
    const auto size = static_cast<double>(endpoints_.size());
    const double limit = entry_limit(graph_, groups_) * size / (size - 1);
    TUTTI_TRY(Found best, rings(0.999 * std::min(limit, whole.gigabytes_per_second())));
    Embedding embedding;
    embedding.rings = best.reached;
    embedding.ring_limit = std::isfinite(limit) ? limit : 0;
    TUTTI_TRY(const bool done, is_enough(best));
    if (!done && !options_.rings_only) {
      TUTTI_TRY(Found other, forests(whole.gigabytes_per_second()));
      if (other.reached > best.reached * 1.001) best = std::move(other);
    }
    if (best.lanes.empty())
      return Error{Code::kInvalidArgument,
                   "embed: neither rings nor trees join the endpoints without passing other GPUs; "
                   "add the missing links, or choose other endpoints"};
    embedding.bound = whole;
    embedding.kinds = used_kinds(graph_, best.loads);
    TUTTI_TRY(embedding.bound_of_kinds, bound_of(embedding.kinds));
    embedding.lanes = std::move(best.lanes);
    embedding.method = std::move(best.method);
    embedding.routes = std::move(router_).take();
    return embedding;
  }

 private:
  // The best of all kinds of rings; they are tried until one reaches `enough`, simplest first.
  Result<Found> rings(double enough) {
    Found best;
    const auto consider = [&](std::string method,
                              std::optional<std::vector<Lane>> lanes) -> Status {
      TUTTI_TRY(Found found, judge(std::move(method), std::move(lanes)));
      // Better by more than rounding, so that simpler ones win.
      if (found.reached > best.reached * 1.001) best = std::move(found);
      return ok();
    };
    TUTTI_RETURN_IF_ERROR(consider("rotations of the order of the machine's file",
                                   rotations(graph_, router_, groups_)));
    if (best.reached < enough) {
      const auto walks = make_groups(graph_, endpoints_, true);
      TUTTI_RETURN_IF_ERROR(
          consider("a walk of the PCI Express trees", rotations(graph_, router_, walks)));
    }
    if (best.reached < enough)
      TUTTI_RETURN_IF_ERROR(
          consider("packed rings", packed(graph_, router_, groups_, options_.most_packed)));
    return best;
  }

  // Ways to lay trees, simplest first, until what was found is enough. A way is mixed with those
  // before it if that helps.
  Result<Found> forests(double whole) {
    // Connections of one endpoint to other groups; and to other endpoints of a large group.
    constexpr std::size_t kMostStar = 16;
    const bool alone = groups_.size() == 1;
    const Across across = groups_.size() > kMostStar ? Across::kGrid : Across::kStar;
    const std::string crossing = alone                     ? ""
                                 : across == Across::kStar ? ", by rails"
                                                           : ", by rails in a grid";
    const auto lay = [&](Inside inside, Across over) {
      return topology::forests(graph_, router_, groups_, inside, over, options_.most_packed, whole);
    };
    using Make = std::function<std::optional<std::vector<Lane>>()>;
    std::vector<std::pair<std::string, Make>> ways{
        {"direct trees" + crossing, [&] { return lay(Inside::kDirect, across); }},
        {"packed trees over fast links" + crossing,
         [&] { return lay(Inside::kPackedFast, across); }},
        {"direct trees, rails last", [&] { return rails_last(graph_, router_, groups_); }},
        {"packed trees" + crossing, [&] { return lay(Inside::kPackedHost, across); }},
        {"trees by pairs" + crossing, [&] { return lay(Inside::kPaired, across); }},
        {"packed trees of all",
         [&] { return packed_whole(graph_, router_, endpoints_, options_.most_packed); }}};
    if (alone) ways = {ways[0], ways[1], ways[3]};
    Found best;
    for (auto& [method, make] : ways) {
      TUTTI_TRY(Found found, judge(std::move(method), make()));
      if (found.lanes.empty()) continue;
      best = mix(std::move(best), std::move(found));
      TUTTI_TRY(const bool done, is_enough(best));
      if (done) break;
    }
    return best;
  }

  // Lanes scaled to what fits; empty if there are none.
  Result<Found> judge(std::string method, std::optional<std::vector<Lane>> lanes) {
    Found found;
    if (!lanes || lanes->empty()) return found;
    TUTTI_TRY(found.loads, load(graph_, *lanes, router_.routes()));
    found.method = std::move(method);
    found.lanes = *std::move(lanes);
    found.reached = found.loads.gigabytes_per_second;
    scale(found.lanes, 1 / found.loads.busiest);
    for (Load::Link& link : found.loads.links) {
      link.forward /= found.loads.busiest;
      link.backward /= found.loads.busiest;
    }
    return found;
  }

  // Both by the shares that gather the most, or only one where the other adds less than a percent.
  Found mix(Found a, Found b) const {
    if (a.lanes.empty()) return b;
    const Mixture best = best_mixture(graph_, a, b);
    if (best.gathered <= std::max(a.reached, b.reached) * 1.01)
      return b.reached > a.reached * 1.001 ? b : a;
    const double by_a = (1 - best.share) / best.busiest, by_b = best.share / best.busiest;
    a.method += "; " + b.method;
    a.reached = best.gathered;
    scale(a.lanes, by_a);
    scale(b.lanes, by_b);
    std::move(b.lanes.begin(), b.lanes.end(), std::back_inserter(a.lanes));
    for (std::size_t i = 0; i < a.loads.links.size(); ++i) {
      Load::Link& link = a.loads.links[i];
      link.forward = link.forward * by_a + b.loads.links[i].forward * by_b;
      link.backward = link.backward * by_a + b.loads.links[i].backward * by_b;
    }
    return a;
  }

  Result<bool> is_enough(const Found& found) {
    if (found.lanes.empty()) return false;
    TUTTI_TRY(const Bound of_kinds, bound_of(used_kinds(graph_, found.loads)));
    return found.reached >= kEnough * of_kinds.gigabytes_per_second();
  }

  Result<Bound> bound_of(const std::vector<LinkKind>& kinds) {
    const auto known = bounds_.find(kinds);
    if (known != bounds_.end()) return known->second;
    TUTTI_TRY(Bound found,
              bound(only_kinds(graph_, endpoints_, kinds), Pattern::kAllGather, endpoints_));
    return bounds_.emplace(kinds, std::move(found)).first->second;
  }

  const Graph& graph_;
  std::span<const NodeId> endpoints_;
  const EmbedOptions& options_;
  Router router_;
  std::vector<Group> groups_;
  std::map<std::vector<LinkKind>, Bound> bounds_;  // By kinds of links.
};

void write_report(const Graph& graph, const Load& loads, Embedding& embedding) {
  auto& report = embedding.report;
  const Link& link = graph.links[loads.bottleneck.link];
  const NodeId from = loads.bottleneck.forward ? link.a : link.b;
  const NodeId to = loads.bottleneck.forward ? link.b : link.a;
  const bool one = embedding.lanes.size() == 1;
  report.push_back(
      fmt::format("{} lane{} ({}) gather{} {:.1f} GB/s: {:.1f} % of what is possible over "
                  "{} ({:.1f}), {:.1f} % of what is over all links ({:.1f})",
                  embedding.lanes.size(), one ? "" : "s", embedding.method, one ? "s" : "",
                  embedding.gigabytes_per_second, 100 * embedding.share_of_kinds,
                  list_of(embedding.kinds, [](LinkKind kind) { return to_string(kind); }),
                  embedding.bound_of_kinds.gigabytes_per_second(), 100 * embedding.share,
                  embedding.bound.gigabytes_per_second()));
  report.push_back(fmt::format("full: {} -> {} ({}, {:.1f} GB/s)", graph[from].name, graph[to].name,
                               to_string(link.kind),
                               (loads.bottleneck.forward ? link.forward : link.backward).value));
  const bool trees = !embedding.lanes.front().is_ring();
  if (trees && embedding.rings > 0)
    report.push_back(
        fmt::format("rings alone would gather {:.1f} GB/s ({:.1f} %)", embedding.rings,
                    100 * embedding.rings / embedding.bound_of_kinds.gigabytes_per_second()));
  if (embedding.share_of_kinds >= kEnough) return;
  report.push_back(fmt::format("these {} miss {:.1f} % of the bound, whose cut is: {}",
                               trees ? "trees" : "rings", 100 * (1 - embedding.share_of_kinds),
                               embedding.bound_of_kinds.cut.words));
  report.emplace_back(
      "the bound can be reached by trees packed in all of the machine's links, but that is done "
      "for up to 16 endpoints only; none of the ways that are known for more is as good here");
}

}  // namespace

Result<Embedding> embed(const Graph& graph, std::span<const NodeId> endpoints,
                        const EmbedOptions& options) {
  TUTTI_TRY(const Bound whole, bound(graph, Pattern::kAllGather, endpoints));
  TUTTI_TRY(Embedding embedding, Search(graph, endpoints, options).run(whole));
  TUTTI_TRY(const Load loads, load(graph, embedding));
  embedding.gigabytes_per_second = loads.gigabytes_per_second;
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
