// The curve as a picture: bus bandwidth on the left, time on the right, both over bytes or, if only
// ranks differ, over ranks. A line for each algorithm, or for each rank count the fastest; the
// bound is dashed.
#include <fmt/format.h>

#include <algorithm>

#include "perf/sweep/svg.h"
#include "tools/simulate/simulate.h"

namespace tutti::tools {
namespace {

using perf::Curve;

bool over_ranks(const SimulatedCurve& curve) {
  bool ranks = false, bytes = false;
  for (const SimulatedRow& row : curve.rows) {
    ranks = ranks || row.ranks != curve.rows[0].ranks;
    bytes = bytes || row.bytes != curve.rows[0].bytes;
  }
  return ranks && !bytes;
}

std::vector<Curve> lines_of(const SimulatedCurve& curve) {
  const bool x_ranks = over_ranks(curve);
  std::vector<Curve> lines;
  Curve bound{"bound", {}, true};
  const auto point = [&](const SimulatedRow& row, double us) {
    return Curve::Point{x_ranks ? static_cast<double>(row.ranks) : static_cast<double>(row.bytes),
                        us, row.bus_bandwidth(curve.collective, us)};
  };
  const auto add = [&](const std::string& name, const Curve::Point& at) {
    for (Curve& line : lines) {
      if (line.name == name) return line.points.push_back(at);
    }
    lines.push_back({name, {at}});
  };
  const bool several = curve.rows.front().ranks != curve.rows.back().ranks;
  for (const SimulatedRow& row : curve.rows) {
    if (several && !x_ranks) {  // A line for each rank count.
      add(fmt::format("{} ranks", row.ranks), point(row, row.fastest().microseconds));
      continue;
    }
    for (const auto& sample : row.samples) {
      if (sample) add(std::string(sample->algorithm->name), point(row, sample->microseconds));
    }
    if (row.bound_us > 0) bound.points.push_back(point(row, row.bound_us));
  }
  // The best first; of more than there are colours the rest is left out.
  std::stable_sort(lines.begin(), lines.end(), [](const Curve& a, const Curve& b) {
    return a.points.back().bus > b.points.back().bus;
  });
  if (lines.size() > perf::kColours.size()) lines.resize(perf::kColours.size());
  if (!bound.points.empty()) lines.push_back(std::move(bound));
  return lines;
}

}  // namespace

std::string to_svg(const SimulatedCurve& curve) {
  return perf::chart(curve.title, lines_of(curve), over_ranks(curve));
}

}  // namespace tutti::tools
