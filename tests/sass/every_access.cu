// A kernel with every access that tutti/detail/prim.h has, for mistakes.py: small, so that it
// compiles in half a second.
#include "tutti/detail/prim.h"

namespace tutti::cuda {

__global__ void every_access(std::uint64_t* flags, std::byte* data, std::byte* line) {
  while (load_acquire(flags) == 0 && load_relaxed(flags + 1) == 0) {
  }
  acquire(flags + 1);
  const auto value = load<std::uint64_t>(data);
  store(data + 8, value);
  store_relaxed(flags + 2, exchange(flags + 3, value));
  store_release(flags + 4, add(flags + 5, value));
  std::uint32_t low = 0, high = 0;
  while (!load_packed(line, 1, 1, low, high)) {
  }
  store_packed(line + 16, low, high, 1, 1);
  Vector16 lane = {};
  while (!load_line(line + 32, threadIdx.x % 8 == 7, 1, lane)) {
  }
  store_line(line + 48, lane, threadIdx.x % 8 == 7, 1);
  multimem_store(line + 64, multimem_add<DataType::kFloat32>(line + 80));
}

}  // namespace tutti::cuda
