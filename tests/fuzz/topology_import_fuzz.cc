// Any bytes as a file whose form nobody has named: which reader takes it, what is said of files of
// NCCL that are no topology (its graphs, its logs), and what all that follows makes of the graph.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "topology/checks/check.h"
#include "topology/readers/reader.h"
#include "topology/render/render.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::topology;
  const auto imported = import({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!imported) {
    if (imported.error().what.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  if (imported->graph.nodes.size() > 200) return 0;  // As slow as it is large.
  for (const Finding& finding : check(imported->graph, {.known = imported->findings})) {
    if (finding.what.empty()) std::abort();
  }
  if (!to_svg(imported->graph).starts_with("<svg")) std::abort();
  if (!import(to_json(imported->graph), "again.json")) std::abort();
  return 0;
}
