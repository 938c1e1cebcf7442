#include "tools/topo/kernel_shape_text.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/json.h"
#include "planner/kernel_shape.h"
#include "tools/topo/topo.h"

namespace tutti::tools {
namespace {

/// What a figure stands on.
enum class Evidence { kMeasured, kPredicted, kRequired, kAssumed };

struct Figure {
  std::string_view name;
  std::size_t value = 0;
  std::string_view unit;
  Evidence kind;
  std::string_view what, evidence;
};

constexpr Figure kFigures[] = {
#define TUTTI_KERNEL_FIGURE(type, name, value, unit, kind, what, evidence) \
  {#name, planner::kKernelShape.name, unit, Evidence::kind, what, evidence},
#include "planner/kernel_shape.def"
#undef TUTTI_KERNEL_FIGURE
};

#define TUTTI_KERNEL_FIGURE(type, name, value, unit, kind, what, evidence)              \
  static_assert(!std::string_view(what).empty() && !std::string_view(evidence).empty(), \
                #name " has no evidence");
#include "planner/kernel_shape.def"
#undef TUTTI_KERNEL_FIGURE

std::string_view to_string(Evidence kind) {
  switch (kind) {
    case Evidence::kMeasured: return "measured";
    case Evidence::kPredicted: return "predicted";
    case Evidence::kRequired: return "required";
    case Evidence::kAssumed: return "assumed";
  }
  return "";
}

}  // namespace

void print_kernel_shape(bool json) {
  auto rows = Json::array();
  for (const Figure& one : kFigures) {
    const std::string_view kind = to_string(one.kind);
    rows.push_back({{"name", one.name},
                    {"value", one.value},
                    {"unit", one.unit},
                    {"what", one.what},
                    {"kind", kind},
                    {"evidence", one.evidence}});
    if (json) continue;
    say("{}", wrapped(fmt::format("{} = {} {}{}{}", one.name, one.value, one.unit,
                                  one.unit.empty() ? "" : " ", one.what),
                      4));
    say("{}", wrapped(fmt::format("    {}: {}", kind, one.evidence), 4));
  }
  if (json) say("{}\n", rows.text({.indent = 2}));
}

}  // namespace tutti::tools
