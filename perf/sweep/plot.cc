// The sweep as a picture: time and bus bandwidth over size.
#include <fmt/format.h>

#include "base/output.h"
#include "perf/sweep/report.h"
#include "perf/sweep/svg.h"

namespace tutti::perf {

Status write_plot(const std::string& path, const Options& options, int ranks,
                  const std::vector<Line>& lines) {
  Curve apart{"out of place", {}}, in_place{"in place", {}}, bound{"bound", {}, true};
  const auto add = [](Curve& curve, const Line& line, double us, double busbw) {
    // Neither has a logarithm without bytes or time.
    if (line.bytes > 0 && us > 0)
      curve.points.push_back({static_cast<double>(line.bytes), us, busbw});
  };
  for (const Line& line : lines) {
    // One picture has the first type, operation and root of the sweep.
    const Shape &shape = line.shape, &first = lines.front().shape;
    if (shape.type != first.type || shape.op != first.op || shape.root != first.root) continue;
    const Timing& timing = line.out_of_place;
    add(apart, line, timing.us, timing.busbw);
    add(in_place, line, line.in_place.us, line.in_place.busbw);
    if (line.bound_us > 0)
      add(bound, line, line.bound_us, timing.busbw * timing.us / line.bound_us);
  }
  if (lines.empty()) return Error{Code::kInvalidArgument, "--plot: the sweep has no lines"};
  const std::string title =
      fmt::format("{}, {} ranks, {}{}", to_string(options.collective), ranks,
                  type_name(lines.front().shape.type),
                  options.registered ? ", buffers that peers can map" : ", plain buffers");
  std::vector<Curve> curves{std::move(apart), std::move(in_place)};
  if (!bound.points.empty()) curves.push_back(std::move(bound));
  return write_text(path, chart(title, curves, false));
}

}  // namespace tutti::perf
