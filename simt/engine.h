// File: simt/engine.h: a CUDA kernel's threads on a CPU: the interface of the engine for kernels,
// the simulated runtime and tests.
//
// Model. A block is one thread of the operating system, so blocks progress independently of each
// other and may wait for each other's memory, as on a GPU. A thread of a block is a fiber there. A
// static thread_local is therefore exactly what CUDA calls shared memory. Fibers change places only
// inside these functions: at barriers, at warps' collectives, where a kernel polls memory, and,
// with a seed, now and then at any other primitive.
//
// Seeds. Without one (0) the threads of a block run in order, each as far as it can. With one the
// order is random, and one in eight primitives gives way. Blocks and host threads are scheduled by
// the operating system, so a seed makes a failure likely again, not certain.
//
// Sanitizers. The engine tells the thread sanitizer of fibers and of exactly the order that CUDA
// promises (block barriers, __syncwarp, fences, acquire and release), not of its own switching. It
// is itself compiled without instrumentation; on fibers it neither allocates nor calls memmove,
// whose interceptors would report the engine.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define TUTTI_SIMT_TSAN 1
#elif !defined(TUTTI_SIMT_TSAN)
#define TUTTI_SIMT_TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define TUTTI_SIMT_ASAN 1
#endif

namespace tutti::simt {

/// The settings of a run. They come from the environment (SIMT_SEED, ...); a test may change it
/// while no kernel runs.
/// It has more than 15 fields: one for each thing that tests can plant or limit.
struct Settings {
  std::uint64_t seed = 0;
  unsigned preempt_one_in = 0;  // One in so many primitives; 0: never.
  bool check = false;     // Report accesses to peers without access, threads that leave barriers.
  double timeout_s = 60;  // Without progress: the engine says where threads wait, and exits.
  std::size_t stack_bytes = std::size_t{64} << 10;
  int devices = 8;
  int multiprocessors = 132;        // A device has so many (residency.h).
  double time_slice_s = 0;          // Processes take turns (time_slices.h); 0: no.
  std::uint64_t no_peers[64] = {};  // By device: those whose memory it can't access, as bits.
  bool peers(int device, int peer) const { return (no_peers[device] >> peer & 1) == 0; }
  // By device: those to whose memory its kernels have access by what CUDA says, but whose writes
  // are lost, as bits.
  std::uint64_t loses_writes[64] = {};
  bool reuse_handles = true;   // A new stream or event has the handle of a destroyed one.
  bool jitter = false;         // Streams idle for up to 2 ms before each operation.
  bool mig = false;            // Devices 0 and 1, 2 and 3, ... are MIG instances of one GPU each.
  std::uint64_t no_code = 0;   // Devices that kernels were not compiled for, as bits.
  bool unmap_waits = false;    // cuMemUnmap waits for the device, as it may on a GPU.
  std::uint64_t taken = 0;     // Devices that another process has for itself alone, as bits.
  bool lazy = true;            // To load a kernel waits for all that its device runs.
  bool pageable_waits = true;  // So do copies to pageable memory, for their stream.
  bool free_locks = false;     // Nobody can launch on a device while memory is freed there.
  int connections = 8;         // Hardware queues of a device; streams are dealt to them in turn.
  std::size_t launch_queue = 1024;  // Commands that a stream holds until the host has to wait.
  // For devices: writes of network cards are only seen after a flush, and there is a flush.
  bool rdma_unordered = false, rdma_flush = true;
  bool tears_lines = false;  // The parts of a warp's line of 128 bytes arrive in any order.
  bool dma_buf = false;  // Their memory has descriptors for cards, also where the machine says no.
};
/// From the environment, and from the machine that is pretended (machine.cc).
Settings& settings();
/// The monotonic clock.
double now_s();
/// Sets the seed, and with it how often threads give way.
void set_seed(std::uint64_t seed);

/// The CUDA thread that runs, beyond threadIdx.
struct ThreadContext {
  uint3 index;
  unsigned flat, lane, warp;
  int device;
  void* dynamic_shared;
};
// __thread: without the wrapper that thread_local has in other files.
extern __thread ThreadContext* current;

// Scheduling points.
void yield_point();                          // May give way.
void late_point();                           // May sleep, so that others see what came before.
void poll_point(const volatile void* what);  // Gives way: "I wait for *what to change".
void note_progress();                        // Something other than polling happened.
bool coin();                                 // By the seed; false without one.
/// Prints the text and what all threads do, and ends the process with status 86.
[[noreturn]] void die(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// While it lives, `die` also says that a thread of the host, or a stream, waits for this.
class Waiting {
 public:
  explicit Waiting(std::string what);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::string what_;
};

/// Where in the source a primitive is called.
struct Place {
  const char* file;
  int line;
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// Block barriers. `thread_count` 0: the whole block, all of whose threads have to come from one
// place.
void barrier(int id, int thread_count, Place place);
enum class Vote { kAnd, kOr, kCount };
int barrier_vote(int predicate, Vote vote, Place place);

// Warps' collectives.
enum class WarpOp { kSync, kShuffle, kVote, kMatch, kReduce };
struct WarpValues {
  std::uint64_t of_lane[32];
};
/// Leaves `value`, waits for every lane of the mask, returns what all of them left.
WarpValues warp_exchange(unsigned mask, std::uint64_t value, WarpOp op);

// Memory order, for the sanitizer and for narrow scopes.
enum class Scope { kBlock, kDevice, kSystem };
void fence();
void before_relaxed_store(void* at);  // A fence, then a store: publishes what is before the fence.
void after_relaxed_load(const void* at);  // A load, then a fence.
/// With `check`: dies if the current device has no access, or the scope does not reach.
void check_access(const void* at, std::size_t bytes, Scope scope, bool flag);
/// Whether a write of the current device to this memory is lost (Settings::loses_writes).
bool loses_write(const void* at, std::size_t bytes);

/// Mistakes that a test plants at run time, at one place of the source: the engine then leaves out
/// what is there. So the code under test is the code that ships.
enum class Mistake {
  kNoBarrier,
  kNoRelease,
  kNoAcquire,
  kNoWait,
  kNoFirstFlag,
  kNoSecondFlag,
  kNoAliasFence
};
inline constexpr const char* kMistakeNames[] = {"no_barrier",    "no_release",    "no_acquire",
                                                "no_wait",       "no_first_flag", "no_second_flag",
                                                "no_alias_fence"};
/// True where SIMT_MISTAKE says "no_barrier@interpreter.h:80". Remembers the place if SIMT_MISTAKE
/// is "list".
bool planted(Mistake mistake, Place place);
/// The places that `planted` was asked about, as SIMT_MISTAKE takes them, one a line.
std::string mistakes_met();

// Kernels.
struct Kernel {
  const void* function;
  const char* name;
  std::size_t argument_bytes;
  void (*pack)(void** arguments, void* packed);
  void (*invoke)(const void* function, void* packed);
  // By the bounds that it was compiled with (__launch_bounds__): threads of a block at most, and
  // what each has; and its static shared memory, which a CPU's code does not say.
  int most_threads = 1024, registers = 64;
  std::size_t shared_bytes = 0;
};
/// Registers that the compiler leaves each thread of a kernel with blocks of at most so many.
int registers_by_bound(int most_threads);
/// Makes a kernel known, if it is not; returns its function, which is its handle for a launch.
const void* register_kernel(const Kernel& kernel);
const Kernel* find_kernel(const void* function);
/// Says what a known kernel takes, for tests. None of its launches may be under way.
void set_needs(const void* function, int most_threads, int registers, std::size_t shared_bytes);

/// What a multiprocessor has, or what blocks on it take.
struct Resources {
  int blocks = 0, threads = 0, registers = 0;
  std::size_t shared_bytes = 0;
};

struct Launch {
  const Kernel* kernel;
  void* packed_arguments;
  dim3 grid, block;
  std::size_t shared_bytes;
  int device;
  std::uint64_t number;  // The launch's number on its device; goes into the seed.
  Resources multiprocessor, block_takes;
};
/// Runs all blocks; returns when they are done. Waits for places on the device, as blocks do there.
void run(const Launch& launch);

/// The owner of memory: the device, or -1 for the host's, and whether `device` may access it.
/// Memory that the runtime did not allocate belongs to the device that asks. (The runtime defines
/// it.)
struct Owner {
  int device;
  bool accessible;
};
Owner owner_of(const void* at, std::size_t bytes, int device);

/// The memory that a multicast address stands for, by device. Dies if there is no such address, or
/// not all devices have joined and bound memory there. (The driver defines it.)
struct Members {
  void* at[64];
  unsigned count;
};
Members multicast_members(const void* at, std::size_t bytes);

}  // namespace tutti::simt
