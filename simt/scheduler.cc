// File: simt/scheduler.cc: runs the threads of a block, the blocks of a kernel, and the kernels of
// a device.
#include <unistd.h>

#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "simt/block.h"
#include "simt/residency.h"
#include "simt/time_slices.h"

// CUDA's built-in variables (language.h). Real variables: a structure of the runtime has members of
// the same names, so macros won't do.
__thread uint3 threadIdx, blockIdx;
__thread dim3 blockDim, gridDim;

namespace tutti::simt {

__thread ThreadContext* current;
__thread Block* current_block;

void make_ready(Fiber* fiber) {
  Block* block = fiber->block;
  fiber->state = Fiber::State::kReady;
  block->ready[(block->ready_first + block->ready_count++) % block->ready.size()] = fiber;
}

void make_ready(FiberList& list) {
  for (Fiber *fiber = list.first, *next = nullptr; fiber != nullptr; fiber = next) {
    next = fiber->next;
    make_ready(fiber);
  }
  list = {};
}

namespace {
/// Leaves the running fiber, and keeps where it is for a report.
void leave(const char* doing, const volatile void* what, void* caller) {
  Fiber* fiber = current_block->running;
  fiber->doing = doing;
  fiber->what = what;
  fiber->caller = caller;
  switch_to_scheduler(false);
}
}  // namespace

void block_on(const char* doing, const void* what, void* caller) {
  current_block->running->state = Fiber::State::kBlocked;
  leave(doing, what, caller);
}

bool coin() {
  return current_block != nullptr && settings().seed != 0 && current_block->random.below(2) == 1;
}

void note_progress() {
  if (current_block == nullptr) return;
  current_block->idle_polls = 0;
  current_block->pauses = 0;
}

void yield_point() {
  Block* block = current_block;
  if (block == nullptr || settings().preempt_one_in == 0) return;
  if (block->random.below(settings().preempt_one_in) != 0) return;
  make_ready(block->running);
  leave("preempted", nullptr, __builtin_return_address(0));
}

void late_point() {
  Block* block = current_block;
  if (block == nullptr || settings().preempt_one_in == 0) return;
  // So seldom that it costs little, so long that a block on the same processor gets its turn.
  if (block->random.below(512) == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void poll_point(const volatile void* what) {
  Block* block = current_block;
  if (block == nullptr) {
    std::this_thread::yield();
    return;
  }
  ++block->idle_polls;
  make_ready(block->running);
  leave("polling", what, __builtin_return_address(0));
}

namespace {

Fiber* next_fiber(Block& block) {
  if (block.ready_count == 0) return nullptr;
  const std::size_t places = block.ready.size();
  Fiber*& first = block.ready[block.ready_first];
  if (settings().seed != 0) {
    const auto chosen = block.random.below(static_cast<unsigned>(block.ready_count));
    std::swap(first, block.ready[(block.ready_first + chosen) % places]);
  }
  Fiber* fiber = first;
  block.ready_first = (block.ready_first + 1) % places;
  --block.ready_count;
  return fiber;
}

/// Every thread of the block that could run is polling: let other blocks run.
void pause(Block& block) {
  block.idle_polls = 0;
  if (++block.pauses < 64) {
    std::this_thread::yield();
  } else {
    usleep(block.pauses < 1024 ? 20 : 200);
  }
  if (block.pauses % 256 != 0) return;
  if (block.pauses == 256) {
    block.last_progress_s = now_s();
  } else if (now_s() - block.last_progress_s > settings().timeout_s) {
    die("no progress for %.0f s: a kernel waits for what never comes", settings().timeout_s);
  }
}

void fiber_main() {
  fiber_entered();
  const Launch& launch = *current_block->launch;
  launch.kernel->invoke(launch.kernel->function, launch.packed_arguments);
  current_block->running->state = Fiber::State::kDone;
  note_progress();
  switch_to_scheduler(true);
  __builtin_unreachable();
}

uint3 coordinates(unsigned flat, dim3 size) {
  return {flat % size.x, flat / size.x % size.y, flat / (size.x * size.y)};
}

void set_up(Block& block) {
  const Launch& launch = *block.launch;
  const unsigned n = launch.block.x * launch.block.y * launch.block.z;
  const std::uint64_t device = static_cast<unsigned>(launch.device);
  block.random.state =
      mixed(settings().seed * 1000003 + (device << 40) + launch.number * 7919 + block.index);
  block.shared.assign(launch.shared_bytes + 128, static_cast<char>(0xAB));  // Not zero on a GPU.
  block.fibers.resize(n);
  block.ready.resize(n);
  block.warps.resize((n + 31) / 32);
  block.alive = static_cast<int>(n);
  TUTTI_SIMT_IF_TSAN(block.scheduler_tsan = __tsan_get_current_fiber());
  const auto shared = (reinterpret_cast<std::uintptr_t>(block.shared.data()) + 127) & ~127ul;
  for (unsigned i = 0; i < n; ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.block = &block;
    fiber.context = {coordinates(i, launch.block),   i, i % 32, i / 32, launch.device,
                     reinterpret_cast<void*>(shared)};
    prepare(fiber, fiber_main);
    make_ready(&fiber);
  }
}

void tear_down(Block& block) {
  for (Fiber& fiber : block.fibers) {
    give_stack(fiber.stack);
    TUTTI_SIMT_IF_TSAN(for (void* clock
                            : {fiber.tsan, fiber.tsan_released, fiber.tsan_acquired}) {
      if (clock != nullptr) __tsan_destroy_fiber(clock);
    });
  }
}

/// A thread has returned: those that wait for the whole block wait for one less.
void thread_left(Block& block) {
  --block.alive;
  for (Barrier& barrier : block.barriers) {
    if (barrier.arrived == 0 || !barrier.whole_block) continue;
    if (settings().check) {
      die("a thread returned while %d others wait for the whole block", barrier.arrived);
    }
    barrier.expected = block.alive;
    if (barrier.arrived >= barrier.expected) complete(barrier);
  }
}

void run_block(Block& block) {
  current_block = &block;
  blockDim = block.launch->block;
  gridDim = block.launch->grid;
  blockIdx = coordinates(block.index, gridDim);
  set_up(block);
  block_begins(&block);
  while (block.alive > 0) {
    Fiber* fiber = next_fiber(block);
    if (fiber == nullptr) {
      die("deadlock: all threads of a block wait at barriers or in collectives of a warp");
    }
    block.running = fiber;
    current = &fiber->context;
    threadIdx = fiber->context.index;
    {
      const TimeSlices::Running running(block.slices);
      switch_to(*fiber);
    }
    if (fiber->state == Fiber::State::kDone) thread_left(block);
    if (block.idle_polls > 2 * block.ready_count + 2) pause(block);
  }
  block_ends(&block);
  tear_down(block);
  current_block = nullptr;
  current = nullptr;
}

/// The threads of a kernel's blocks. A grid may have many more blocks than there can be threads, so
/// those that have ended are joined while others start.
class RunningBlocks {
 public:
  template <class Body>
  void start(Body body) {
    const auto at = threads_.emplace(threads_.end());
    *at = std::thread([this, at, body] {
      body();
      const std::lock_guard lock(mutex_);
      ended_.push_back(at);
    });
  }
  void join_ended() {
    std::vector<Threads::iterator> ended;
    {
      const std::lock_guard lock(mutex_);
      ended.swap(ended_);
    }
    for (const auto at : ended) {
      at->join();
      threads_.erase(at);
    }
  }
  ~RunningBlocks() {
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  using Threads = std::list<std::thread>;
  Threads threads_;  // The launching thread's.
  std::mutex mutex_;
  std::vector<Threads::iterator> ended_;  // Guarded by mutex_.
};

std::mutex kernels_mutex;
std::map<const void*, Kernel>& kernels() {
  static std::map<const void*, Kernel> map;
  return map;
}

}  // namespace

void run(const Launch& launch) {
  static Multiprocessors devices[64];
  Multiprocessors& device = devices[launch.device];
  TimeSlices* const slices = TimeSlices::of(launch.device);
  const TimeSlices::Kernel kernel(slices);
  const unsigned n = launch.grid.x * launch.grid.y * launch.grid.z;
  RunningBlocks running;
  for (unsigned i = 0; i < n; ++i) {
    const std::size_t where = device.enter(launch, i);
    running.join_ended();
    running.start([&, i, where] {
      Block block;
      block.launch = &launch;
      block.index = i;
      block.slices = slices;
      run_block(block);
      device.leave(where, launch.block_takes);
    });
  }
}

const void* register_kernel(const Kernel& kernel) {
  const std::lock_guard lock(kernels_mutex);
  kernels().try_emplace(kernel.function, kernel);
  return kernel.function;
}

void set_needs(const void* function, int most_threads, int registers, std::size_t shared_bytes) {
  const std::lock_guard lock(kernels_mutex);
  Kernel& kernel = kernels().at(function);
  kernel.most_threads = most_threads;
  kernel.registers = registers;
  kernel.shared_bytes = shared_bytes;
}

const Kernel* find_kernel(const void* function) {
  const std::lock_guard lock(kernels_mutex);
  const auto found = kernels().find(function);
  return found == kernels().end() ? nullptr : &found->second;
}

}  // namespace tutti::simt
