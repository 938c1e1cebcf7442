#include "tools/status/trace.h"

#include "base/json.h"
#include "exec/flight/trace.h"

namespace tutti::tools {

std::string trace_of(const std::vector<CommStatus>& comms, std::int64_t now_ns) {
  auto all = Json::array();
  const auto add = [&all](exec::flight::Events events) {
    for (auto& event : events) all.push_back(std::move(event));
  };
  for (const CommStatus& comm : comms) {
    exec::flight::Events events;
    for (const auto& [rank, status] : comm.by_rank) {
      for (auto& event : exec::flight::events_of(status.found->track, now_ns, 0))
        events.push_back(std::move(event));
    }
    add(exec::flight::arrows_between(events));
    add(std::move(events));
  }
  return Json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(all)}}.text() + "\n";
}

}  // namespace tutti::tools
