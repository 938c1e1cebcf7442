// File: perf/peers/tutti_loop.cc: ours in the timing loop of loop.h, through the installed API
// only.
//   tutti run -n 2 --no-prefix -- tutti_loop --sizes 8,1024 --registered 1
// --registered 1 takes buffers from mem_alloc, which peers read and write without a copy;
// --prepared 1 prepares each call once. One-sided calls (put, get, put_signal) know neither: they
// take the memory of a window.
#include <cstdio>
#include <optional>
#include <utility>

#include "loop.h"
#include "perf/sweep/buffer.h"
#include "tutti/communicator.h"
#include "tutti/window.h"

namespace {

int outcome(const tutti::Status& status) {
  if (status) return 0;
  std::fprintf(stderr, "tutti_loop: %s\n", status.error().to_string().c_str());
  return 1;
}

/// What one-sided calls access; see loop.h.
struct OneSided {
  tutti::Window window;
  tutti::Rank next, previous;
  std::size_t output_at;  // The input is at 0.
  bool is_first = true;   // No put_signal has been called yet.
};

struct Ours {
  tutti::Communicator communicator;
  // The call that was prepared last.
  LoopCall last{};
  std::optional<tutti::Prepared> prepared{};
  std::optional<OneSided> one_sided{};
};

tutti::Communicator& communicator_of(void* context) {
  return static_cast<Ours*>(context)->communicator;
}
OneSided& one_sided_of(void* context) { return *static_cast<Ours*>(context)->one_sided; }

tutti::Status put(OneSided& mine, const LoopCall& call) {
  return mine.window.put(call.input, call.count * sizeof(float), mine.next, mine.output_at);
}

tutti::Status put_and_flush(OneSided& mine, const LoopCall& call) {
  TUTTI_RETURN_IF_ERROR(put(mine, call));
  return mine.window.flush(mine.next);
}

tutti::Status get(OneSided& mine, const LoopCall& call) {
  return mine.window.get(call.output, call.count * sizeof(float), mine.next, 0);
}

/// The signal kFree tells the previous rank that this rank's output may be overwritten. A program
/// would send it once it has read the output; the loop reads nothing.
tutti::Status put_and_signal(OneSided& mine, const LoopCall& call) {
  constexpr int kThere = 0, kFree = 1;  // Signals.
  if (!std::exchange(mine.is_first, false))
    TUTTI_RETURN_IF_ERROR(mine.window.wait_signal(mine.next, kFree));
  TUTTI_RETURN_IF_ERROR(put(mine, call));
  TUTTI_RETURN_IF_ERROR(mine.window.signal(mine.next, kThere));
  TUTTI_RETURN_IF_ERROR(mine.window.wait_signal(mine.previous, kThere));
  return mine.window.signal(mine.previous, kFree);
}

/// Memory for both buffers on each rank.
tutti::Status open_window(Ours& ours, const LoopOptions& options) {
  const std::size_t part = loop_window_part(&options);
  const int me = ours.communicator.rank().value, ranks = ours.communicator.rank_count();
  TUTTI_TRY(auto window, tutti::Window::create(ours.communicator, 2 * part));
  ours.one_sided.emplace(OneSided{std::move(window), tutti::Rank{(me + 1) % ranks},
                                  tutti::Rank{(me + ranks - 1) % ranks}, part});
  return tutti::ok();
}

int call(void* context, const LoopCall* call) {
  using tutti::DataType;
  tutti::Communicator& communicator = communicator_of(context);
  const float* const input = call->input;
  float* const output = call->output;
  const std::size_t count = call->count;
  constexpr DataType kType = DataType::kFloat32;
  constexpr tutti::Rank kRoot{0};
  switch (call->collective) {
    case kAllReduce: return outcome(communicator.all_reduce(input, output, count, kType, {}));
    case kReduceScatter:
      return outcome(communicator.reduce_scatter(input, output, count, kType, {}));
    case kAllGather: return outcome(communicator.all_gather(input, output, count, kType));
    case kBroadcast: return outcome(communicator.broadcast(input, output, count, kType, kRoot));
    case kReduce: return outcome(communicator.reduce(input, output, count, kType, {}, kRoot));
    case kGather: return outcome(communicator.gather(input, output, count, kType, kRoot));
    case kScatter: return outcome(communicator.scatter(input, output, count, kType, kRoot));
    case kAllToAll: return outcome(communicator.all_to_all(input, output, count, kType));
    case kScan: return outcome(communicator.scan(input, output, count, kType, {}));
    case kExclusiveScan:
      return outcome(communicator.exclusive_scan(input, output, count, kType, {}));
    case kBarrier: return outcome(communicator.barrier());
    case kPut: return outcome(put_and_flush(one_sided_of(context), *call));
    case kGet: return outcome(get(one_sided_of(context), *call));
    case kPutSignal: return outcome(put_and_signal(one_sided_of(context), *call));
  }
  return 1;
}

int call_prepared(void* context, const LoopCall* call) {
  Ours& ours = *static_cast<Ours*>(context);
  const LoopCall& last = ours.last;
  if (call->collective == kBarrier) return outcome(ours.communicator.barrier());
  if (!ours.prepared || call->input != last.input || call->output != last.output ||
      call->count != last.count || call->collective != last.collective) {
    auto made =
        ours.communicator.prepare({static_cast<tutti::Collective>(call->collective), call->input,
                                   call->output, call->count, tutti::DataType::kFloat32});
    if (!made) return outcome(std::move(made.error()));
    ours.prepared = *std::move(made);
    ours.last = *call;
  }
  return outcome(ours.prepared->run());
}

int barrier(void* context) { return outcome(communicator_of(context).barrier()); }

int share(void* context, double mine, double* of_all) {
  return outcome(communicator_of(context).all_gather(&mine, of_all, 1, tutti::DataType::kFloat64));
}

}  // namespace

int main(int argc, char** argv) {
  LoopOptions options;
  if (const int failure = loop_parse(argc, argv, &options); failure != 0) return failure;
  auto communicator = tutti::Communicator::from_environment();
  if (!communicator) return outcome(std::move(communicator.error()));
  const bool mapped = options.registered != 0;
  const bool one_sided = loop_is_one_sided(options.collective) != 0;
  const std::size_t bytes = one_sided ? 0 : options.largest;
  const tutti::perf::Buffer own_input(bytes, mapped), own_output(bytes, mapped);
  if (own_input.data() == nullptr || own_output.data() == nullptr) {
    std::fputs("tutti_loop: no memory for the buffers\n", stderr);
    return 1;
  }
  std::byte *input = own_input.data(), *output = own_output.data();
  Ours ours{*std::move(communicator)};
  if (one_sided) {
    if (const int failure = outcome(open_window(ours, options)); failure != 0) return failure;
    input = ours.one_sided->window.data();
    output = input + ours.one_sided->output_at;
  }
  const LoopPeer peer{"tutti",
                      ours.communicator.rank().value,
                      ours.communicator.rank_count(),
                      0,
                      &ours,
                      options.prepared != 0 && !one_sided ? call_prepared : call,
                      barrier,
                      share};
  const int failure =
      loop_run(&peer, &options, reinterpret_cast<float*>(input), reinterpret_cast<float*>(output));
  return failure != 0 || !one_sided ? failure : outcome(ours.one_sided->window.close());
}
