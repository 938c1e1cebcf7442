// The same all-reduce in memory of the program's own and in memory that peers of this host can map,
// and what the library says of both.
#include <tutti/typed.h>

#include <chrono>
#include <cstdio>
#include <span>
#include <vector>

namespace {

double microseconds(tutti::Communicator& comm, std::span<float> data) {
  tutti::all_reduce(comm, data, tutti::ReduceOp::kMax).value();  // Warms up.
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) tutti::all_reduce(comm, data, tutti::ReduceOp::kMax).value();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return took.count() / 20;
}

}  // namespace

int main() {
  auto comm = tutti::Communicator::from_environment().value();
  constexpr std::size_t kCount = 1 << 20;

  std::vector<float> plain(kCount, static_cast<float>(comm.rank().value));
  // It is a page's multiple, zeroed, and known to every communicator.
  const std::span<float> shared(
      static_cast<float*>(tutti::mem_alloc(kCount * sizeof(float)).value()), kCount);
  for (float& value : shared) value = static_cast<float>(comm.rank().value);

  const double by_copies = microseconds(comm, plain), in_place = microseconds(comm, shared);
  const float most = static_cast<float>(comm.rank_count() - 1);
  const bool right = plain[kCount - 1] == most && shared[kCount - 1] == most;
  if (comm.rank().value == 0) {
    std::printf("4 MiB: plain %.0f us, shared %.0f us\n", by_copies, in_place);
    std::fputs(comm.explain({.input = shared.data(),
                             .output = shared.data(),
                             .count = kCount,
                             .type = tutti::DataType::kFloat32,
                             .reduction = tutti::ReduceOp::kMax})
                   .value()
                   .c_str(),
               stdout);
  }
  tutti::mem_free(shared.data()).value();
  return right ? 0 : 1;
}
