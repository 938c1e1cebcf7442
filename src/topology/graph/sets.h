// File: topology/graph/sets.h: sets of numbered things that grow together (union-find).
#pragma once
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace tutti::topology {

class Sets {
 public:
  /// Each thing in a set of its own.
  explicit Sets(std::size_t size) : up_(size) { std::iota(up_.begin(), up_.end(), 0U); }
  /// The smallest member, which stands for the set.
  std::size_t of(std::size_t at) {
    while (up_[at] != at) at = up_[at] = up_[up_[at]];
    return at;
  }
  /// False: they are in one set already.
  bool join(std::size_t a, std::size_t b) {
    a = of(a);
    b = of(b);
    up_[std::max(a, b)] = std::min(a, b);
    return a != b;
  }
  std::size_t size(std::size_t set) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < up_.size(); ++i) count += of(i) == set ? 1 : 0;
    return count;
  }

 private:
  std::vector<std::size_t> up_;
};

}  // namespace tutti::topology
