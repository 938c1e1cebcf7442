// File: base/nic_path.h: how near a network device is to a rank. The machine's graph says it
// (topology/probe/nic_paths.h), transports choose by it.
#pragma once
#include <string>

namespace tutti {

struct NicPath {
  int distance = 0;   // Less is nearer; 0 for all of a rank's: not known.
  std::string words;  // "PIX from GPU 0000:19:00.0 (...)"; empty: not known.
  friend bool operator==(const NicPath&, const NicPath&) = default;
};

}  // namespace tutti
