// The last rank dies in the middle of a job. The others get an error that names it, make a
// communicator of those left, and go on from the last call that all of them have completed.
//
//   tutti run -n 4 --elastic -- build/errors
#include <tutti/typed.h>

#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <optional>
#include <utility>

int main() {
  auto comm = tutti::Communicator::from_environment().value();
  const int ranks = comm.rank_count(), me = comm.rank().value;
  int sum[] = {0};
  for (int step = 0; step < 100; ++step) {
    if (step == 50 && me == ranks - 1 && ranks > 1) std::raise(SIGKILL);
    sum[0] = 1;
    const tutti::Status status = tutti::all_reduce(comm, sum, tutti::ReduceOp::kSum);
    if (status) continue;
    const tutti::Error& error = status.error();
    std::printf("rank %d, step %d: %s: rank %d is to blame\n", me, step,
                std::string(to_string(error.code)).c_str(), error.peer.value);
    auto shrunk = comm.shrink().value();
    // Calls that only some ranks completed are made again.
    step = static_cast<int>(shrunk.completed) - 1;
    comm = std::move(shrunk.communicator);
  }
  std::printf("rank %d: %d ranks have finished\n", me, comm.rank_count());
  return sum[0] == comm.rank_count() ? 0 : 1;
}
