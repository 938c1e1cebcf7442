// File: bootstrap/hash.h: the one hash that ranks derive names, ports and secrets with.
#pragma once
#include <cstdint>
#include <string_view>

namespace tutti::bootstrap {

/// 64 bits of a text (FNV-1a), the same on every machine. Keeps things apart; hides nothing.
constexpr std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace tutti::bootstrap
