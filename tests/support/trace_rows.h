// File: support/trace_rows.h: the slices of a trace (TUTTI_TRACE), by their rows.
#pragma once
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tutti::test {

struct Slice {
  std::string name;
  double begin_us = 0, end_us = 0;
  bool within(const Slice& outer) const {
    // Times have a nanosecond's digits, as sums of doubles.
    return begin_us >= outer.begin_us - 0.01 && end_us <= outer.end_us + 0.01;
  }
  bool apart(const Slice& other) const {
    return begin_us >= other.end_us - 0.01 || end_us <= other.begin_us + 0.01;
  }
};

/// The slices of a category, by the name of their row.
inline std::map<std::string, std::vector<Slice>> rows_of(const std::string& path,
                                                         const std::string& category) {
  using nlohmann::json;
  const json trace = json::parse(std::ifstream(path));
  std::map<std::pair<int, int>, std::string> rows;
  for (const json& event : trace) {
    if (event["name"] == "thread_name")
      rows[{event["pid"].get<int>(), event["tid"].get<int>()}] =
          event["args"]["name"].get<std::string>();
  }
  std::map<std::string, std::vector<Slice>> slices;
  for (const json& event : trace) {
    if (event["ph"] != "X" || event["cat"] != category) continue;
    const auto begin_us = event["ts"].get<double>();
    slices[rows.at({event["pid"].get<int>(), event["tid"].get<int>()})].push_back(
        {event["name"].get<std::string>(), begin_us, begin_us + event["dur"].get<double>()});
  }
  return slices;
}

/// Those whose names begin so.
inline std::vector<Slice> named(const std::vector<Slice>& slices, const std::string& begin) {
  std::vector<Slice> found;
  for (const Slice& slice : slices) {
    if (slice.name.rfind(begin, 0) == 0) found.push_back(slice);
  }
  return found;
}

}  // namespace tutti::test
