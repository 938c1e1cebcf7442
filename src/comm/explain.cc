// Which way a call would go, and why: for people.
#include <algorithm>

#include <fmt/format.h>

#include "comm/state.h"
#include "planner/explain.h"
#include "transport/local/segments.h"

namespace tutti {

namespace {

Result<std::string> explain_call(const Communicator::State& state, const Request& request) {
  Request asked = request;
  std::byte anything{};  // Buffers may be left out; nothing is read or written.
  if (asked.input == nullptr) asked.input = &anything;
  if (asked.output == nullptr) asked.output = &anything;
  TUTTI_TRY(const exec::Call call, state.make_call(asked));
  TUTTI_RETURN_IF_ERROR(state.check(call));
  const auto segments = segments::snapshot();
  const auto mapped = [&](const void* data) {
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    return std::any_of(segments.begin(), segments.end(), [at](const segments::Segment& segment) {
      return segment.begin <= at && at < segment.end;
    });
  };
  const bool all_mapped = planner::some_share_memory(state.selector->inputs().hosts.of) &&
                          mapped(request.input) && mapped(request.output);
  // Whether the root is in place is known of buffers that are given only.
  const exec::PeerBuffers& buffers = state.executor->buffers();
  const bool root_idles = request.input != nullptr && request.output != nullptr &&
                          buffers.may_share(call) &&
                          exec::root_in_place(call, reinterpret_cast<std::uintptr_t>(call.input),
                                              reinterpret_cast<std::uintptr_t>(call.output));
  const exec::Access access = exec::access_of(all_mapped, buffers.may_read(call), root_idles);
  planner::Request wanted = state.selector->request_for(call, access);
  wanted.algorithm_override = request.algorithm;
  TUTTI_TRY(const auto found, planner::explain(wanted, state.selector->inputs()));
  std::string written;
  if (const plan::Plan* const own = state.selector->written_for(call, wanted))
    written = fmt::format("Taken: {}, a plan of TUTTI_PLAN. Without it:\n\n", own->name);
  return written +
         planner::to_text(
             found, wanted,
             fmt::format(
                 "{} of {} bytes ({} x {}{}) between {} ranks over {}, {} buffers, contract {}",
                 to_string(call.collective), wanted.bytes, call.count, to_string(call.type),
                 call.wire.is_plain() ? "" : " as " + to_string(call.wire), state.rank_count,
                 state.transport, all_mapped ? "mapped" : "plain",
                 wanted.contract == Contract::kRelaxed ? "relaxed" : "deterministic"));
}

}  // namespace

Result<std::string> Communicator::explain(const Request& request) const {
  return walled("explain", [&]() -> Result<std::string> {
    TUTTI_RETURN_IF_ERROR(usable("explain"));
    return explain_call(*state_, request);
  });
}

}  // namespace tutti
