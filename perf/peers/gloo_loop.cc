// File: perf/peers/gloo_loop.cc: Gloo in the timing loop of loop.h: what PyTorch runs on CPUs. TCP
// over loopback (Gloo has no shared memory), the algorithm that gloo::allreduce chooses, which is
// its ring.
//   gloo_loop --ranks 2 --sizes 8,65536
// Starts its ranks itself, as processes; they meet in a temporary folder.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "loop.h"

namespace {

using Context = std::shared_ptr<gloo::rendezvous::Context>;

template <class Call>
int outcome(Call call) noexcept {
  try {
    call();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo_loop: %s\n", error.what());
    return 1;
  }
}

int all_reduce(void* context, const float* input, float* output, std::size_t count) {
  return outcome([&] {
    gloo::AllreduceOptions options(*static_cast<Context*>(context));
    options.setInput(const_cast<float*>(input), count);  // Gloo has no input that it can't write.
    options.setOutput(output, count);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  });
}

int barrier(void* context) {
  return outcome([&] {
    gloo::BarrierOptions options(*static_cast<Context*>(context));
    gloo::barrier(options);
  });
}

int broadcast(void* context, std::uint64_t* values, std::size_t count) {
  return outcome([&] {
    gloo::BroadcastOptions options(*static_cast<Context*>(context));
    options.setRoot(0);
    options.setOutput(values, count);
    gloo::broadcast(options);
  });
}

int run_rank(int rank, const LoopOptions& options, const std::string& folder) {
  int exit_code = 0;
  const int failure = outcome([&] {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, options.ranks);
    context->connectFullMesh(store, device);
    std::vector<float> input(options.largest / sizeof(float)), output(input.size());
    const LoopPeer peer{"gloo", rank, options.ranks, 0, &context, all_reduce, barrier, broadcast};
    exit_code = loop_run(&peer, &options, input.data(), output.data());
  });
  return failure != 0 ? failure : exit_code;
}

/// Waits for all ranks; the exit code of the first that failed. Ranks that lose a peer fail too.
int wait_for_all(const std::vector<pid_t>& ranks) {
  int exit_code = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    int status = 0;
    if (::wait(&status) < 0) return 1;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (exit_code == 0) exit_code = code;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  LoopOptions options;
  if (const int failure = loop_parse(argc, argv, &options); failure != 0) return failure;
  if (options.ranks == 0) options.ranks = 2;
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
