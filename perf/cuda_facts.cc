// File: perf/cuda_facts.cc: a probe of a GPU and its driver, in a minute: what the driver does
// while a kernel waits, and what the phases of a step cost (planner/kernel_phases.h).
//
// Each fact is a row as soon as it is known. While a kernel spins, each call of the driver is made
// by a thread of its own; one that has not come back after `--patience` waits for the kernel, which
// is then let go. So no row takes longer, unless the driver never comes back at all.
#include <cuda_runtime_api.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/algorithm.h"
#include "cuda/driver/kernels.h"
#include "cuda/driver/memory.h"
#include "cuda/driver/share.h"
#include "cuda/mesh/mesh.h"
#include "perf/command_line/command_line.h"
#include "perf/cuda_facts.h"
#include "perf/cuda_table.h"
#include "perf/cuda_timing.h"

namespace tutti {
namespace {

using exec::cuda_status;
using exec::CudaHostMemory;
using exec::CudaMemory;
using facts::Arguments;
using std::chrono::milliseconds;
using timing::Streams;
using timing::Table;

constexpr std::size_t kTile = std::size_t{64} << 10;

double since_us(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

std::uint64_t nanoseconds(milliseconds time) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
}

Status launch(const void* kernel, const Arguments& arguments, unsigned threads,
              cudaStream_t stream) {
  Arguments copy = arguments;
  void* words[] = {&copy};
  return cuda_status(cudaLaunchKernel(kernel, dim3(1), dim3(threads), words, 0, stream),
                     "a kernel of the probe");
}

/// A kernel that spins on a stream of its own until it is let go.
class Spinning {
 public:
  Spinning(std::uint64_t* flag, milliseconds longest) : flag_(flag) {
    *flag_ = 0;
    Arguments arguments;
    arguments.mine = flag;
    arguments.patience = nanoseconds(longest);
    started_ = launch(facts::spin_kernel(), arguments, 1, stream_[0]);
  }
  ~Spinning() {
    let_go();
    cudaStreamSynchronize(stream_[0]);
  }
  Spinning(const Spinning&) = delete;
  Spinning& operator=(const Spinning&) = delete;
  Status take() { return std::move(started_); }
  // release: the kernel acquires.
  void let_go() { __atomic_store_n(flag_, 1, __ATOMIC_RELEASE); }

 private:
  const Streams stream_{{0}};
  std::uint64_t* const flag_;
  Status started_;
};

/// What is done while a kernel waits, and is then to be undone.
struct Deed {
  std::string what;
  std::function<Status()> call;
  std::function<void()> undo = [] {};
};

/// It has more than 20 functions: one or two for each fact.
class Probe {
 public:
  Probe(Table& table, milliseconds patience, std::size_t count)
      : table_(table), patience_(patience), count_(count) {}

  Status prepare() {
    TUTTI_TRY(words_, CudaHostMemory::allocate(4096));
    TUTTI_TRY(flags_, CudaMemory::allocate(0, 4096));
    TUTTI_TRY(from_, CudaMemory::allocate(0, kTile));
    TUTTI_TRY(to_, CudaMemory::allocate(0, kTile));
    // None may be loaded while another one waits.
    for (const void* kernel :
         {facts::empty_kernel(), facts::spin_kernel(), facts::ping_pong_kernel(),
          facts::chase_kernel(), facts::copy_kernel(), facts::release_kernel(),
          facts::lines_kernel()}) {
      cudaFuncAttributes attributes;
      TUTTI_RETURN_IF_ERROR(
          cuda_status(cudaFuncGetAttributes(&attributes, kernel), "loading a kernel"));
    }
    return cuda_status(cudaMallocHost(&pinned_, kTile), "pinned memory");
  }

  void driver_facts() {
    for (const Deed& deed : deeds()) table_.measure(deed.what, [&] { return beside_kernel(deed); });
  }

