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

std::string wire_names() {
  std::string names;
#define TUTTI_WIRE_FORMAT(enumerator, text, ...) \
  names.append(names.empty() ? "" : ", ").append(text);
#include "tutti/wire_formats.def"
#undef TUTTI_WIRE_FORMAT
  return names + "; with :nearest or :stochastic behind it for its rounding";
}

}  // namespace tutti
