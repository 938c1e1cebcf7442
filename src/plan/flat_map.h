// File: plan/flat_map.h: a hash map from 64-bit keys to 32-bit numbers.
//
// Verifying a plan of 512 ranks looks up millions of channels and tree nodes; node-based maps spend
// most of their time in the allocator. Open addressing, linear probing, at most half full, no
// removal.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace tutti::plan {

class FlatMap {
 public:
  /// The value of `key`; if there is none yet, stores `fresh` and returns it. Keys are never ~0.
  std::uint32_t find_or_insert(std::uint64_t key, std::uint32_t fresh) {
    if (2 * (size_ + 1) > entries_.size()) grow();
    Entry& entry = entries_[slot_of(entries_, key)];
    if (entry.key == kEmpty) {
      entry = {key, fresh};
      ++size_;
    }
    return entry.value;
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Entry {
    std::uint64_t key = kEmpty;
    std::uint32_t value = 0;
  };

  static std::size_t slot_of(const std::vector<Entry>& entries, std::uint64_t key) {
    std::size_t slot = mix(key) & (entries.size() - 1);
    while (entries[slot].key != kEmpty && entries[slot].key != key)
      slot = (slot + 1) & (entries.size() - 1);
    return slot;
  }

  void grow() {
    std::vector<Entry> larger(entries_.empty() ? 64 : 2 * entries_.size());
    for (const Entry& entry : entries_) {
      if (entry.key != kEmpty) larger[slot_of(larger, entry.key)] = entry;
    }
    entries_ = std::move(larger);
  }

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
};

}  // namespace tutti::plan
