#include "simt/residency.h"

#include <algorithm>

namespace tutti::simt {
namespace {

constexpr int kRegisters = 64 << 10;  // A multiprocessor has so many, of every capability.
constexpr int kWarpLanes = 32;

struct Capability {
  int sm, blocks, threads;
  std::size_t shared_kib;
};
// The last one that is not newer counts.
constexpr Capability kCapabilities[] = {
    {70, 32, 2048, 96},  {75, 16, 1024, 64},  {80, 32, 2048, 164},  {86, 16, 1536, 100},
    {89, 24, 1536, 100}, {90, 32, 2048, 228}, {120, 24, 1536, 100},
};

int round_up(int number, int to) { return (number + to - 1) / to * to; }

std::string limits_of(const Launch& launch) {
  const Resources& has = launch.multiprocessor;
  const Resources& block = launch.block_takes;
  return std::to_string(block.threads) + " of " + std::to_string(has.threads) + " threads, " +
         std::to_string(block.registers) + " of " + std::to_string(has.registers) + " registers, " +
         std::to_string(block.shared_bytes) + " of " + std::to_string(has.shared_bytes) +
         " bytes of shared memory";
}

}  // namespace

Resources resources_of_multiprocessor(int sm) {
  Capability found = kCapabilities[0];
  for (const Capability& one : kCapabilities) {
    if (one.sm <= sm) found = one;
  }
  return {found.blocks, found.threads, kRegisters, found.shared_kib << 10};
}

int registers_by_bound(int most_threads) {
  constexpr int kMost = 255, kUnit = 8;
  return std::min(kMost, kRegisters / round_up(most_threads, kWarpLanes) / kUnit * kUnit);
}

Resources resources_of_block(const Kernel& kernel, unsigned threads, std::size_t shared_bytes,
                             int sm) {
  constexpr int kUnit = 256;  // Registers are given to warps, so many at a time.
  const int warps = round_up(static_cast<int>(threads), kWarpLanes) / kWarpLanes;
  const std::size_t reserved = sm >= 80 ? 1024 : 0;  // By the system, for each block.
  return {1, warps * kWarpLanes, warps * round_up(kernel.registers * kWarpLanes, kUnit),
          kernel.shared_bytes + shared_bytes + reserved};
}

int blocks_that_fit(const Resources& has, const Resources& block) {
  int fit = std::min({has.blocks, has.threads / block.threads, has.registers / block.registers});
  if (block.shared_bytes > 0)
    fit = std::min(fit, static_cast<int>(has.shared_bytes / block.shared_bytes));
  return fit;
}

std::size_t Multiprocessors::find(const Launch& launch) {
  const auto n = static_cast<std::size_t>(settings().multiprocessors);
  if (taken_.size() < n) taken_.resize(n);
  std::size_t best = taken_.size();
  for (std::size_t i = 0; i < n; ++i) {
    const Resources &has = launch.multiprocessor, &taken = taken_[i];
    const Resources left = {has.blocks - taken.blocks, has.threads - taken.threads,
                            has.registers - taken.registers, has.shared_bytes - taken.shared_bytes};
    if (blocks_that_fit(left, launch.block_takes) < 1) continue;
    if (best == taken_.size() || taken.blocks < taken_[best].blocks) best = i;
  }
  return best;
}

std::size_t Multiprocessors::enter(const Launch& launch, unsigned number) {
  std::unique_lock lock(mutex_);
  std::size_t where = find(launch);
  if (where == taken_.size()) {
    const unsigned blocks = launch.grid.x * launch.grid.y * launch.grid.z;
    const Waiting waiting(
        "kernel " + std::string(launch.kernel->name) + ": " + std::to_string(blocks - number) +
        " of its " + std::to_string(blocks) + " blocks wait until others end: device " +
        std::to_string(launch.device) + " runs " +
        std::to_string(blocks_that_fit(launch.multiprocessor, launch.block_takes)) +
        " at a time on each of " + std::to_string(settings().multiprocessors) +
        " multiprocessors; a block takes " + limits_of(launch));
    changed_.wait(lock, [&] { return (where = find(launch)) != taken_.size(); });
  }
  Resources& taken = taken_[where];
  taken.blocks += 1;
  taken.threads += launch.block_takes.threads;
  taken.registers += launch.block_takes.registers;
  taken.shared_bytes += launch.block_takes.shared_bytes;
  return where;
}

void Multiprocessors::leave(std::size_t where, const Resources& block) {
  {
    const std::lock_guard lock(mutex_);
    Resources& taken = taken_[where];
    taken.blocks -= 1;
    taken.threads -= block.threads;
    taken.registers -= block.registers;
    taken.shared_bytes -= block.shared_bytes;
  }
  changed_.notify_all();
}

}  // namespace tutti::simt
