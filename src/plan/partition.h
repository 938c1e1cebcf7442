// File: plan/partition.h: from chunk indices to elements. The only place that knows how chunks are
// cut.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tutti::plan {

/// A run of elements.
struct Range {
  std::size_t offset = 0;
  std::size_t count = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

/// Piece `index` of `pieces` of a block of `count` elements. Pieces are cut at multiples of `grain`
/// elements (a cache line, so that no two ranks write the same line); the last ones may be empty.
constexpr Range piece_of(std::size_t count, std::uint32_t pieces, std::uint32_t index,
                         std::size_t grain) {
  const std::size_t grains = (count + grain - 1) / grain;
  const std::size_t base = grains / pieces, extra = grains % pieces;
  const std::size_t begin = index * base + std::min<std::size_t>(index, extra);
  const std::size_t end = begin + base + (index < extra ? 1 : 0);
  const std::size_t first = std::min(begin * grain, count);
  return {first, std::min(end * grain, count) - first};
}

/// Tile `tile` of a chunk, `tile_count` elements at most.
constexpr Range tile_of(Range chunk, std::size_t tile, std::size_t tile_count) {
  const std::size_t first = std::min(tile * tile_count, chunk.count);
  return {chunk.offset + first, std::min(tile_count, chunk.count - first)};
}

}  // namespace tutti::plan
