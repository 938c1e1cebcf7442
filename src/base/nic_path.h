// File: base/nic_path.h: how near a network device is to a rank, and which ones it uses. The
// machine's graph says the former (topology/probe/nic_paths.h), transports choose by it.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace tutti {

struct NicPath {
  int distance = 0;   // Less is nearer; 0 for all of a rank's: not known.
  std::string words;  // "PIX from GPU 0000:19:00.0 (...)"; empty: not known.
  friend bool operator==(const NicPath&, const NicPath&) = default;
};

/// The devices that a network goes by.
struct NicsUsed {
  std::vector<std::string> names;  // "mlx5_0:1"; empty: there is nothing to say.
  std::size_t own = 0;             // By which short messages go; long ones by all.
  std::string why;                 // How near that is: NicPath::words.
};

/// In lines for people.
inline std::string to_lines(const NicsUsed& nics) {
  if (nics.names.empty()) return "";
  std::string text = "short messages by " + nics.names[nics.own];
  if (!nics.why.empty()) text += ", " + nics.why;
  if (nics.names.size() > 1) text += "\nlong messages by " + nics.names[0];
  for (std::size_t i = 1; i < nics.names.size(); ++i) text += ", " + nics.names[i];
  return text + "\n";
}

}  // namespace tutti
