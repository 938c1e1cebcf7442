// File: exec/copy_few.h: a copy of a few bytes, for calls that take as long as a call of memcpy.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti::exec {

/// A memcpy that is no call for what fits a line: two copies that may overlap, from both ends.
inline void copy_few(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kFew = 64;
  const auto from_both_ends = [&]<class Part>(Part first, Part last) {
    std::memcpy(&first, from, sizeof(Part));
    std::memcpy(&last, from + bytes - sizeof(Part), sizeof(Part));
    std::memcpy(to, &first, sizeof(Part));
    std::memcpy(to + bytes - sizeof(Part), &last, sizeof(Part));
  };
  using Four = std::array<std::uint64_t, 4>;
  using Two = std::array<std::uint64_t, 2>;
  if (bytes > kFew)
    std::memcpy(to, from, bytes);
  else if (bytes >= sizeof(Four))
    from_both_ends(Four{}, Four{});
  else if (bytes >= sizeof(Two))
    from_both_ends(Two{}, Two{});
  else if (bytes >= sizeof(std::uint64_t))
    from_both_ends(std::uint64_t{}, std::uint64_t{});
  else if (bytes >= sizeof(std::uint32_t))
    from_both_ends(std::uint32_t{}, std::uint32_t{});
  else if (bytes >= sizeof(std::uint16_t))
    from_both_ends(std::uint16_t{}, std::uint16_t{});
  else if (bytes == 1)
    *to = *from;
}

}  // namespace tutti::exec
