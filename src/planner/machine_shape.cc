#include "planner/machine_shape.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace tutti::planner {
namespace {

constexpr int kMostNear = 128;  // Ranks of a group whose distances are compared.
constexpr double kSame = 1e-6;

/// Links on the way, ways that lie side by side by their shares.
double distance(const plan::CostModel& model, int from, int to) {
  const plan::Path path = model.link(Rank{from}, Rank{to});
  if (path.uses.empty()) return std::numeric_limits<double>::infinity();
  double links = 0;
  for (const plan::Use& use : path.uses) links += use.share;
  return links;
}

/// The largest blocks of neighbouring ranks that are nearer each other than the farthest of
/// `size`; 1: there are none.
int near_group(int size, const plan::CostModel& model) {
  if (size > kMostNear) return 1;
  // farthest[g]: of two ranks of the same block of g.
  std::vector<double> farthest(static_cast<std::size_t>(size) + 1);
  for (int a = 0; a < size; ++a) {
    for (int b = 0; b < size; ++b) {
      if (a == b) continue;
      const double links = distance(model, a, b);
      for (int block = 2; block <= size; ++block) {
        if (size % block == 0 && a / block == b / block) {
          double& most = farthest[static_cast<std::size_t>(block)];
          most = std::max(most, links);
        }
      }
    }
  }
  for (int block = size / 2; block > 1; --block) {
    if (size % block == 0 &&
        farthest[static_cast<std::size_t>(block)] < farthest.back() * (1 - kSame))
      return block;
  }
  return 1;
}

}  // namespace

std::vector<plan::GroupSizes> nestings(const Groups& groups, const plan::CostModel& model) {
  std::vector<plan::GroupSizes> found{plan::GroupSizes(groups.size)};
  const int near = near_group(groups.size, model);
  if (near == 1) return found;
  found.push_back(groups.count == 1 ? plan::GroupSizes{near} : plan::GroupSizes{near, groups.size});
  return found;
}

bool keeps_canonical_tree(std::span<const Rank> order) {
  if (order.size() < 2) return true;
  const std::size_t left = std::bit_floor(order.size() - 1);
  const std::span<const Rank> halves[] = {order.first(left), order.subspan(left)};
  const auto ends = [](std::span<const Rank> part) {
    const auto [least, most] = std::ranges::minmax(part);
    return std::pair(least.value, most.value);
  };
  const auto a = ends(halves[0]), b = ends(halves[1]);
  const bool in_order = a.second < b.first;
  const bool swapped = b.second < a.first && 2 * left == order.size();
  return (in_order || swapped) && keeps_canonical_tree(halves[0]) &&
         keeps_canonical_tree(halves[1]);
}

void put_root(std::vector<Rank>& order, int root) {
  const auto at = std::ranges::find(order, Rank{root}) - order.begin();
  const auto size = static_cast<std::ptrdiff_t>(order.size());
  std::rotate(order.begin(), order.begin() + (at - root + size) % size, order.end());
}

}  // namespace tutti::planner
