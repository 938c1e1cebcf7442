// A rank of devices, met as its launcher says: every collective, messages, and a part of all, bit
// for bit; for tests that start it on several hosts (netns/devices_test.sh). Prints a line and ends
// with 1 if something is wrong.
#include <cstdio>
#include <random>

#include "simt/communicator/device_communicators.h"
#include "support/kinds.h"

namespace {

using tutti::test::Case;
using tutti::test::DeviceCase;

std::string run(tutti::DeviceCommunicator& comm, cudaStream_t stream, std::uint64_t seed) {
  std::mt19937_64 random(seed);  // The same on all ranks.
  for (int i = 0; i < tutti::kCollectiveCount; ++i) {
    for (const std::size_t count : {7, 30000}) {
      Case test;
      test.collective = static_cast<tutti::Collective>(i);
      test.ranks = comm.rank_count();
      test.type = tutti::test::any_type(random);
      test.op = static_cast<tutti::ReduceOp>(random() % 6);
      test.count = count;
      test.root = static_cast<int>(random() % static_cast<unsigned>(test.ranks));
      const DeviceCase one(test, static_cast<std::size_t>(comm.rank().value), comm.device(),
                           random());
      std::string error = one.start(comm, stream);
      if (error.empty()) error = one.finish(comm, stream);
      if (!error.empty()) return error;
    }
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seed = argc > 1 ? std::stoull(argv[1]) : 1;
  auto comm = tutti::DeviceCommunicator::from_environment();
  std::string error = comm ? "" : comm.error().to_string();
  if (error.empty()) {
    const cudaStream_t stream = tutti::test::new_stream(comm->device());
    error = run(*comm, stream, seed);
    if (error.empty()) {
      auto part = comm->split(comm->rank().value % 2, 0);  // One of each host, or so.
      error = part ? run(*part, stream, seed + 1) : part.error().to_string();
    }
    if (comm->rank().value == 0) std::printf("%s", comm->describe().c_str());
  }
  if (error.empty()) return 0;
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), error.c_str());
  return 1;
}
