// File: exec/flight/place.h: where the flight record of a process lies: in memory that goes with
// the process, or in a file that a killed process leaves behind.
#pragma once
#include <cstddef>
#include <string>

#include "base/fd.h"

namespace tutti::exec::flight {

/// An open descriptor of a record, and the name of its file; empty: it is a memfd.
struct Place {
  Fd fd;
  std::string path;

  /// A new one: a file in `folder`, whose name has the host's, or, if that is empty or can't have
  /// one (the log says why), a memfd. Without a descriptor if the system refuses that as well.
  static Place make(const std::string& folder, const std::string& host);
  /// Whether the bytes are there to be written. On a full disk a store would be a signal.
  bool hold(std::size_t offset, std::size_t bytes) const;
  /// Removes the file, if it is one; what is mapped stays.
  void remove();
};

}  // namespace tutti::exec::flight
