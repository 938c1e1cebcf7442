#include "tutti/wire.h"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr std::string_view kNearest = ":nearest", kStochastic = ":stochastic";

}  // namespace

std::string to_string(const Wire& wire) {
  std::string text(to_string(wire.format));
  if (wire.rounding == Wire(wire.format).rounding) return text;
  return text.append(wire.rounding == Rounding::kNearest ? kNearest : kStochastic);
}

std::optional<Wire> parse_wire(std::string_view text) {
  const auto [name, rounding] = [&] {
    const auto colon = std::min(text.find(':'), text.size());
    return std::pair(text.substr(0, colon), text.substr(colon));
  }();
  constexpr WireFormat kAll[] = {
#define TUTTI_WIRE_FORMAT(enumerator, ...) WireFormat::enumerator,
#include "tutti/wire_formats.def"
#undef TUTTI_WIRE_FORMAT
  };
  for (const WireFormat format : kAll) {
    if (name != to_string(format)) continue;
    if (rounding.empty()) return Wire(format);
    if (format == WireFormat::kPlain) break;
    if (rounding == kNearest) return Wire(format, Rounding::kNearest);
    if (rounding == kStochastic) return Wire(format, Rounding::kStochastic);
  }
  return std::nullopt;
}

double error_bound(const Wire& wire, int rank_count, double largest) {
  double step = 0;  // Between two values of the format, near the largest one of a block.
  switch (wire.format) {
    case WireFormat::kPlain: break;
    case WireFormat::kFloat16: step = 0x1p-10; break;
    case WireFormat::kBfloat16: step = 0x1p-7; break;
    case WireFormat::kInt8: step = 2.0 / 127; break;  // A scale may be nearly twice the need.
    case WireFormat::kFloat8: step = 0x1p-3; break;
  }
  if (wire.rounding == Rounding::kNearest) step /= 2;
  // Each input is off by a step, and the result by another one and by what float32 rounds.
  const double sum = rank_count * largest;
  return sum * step + sum * (1 + step) * (step + rank_count * 0x1p-24);
}

}  // namespace tutti
