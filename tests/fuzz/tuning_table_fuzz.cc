// Any bytes: reading gives tables or one line, tables give a text that reads as the same tables,
// and whatever is in a table, there is a choice.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "planner/select.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti;
  using namespace tutti::planner;
  const auto tables = parse_tuning({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!tables) {
    require(tables.error().what.find('\n') == std::string::npos, "an error of several lines");
    return 0;
  }
  const auto again = parse_tuning(tuning_text(*tables), "fuzz");
  require(again && *again == *tables, "another table after writing and reading");
  for (const TuningTable& table : *tables) {
    PlannerInputs inputs;
    inputs.table = &table;
    for (int i = 0; i < kCollectiveCount; ++i) {
      Request request;
      request.shape = {static_cast<Collective>(i), 3, 0};
      request.bytes = 5000;
      require(bool(choose(request, inputs)), "no choice");
      const auto limit = eager_limit_bytes(request, inputs);
      require(limit && *limit <= inputs.packet_bytes, "packets beyond their size");
    }
  }
  return 0;
}