  void phases() {
    row("launch_us: an empty kernel after another", [&](auto& what) { return empty(what); });
    row("an empty kernel after another, in a graph",
        [&](auto& what) { return empty_in_graph(what); });
    row("a load out of L2", [&](auto& what) { return chase(what, count_); });
    row("load_us: a load out of memory", [&](auto& what) { return chase(what, far_loads()); });
    row("flag_us: a flag between two blocks, one way", [&](auto& what) { return flag(what); });
    const void* const copy = facts::copy_kernel();
    const void* const release = facts::release_kernel();
    row("a block copies 64 KiB", [&](auto& what) { return tile(what, copy, kTile); });
    row("the same, and a release", [&](auto& what) { return tile(what, release, kTile); });
    row("release_us: 16 bytes, a barrier and a release",
        [&](auto& what) { return tile(what, release, 16); });
    row("barriers_us: 16 bytes and a barrier", [&](auto& what) { return tile(what, copy, 16); });
    row("lines_us: lines of 128 bytes, and a flag back",
        [&](auto& what) { return lines(what, 0); });
    if (peer_device() > 0)
      row("lines of 128 bytes to a peer, and a flag back",
          [&](auto& what) { return lines(what, peer_device()); });
    for (const std::size_t bytes : {std::size_t{1024}, kTile})
      row(fmt::format("a step of the interpreter, slots of {}", bytes),
          [&](auto& what) { return step(what, bytes); });
  }

 private:
  /// `make` adds a row of that name, or says why it can't.
  void row(const std::string& what, const std::function<Status(const std::string& what)>& make) {
    table_.measure(what, [&] { return make(what); });
  }
  std::uint64_t* flag_at(std::size_t line) const {
    return reinterpret_cast<std::uint64_t*>(flags_.data() + line * 128);
  }

  /// The call comes back while a kernel waits, or only behind it.
  Status beside_kernel(const Deed& deed) {
    Spinning kernel(reinterpret_cast<std::uint64_t*>(words_.data()), 10 * patience_);
    TUTTI_RETURN_IF_ERROR(kernel.take());
    const auto start = std::chrono::steady_clock::now();
    auto done = std::async(std::launch::async, [&]() -> std::pair<Status, double> {
      Status status = cuda_status(cudaSetDevice(0), "the device");
      if (status) status = deed.call();
      return {std::move(status), since_us(start)};
    });
    const bool back = done.wait_for(patience_) == std::future_status::ready;
    kernel.let_go();
    auto [status, us] = done.get();
    deed.undo();
    if (!status) {
      table_.add({.what = deed.what, .note = "refused: " + status.error().what});
      cudaGetLastError();
    } else if (back) {
      table_.add({.what = deed.what + ": comes back", .microseconds = us});
    } else {
      table_.add({.what = deed.what, .note = "waits for the kernel"});
    }
    return ok();
  }

