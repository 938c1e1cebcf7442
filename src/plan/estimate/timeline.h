// File: plan/estimate/timeline.h: plays the events of a message on a set of representatives
// (classes.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>

#include "plan/estimate/classes.h"
#include "plan/partition.h"

namespace tutti::plan {

inline constexpr std::size_t kCacheLine = 64;  // Pieces are cut at multiples of it.

/// The pieces of a message in all lanes, and their tiles.
class Pieces {
 public:
  /// As a message of `count` elements has them; if `full_tiles` is given, that many full tiles of
  /// every piece instead.
  Pieces(std::size_t count, std::uint32_t pieces, DataType type, std::size_t tile,
         std::size_t full_tiles)
      : count_(count),
        tile_(tile),
        full_tiles_(full_tiles),
        grain_(std::max<std::size_t>(1, kCacheLine / size_of(type))),
        pieces_(pieces) {
    tiles_ = full_tiles > 0 ? full_tiles : (piece(0).count + tile - 1) / tile;
  }
  std::size_t tiles() const { return tiles_; }
  /// Elements of a tile of a piece.
  std::size_t elements(std::uint32_t index, std::size_t tile) const {
    return full_tiles_ > 0 ? tile_ : tile_of(piece(index), tile, tile_).count;
  }
  PieceKinds kinds() const;

 private:
  Range piece(std::uint32_t index) const { return piece_of(count_, pieces_, index, grain_); }

  std::size_t count_, tile_, full_tiles_, grain_;
  std::uint32_t pieces_;
  std::size_t tiles_ = 0;
};

/// The input of a timeline. All of it has to live as long.
struct Play {
  const Instances& instances;
  Ways& ways;
  const Representatives& representatives;
  const Pieces& pieces;
  DataType type;
  int slots;
  std::uint32_t lanes;  // On each order.
  Recording* recording = nullptr;
  Picoseconds limit = std::numeric_limits<Picoseconds>::max();  // What takes longer is given up.
};
/// With kBeyondLimit, and nothing else, if the limit was passed.
Estimate play(const Play& play);

}  // namespace tutti::plan
