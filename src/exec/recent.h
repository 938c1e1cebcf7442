// File: exec/recent.h: a short list of what was met lately, the latest first.
//
// Ranks that are asked the same questions in the same order keep the same lists, also once they are
// full and forget: what is derived from them is alike on all ranks.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::exec {

class Recent {
 public:
  bool contains(std::uint64_t id) const {
    const auto end = ids_.begin() + size_;
    return std::find(ids_.begin(), end, id) != end;
  }
  /// Puts `id` first, unless it is there already; of a full list the oldest is forgotten.
  void insert(std::uint64_t id) {
    if (contains(id)) return;
    if (size_ < kMost) ++size_;
    std::copy_backward(ids_.begin(), ids_.begin() + size_ - 1, ids_.begin() + size_);
    ids_[0] = id;
  }

 private:
  static constexpr std::ptrdiff_t kMost = 64;
  std::array<std::uint64_t, kMost> ids_{};
  std::ptrdiff_t size_ = 0;
};

}  // namespace tutti::exec