  /// On a stream that is made for it, and left for later.
  Status on_stream(const std::function<cudaError_t(cudaStream_t)>& enqueue, bool waits) {
    cudaStream_t stream = nullptr;
    TUTTI_RETURN_IF_ERROR(
        cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
    streams_.push_back(stream);
    TUTTI_RETURN_IF_ERROR(cuda_status(enqueue(stream), "giving a stream work"));
    return waits ? cuda_status(cudaStreamSynchronize(stream), "waiting for a stream") : ok();
  }
  void drop_streams() {
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    streams_.clear();
  }

  std::vector<Deed> deeds() {
    const auto drop = [this] { drop_streams(); };
    const auto copy_back = [this](void* to) {
      return on_stream(
          [&](cudaStream_t stream) {
            return cudaMemcpyAsync(to, to_.data(), kTile, cudaMemcpyDeviceToHost, stream);
          },
          true);
    };
    std::vector<Deed> all;
    all.push_back({"cudaMalloc", [this] { return cuda_status(cudaMalloc(&memory_, kTile), ""); },
                   [this] { cudaFree(std::exchange(memory_, nullptr)); }});
    all.push_back({"cudaMalloc and cudaFree", []() -> Status {
                     void* memory = nullptr;
                     TUTTI_RETURN_IF_ERROR(cuda_status(cudaMalloc(&memory, kTile), ""));
                     return cuda_status(cudaFree(memory), "");
                   }});
    all.push_back({"cudaHostAlloc",
                   [this] { return cuda_status(cudaHostAlloc(&memory_, kTile, 0), ""); },
                   [this] { cudaFreeHost(std::exchange(memory_, nullptr)); }});
    all.push_back({"cudaHostRegister and -Unregister", [this]() -> Status {
                     TUTTI_RETURN_IF_ERROR(cuda_status(
                         cudaHostRegister(pages_.data(), pages_.size(), 0), "registering"));
                     return cuda_status(cudaHostUnregister(pages_.data()), "unregistering");
                   }});
    all.push_back({"memory of the driver: made, mapped, allowed, unmapped", []() -> Status {
                     TUTTI_TRY(const CudaMemory memory, CudaMemory::allocate_for_peers(0, kTile));
                     return ok();
                   }});
    all.push_back(
        {"a memset on each of 64 new streams, one after the other",
         [this]() -> Status {
           for (int i = 0; i < 64; ++i) {
             TUTTI_RETURN_IF_ERROR(on_stream(
                 [&](cudaStream_t stream) { return cudaMemsetAsync(to_.data(), 0, 1024, stream); },
                 true));
           }
           return ok();
         },
         drop});
    all.push_back({"a kernel on another stream",
                   [this] {
                     return on_stream(
                         [](cudaStream_t stream) {
                           Arguments none;
                           void* words[] = {&none};
                           return cudaLaunchKernel(facts::empty_kernel(), dim3(1), dim3(1), words,
                                                   0, stream);
                         },
                         true);
                   },
                   drop});
    all.push_back({"a copy to pinned memory, another stream",
                   [=, this] { return copy_back(pinned_); }, drop});
    all.push_back({"a copy to pageable memory, another stream",
                   [=, this] { return copy_back(pages_.data()); }, drop});
    all.push_back({"a query of an event, another stream",
                   [this] {
                     return on_stream(
                         [](cudaStream_t stream) {
                           cudaEvent_t event = nullptr;
                           cudaError_t error = cudaEventCreate(&event);
                           if (error == cudaSuccess) error = cudaEventRecord(event, stream);
                           if (error == cudaSuccess) cudaEventQuery(event);
                           if (event != nullptr) cudaEventDestroy(event);
                           return error;
                         },
                         false);
                   },
                   drop});
    return all;
  }

  Status add(const std::string& what, const std::vector<double>& times, double each,
             std::size_t bytes = 0) {
    const double us = timing::median(times) / each;
    table_.add({.what = what,
                .microseconds = us,
                .gigabytes = timing::rate(bytes, us),
                .spread = timing::spread(times)});
    return ok();
  }
  Result<std::vector<double>> timed(const std::function<Status(std::size_t)>& enqueue,
                                    const Streams& streams) const {
    std::vector<double> times;
    for (int round = 0; round < 6; ++round) {
      TUTTI_TRY(const double us, streams.microseconds(enqueue));
      if (round > 0) times.push_back(us);
    }
    return times;
  }

  Status empty(const std::string& what) {
    constexpr int kKernels = 64;
    TUTTI_TRY(const auto times,
              timed(
                  [&](std::size_t) -> Status {
                    for (int i = 0; i < kKernels; ++i)
                      TUTTI_RETURN_IF_ERROR(launch(facts::empty_kernel(), {}, 1, one_[0]));
                    return ok();
                  },
                  one_));
    return add(what, times, kKernels);
  }
  Status empty_in_graph(const std::string& what) {
    TUTTI_TRY(const auto times,
              one_.replayed([&] { return launch(facts::empty_kernel(), {}, 1, one_[0]); }, 64, 5));
    return add(what, times, 1);
  }

  /// Twice as many lines as L2 has, so that each load is of one that is not there.
  std::size_t far_loads() const {
    constexpr std::size_t kLine = 128;
    const auto l2 = static_cast<std::size_t>(exec::attribute_of(0, cudaDevAttrL2CacheSize));
    return std::max(count_, 2 * l2 / kLine);
  }
  /// So many loads, one after the other, of words that lie two lines apart.
  Status chase(const std::string& what, std::size_t loads) {
    constexpr std::size_t kApart = 256;
    std::vector<std::uint64_t> next(loads * kApart / sizeof(std::uint64_t));
    for (std::size_t i = 0; i < loads; ++i)
      next[i * kApart / sizeof next[0]] = (i + 1) % loads * kApart;
    TUTTI_TRY(CudaMemory table, CudaMemory::allocate(0, loads * kApart));
    TUTTI_RETURN_IF_ERROR(table.write(0, next.data(), loads * kApart));
    Arguments arguments;
    arguments.from = table.data();
    arguments.theirs = flag_at(0);
    arguments.count = loads;
    TUTTI_TRY(
        const auto times,
        timed([&](std::size_t) { return launch(facts::chase_kernel(), arguments, 1, one_[0]); },
              one_));
    return add(what, times, static_cast<double>(loads));
  }

  Status flag(const std::string& what) {
    TUTTI_TRY(const auto times, timed(
                                    [&](std::size_t side) -> Status {
                                      if (side == 0) TUTTI_RETURN_IF_ERROR(clear_flags());
                                      Arguments arguments;
                                      arguments.mine = flag_at(side);
                                      arguments.theirs = flag_at(1 - side);
                                      arguments.to = side == 0 ? nullptr : to_.data();
                                      arguments.count = count_;
                                      arguments.patience = nanoseconds(10 * patience_);
                                      return launch(facts::ping_pong_kernel(), arguments, 1,
                                                    two_[side]);
                                    },
                                    two_));
    return add(what, times, 2 * static_cast<double>(count_));
  }
  Status clear_flags() {
    const std::uint64_t none = 0;
    TUTTI_RETURN_IF_ERROR(flags_.write(0, &none, sizeof none));
    return flags_.write(128, &none, sizeof none);
  }

  Status tile(const std::string& what, const void* kernel, std::size_t bytes) {
    Arguments arguments;
    arguments.from = from_.data();
    arguments.to = to_.data();
    arguments.theirs = flag_at(2);
    arguments.bytes = bytes;
    arguments.count = count_;
    TUTTI_TRY(
        const auto times,
        timed([&](std::size_t) { return launch(kernel, arguments, facts::kThreads, one_[0]); },
              one_));
    return add(what, times, static_cast<double>(count_), bytes == kTile ? 2 * bytes : 0);
  }

  /// Another device that this one reaches, and which reaches it; 0: there is none.
  static int peer_device() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2) return 0;
    const bool joined = exec::enable_peer_access(0, 1) && exec::enable_peer_access(1, 0);
    return joined ? 1 : 0;
  }

