// File: perf/peers/tutti_loop.cc: ours in the timing loop of loop.h, through the installed API
// only.
//   tutti run -n 2 --no-prefix -- tutti_loop --sizes 8,1024 --registered 1
// --registered 1 takes buffers from mem_alloc, which peers read and write without a copy;
// --prepared 1 prepares each call once.
#include <cstdio>
#include <optional>

#include "loop.h"
#include "perf/sweep/buffer.h"
#include "tutti/communicator.h"

namespace {

int outcome(const tutti::Status& status) {
  if (status) return 0;
  std::fprintf(stderr, "tutti_loop: %s\n", status.error().to_string().c_str());
  return 1;
}

struct Ours {
  tutti::Communicator communicator;
  // The call that was prepared last.
  LoopCall last{};
  std::optional<tutti::Prepared> prepared{};
};

tutti::Communicator& communicator_of(void* context) {
  return static_cast<Ours*>(context)->communicator;
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
  const tutti::perf::Buffer input(options.largest, mapped), output(options.largest, mapped);
  if (input.data() == nullptr || output.data() == nullptr) {
    std::fputs("tutti_loop: no memory for the buffers\n", stderr);
    return 1;
  }
  Ours ours{*std::move(communicator)};
  const LoopPeer peer{"tutti",
                      ours.communicator.rank().value,
                      ours.communicator.rank_count(),
                      0,
                      &ours,
                      options.prepared != 0 ? call_prepared : call,
                      barrier,
                      share};
  return loop_run(&peer, &options, reinterpret_cast<float*>(input.data()),
                  reinterpret_cast<float*>(output.data()));
}
