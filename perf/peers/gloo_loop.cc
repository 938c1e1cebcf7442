// File: perf/peers/gloo_loop.cc: Gloo in the timing loop of loop.h: what PyTorch runs on CPUs. TCP
// over loopback (Gloo has no shared memory), the algorithms that Gloo chooses; an all-reduce is its
// ring. Its reduce-scatter has no such function and is left out.
//   gloo_loop --ranks 2 --sizes 8,65536
// Starts its ranks itself, as processes; they meet in a temporary folder. Or it is one of them:
//   gloo_loop --ranks 2 --rank 0 --meet FOLDER --interface eth0
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include "exit_code.h"
#include "loop.h"

namespace {

constexpr char kProgram[] = "gloo_loop";

using Context = std::shared_ptr<gloo::rendezvous::Context>;

/// The options that all of Gloo's calls share.
template <class Options>
Options with_buffers(const Context& context, const LoopCall& call, bool input, bool output) {
  Options options(context);
  const auto blocks = static_cast<std::size_t>(context->size);
  const bool input_each = call.collective == kAllToAll;
  const bool output_each = call.collective != kAllReduce && call.collective != kReduce;
  // Gloo has no input that it can't write.
  if (input) {
    options.setInput(const_cast<float*>(call.input), call.count * (input_each ? blocks : 1));
  }
  if (output) options.setOutput(call.output, call.count * (output_each ? blocks : 1));
  return options;
}

void broadcast(const Context& context, const LoopCall& call) {
  gloo::BroadcastOptions options(context);
  options.setRoot(0);
  options.setOutput(call.output, call.count);
  gloo::broadcast(options);
}

void scatter(const Context& context, const LoopCall& call) {
  gloo::ScatterOptions options(context);
  std::vector<float*> blocks;
  for (int rank = 0; rank < context->size; ++rank) {
    blocks.push_back(const_cast<float*>(call.input) + static_cast<std::size_t>(rank) * call.count);
  }
  options.setRoot(0);
  if (context->rank == 0) options.setInputs(blocks, call.count);
  options.setOutput(call.output, call.count);
  gloo::scatter(options);
}

void barrier(const Context& context) {
  gloo::BarrierOptions options(context);
  gloo::barrier(options);
}

constexpr auto kSum =
    static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>);

int call_unguarded(const Context& context, const LoopCall& call) {
  const bool root = context->rank == 0;
  if (call.collective == kAllReduce) {
    auto options = with_buffers<gloo::AllreduceOptions>(context, call, true, true);
    options.setReduceFunction(kSum);
    gloo::allreduce(options);
  } else if (call.collective == kReduce) {
    auto options = with_buffers<gloo::ReduceOptions>(context, call, true, true);
    options.setReduceFunction(kSum);
    options.setRoot(0);
    gloo::reduce(options);
  } else if (call.collective == kGather) {
    auto options = with_buffers<gloo::GatherOptions>(context, call, true, root);
    options.setRoot(0);
    gloo::gather(options);
  } else if (call.collective == kAllGather) {
    auto options = with_buffers<gloo::AllgatherOptions>(context, call, true, true);
    gloo::allgather(options);
  } else if (call.collective == kAllToAll) {
    auto options = with_buffers<gloo::AlltoallOptions>(context, call, true, true);
    gloo::alltoall(options);
  } else if (call.collective == kBroadcast) {
    broadcast(context, call);
  } else if (call.collective == kScatter) {
    scatter(context, call);
  } else if (call.collective == kBarrier) {
    barrier(context);
  } else {
    return loop_not_there("gloo", call.collective);
  }
  return 0;
}

int call(void* context, const LoopCall* call) {
  return exit_code_of(kProgram,
                      [&] { return call_unguarded(*static_cast<Context*>(context), *call); });
}

int wait_for_each_other(void* context) {
  return exit_code_of(kProgram, [&] {
    barrier(*static_cast<Context*>(context));
    return 0;
  });
}

int share(void* context, double mine, double* of_all) {
  return exit_code_of(kProgram, [&] {
    const Context& all = *static_cast<Context*>(context);
    gloo::AllgatherOptions options(all);
    options.setInput(&mine, 1);
    options.setOutput(of_all, static_cast<std::size_t>(all->size));
    gloo::allgather(options);
    return 0;
  });
}

int run_rank(int rank, const LoopOptions& options, const std::string& folder) {
  return exit_code_of(kProgram, [&] {
    gloo::transport::tcp::attr attributes;
    if (options.interface != nullptr)
      attributes.iface = options.interface;
    else
      attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, options.ranks);
    context->connectFullMesh(store, device);
    std::vector<float> input(options.largest / sizeof(float)), output(input.size());
    const LoopPeer peer{"gloo", rank, options.ranks, 0, &context, call, wait_for_each_other, share};
    return loop_run(&peer, &options, input.data(), output.data());
  });
}

/// Waits for all ranks; the exit code of one that failed. Ranks that lose a peer fail too, by 1,
/// and may end before the rank that says what is wrong.
int wait_for_all(const std::vector<pid_t>& ranks) {
  int exit_code = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    int status = 0;
    if (::wait(&status) < 0) return 1;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (exit_code <= 1 && code != 0) exit_code = code;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  LoopOptions options;
  if (const int failure = loop_parse(argc, argv, &options); failure != 0) return failure;
  if (options.ranks == 0) options.ranks = 2;
  if (options.rank >= 0 && options.meet != nullptr)
    return run_rank(options.rank, options, options.meet);
  std::string folder = (std::filesystem::temp_directory_path() / "gloo_loop.XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    std::perror(folder.c_str());
    return 1;
  }
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) std::_Exit(run_rank(rank, options, folder));
    if (child < 0) {
      std::perror("fork");
      for (const pid_t started : ranks) ::kill(started, SIGKILL);
      break;
    }
    ranks.push_back(child);
  }
  const bool complete = static_cast<int>(ranks.size()) == options.ranks;
  const int exit_code = wait_for_all(ranks);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return complete ? exit_code : 1;
}