  /// Whether a line that eight threads store in one instruction is ever seen in part by the reader
  /// on that device, in whose memory the lines are.
  Status lines(const std::string& what, int reader) {
    constexpr std::size_t kLines = facts::kThreads * 16, kCounts = facts::kThreads * 8;
    TUTTI_TRY(CudaMemory lines, CudaMemory::allocate(reader, kLines + kCounts));
    TUTTI_TRY(CudaMemory flags, CudaMemory::allocate(0, 4096));
    const std::vector<std::byte> none(std::max(kLines + kCounts, std::size_t{4096}));
    const Streams sides({0, reader});
    std::uint64_t torn = 0;
    const auto enqueue = [&](std::size_t side) -> Status {
      if (side == 0) {
        TUTTI_RETURN_IF_ERROR(lines.write(0, none.data(), kLines + kCounts));
        TUTTI_RETURN_IF_ERROR(flags.write(0, none.data(), 4096));
      }
      Arguments arguments;
      arguments.to = lines.data();
      arguments.from = side == 0 ? nullptr : lines.data() + kLines;
      arguments.mine = arguments.theirs = reinterpret_cast<std::uint64_t*>(flags.data());
      arguments.count = count_;
      arguments.patience = nanoseconds(10 * patience_);
      const exec::OnDevice on(side == 0 ? 0 : reader);
      return launch(facts::lines_kernel(), arguments, facts::kThreads, sides[side]);
    };
    std::vector<double> times;
    for (int round = 0; round < 6; ++round) {
      TUTTI_TRY(const double us, sides.microseconds(enqueue));
      if (round > 0) times.push_back(us);
      std::uint64_t counts[facts::kThreads];
      TUTTI_RETURN_IF_ERROR(lines.read(kLines, counts, sizeof counts));
      for (const std::uint64_t one : counts) torn += one;
    }
    table_.add({.what = what + ", seen in part",
                .note = fmt::format("{} of {}", torn, 6 * count_ * facts::kThreads)});
    return add(what, times, static_cast<double>(count_));
  }

  /// Two ranks, one lane: each step of a tile sends a slot or takes one.
  Status step(const std::string& what, std::size_t slot_bytes) {
    exec::CudaMeshOptions options = timing::mesh_of({0, 0});
    options.lanes = 1;
    options.slot_bytes = slot_bytes;
    TUTTI_TRY(auto mesh, exec::CudaMesh::create(options));
    const auto plan =
        build(*find_algorithm(Collective::kAllReduce, "one_shot"), {Collective::kAllReduce, 2});
    TUTTI_TRY(const exec::CudaPlan loaded, mesh->load(plan));
    const std::size_t count = count_ * slot_bytes / sizeof(float) / 4;  // A quarter: tiles.
    TUTTI_TRY(const CudaMemory buffers, CudaMemory::allocate(0, 4 * count * sizeof(float)));
    const auto at = [&](std::size_t index) {
      return buffers.data() + index * count * sizeof(float);
    };
    const auto calls = timing::calls_of(
        2, DataType::kFloat32, count, [&](std::size_t rank) { return at(rank); },
        [&](std::size_t rank) { return at(2 + rank); });
    TUTTI_TRY(const auto times, timed(
                                    [&](std::size_t rank) {
                                      return mesh->launch(static_cast<int>(rank), loaded,
                                                          calls[rank], two_[rank]);
                                    },
                                    two_));
    TUTTI_RETURN_IF_ERROR(timing::check(*mesh, 2));
    const double tiles =
        static_cast<double>(count) * sizeof(float) / static_cast<double>(slot_bytes);
    return add(what, times, 2 * tiles);
  }

  Table& table_;
  const milliseconds patience_;
  const std::size_t count_;
  const Streams one_{{0}}, two_{{0, 0}};
  CudaHostMemory words_;
  CudaMemory flags_, from_, to_;
  void* pinned_ = nullptr;
  void* memory_ = nullptr;
  std::vector<std::byte> pages_ = std::vector<std::byte>(kTile);
  std::vector<cudaStream_t> streams_;
};

void run(Table& table, milliseconds patience, std::size_t count) {
  const auto start = std::chrono::steady_clock::now();
  const bool loads = table.measure("loading all kernels", [&]() -> Status {
    TUTTI_RETURN_IF_ERROR(exec::load_kernels(0));
    table.add({"loading all kernels, with the process's context", since_us(start)});
    return ok();
  });
  Probe probe(table, patience, count);
  if (!loads || !table.measure("memory for the probe", [&] { return probe.prepare(); })) return;
  probe.driver_facts();
  probe.phases();
}

}  // namespace
}  // namespace tutti

int main(int count, char** words) {
  tutti::perf::CommandLine app(
      "What a GPU's driver does while a kernel waits, and what the phases of a step cost");
  int patience = 2000;
  std::size_t repeats = 2000;
  app.add_option("--patience", patience, "Milliseconds until a call counts as waiting")
      .check(tutti::perf::range(10, 10000))
      .capture_default_str();
  app.add_option("--count", repeats, "Repeats of what is timed")
      .check(tutti::perf::range(4, 100000))
      .capture_default_str();
  return tutti::timing::run_program(
      app, count, words, {"", "share"},
      [&](const tutti::timing::Options&, tutti::timing::Table& table) {
        tutti::run(table, std::chrono::milliseconds(patience), repeats);
      });
}
