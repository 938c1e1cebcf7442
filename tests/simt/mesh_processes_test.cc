// Ranks that are processes, with a device each: they map each other's rings, and buffers, by
// handles of all kinds, and get what ranks in one process get.
#include <sys/mman.h>

#include <atomic>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/algorithm.h"
#include "cuda/driver/share.h"
#include "simt/communicator/device_ranks.h"
#include "support/catch.h"
#include "support/processes.h"
#include "support/sample.h"
#if !defined(TUTTI_GPU)
#include "simt/runtime.h"
#endif

namespace tutti {
namespace {

using test::Case;
using test::DeviceRanks;
using test::said;

constexpr int kMostTestRanks = 8;

/// What the processes of a test share.
struct Meeting {
  exec::CudaMeshHandle handles[kMostTestRanks];
  exec::CudaName inputs[kMostTestRanks], outputs[kMostTestRanks];
  std::atomic<int> arrived{0};

  /// The `round`-th time, from 1, that all meet.
  void wait(int ranks, int round) {
    // Both ways: a rank that goes on sees all that others wrote before.
    arrived.fetch_add(1, std::memory_order_acq_rel);
    while (arrived.load(std::memory_order_acquire) < ranks * round) std::this_thread::yield();
  }
};

/// As what devices can export memory that is ours; 0: it is the runtime's then.
#if defined(TUTTI_GPU)
constexpr unsigned kExports[] = {CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
void share_as(unsigned) {}
#else
constexpr unsigned kExports[] = {CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 CU_MEM_HANDLE_TYPE_FABRIC, CU_MEM_HANDLE_TYPE_NONE};
void share_as(unsigned types) { simt::share_as(types); }
#endif

exec::CudaMeshOptions options_for(int ranks, cuda::SlotFormat format) {
  exec::CudaMeshOptions options;
  for (int r = 0; r < ranks; ++r)
    options.devices.push_back(test::device_of(r % 3));  // Some share a device.
  options.lanes = 2;
  options.slot_count = 2;
  options.slot_bytes = 2048;
  options.format = format;
  options.threads = 64;
  return options;
}

/// Joins all; what went wrong.
std::string join(exec::CudaMesh& mesh, int rank, int ranks, Meeting& meeting) {
  auto handle = mesh.rings().handle();
  if (!handle) {
    meeting.arrived += 1000;  // Lets the others go on, and fail.
    return handle.error().to_string();
  }
  meeting.handles[rank] = *handle;
  meeting.wait(ranks, 1);
  return said(mesh.rings().join(std::span(meeting.handles, static_cast<std::size_t>(ranks))));
}

/// One rank's life; empty if all is well.
std::string live(int rank, int ranks, cuda::SlotFormat format, Meeting& meeting,
                 std::uint64_t seed) {
  const exec::CudaMeshOptions options = options_for(ranks, format);
  const auto me = static_cast<std::size_t>(rank);
  cudaSetDevice(options.devices[me]);
  auto mesh = exec::CudaMesh::create(options, rank);
  if (!mesh) {
    meeting.arrived += 1000;
    return mesh.error().to_string();
  }
  std::string complaint = join(**mesh, rank, ranks, meeting);
  std::mt19937_64 random(seed);  // The same in all.
  for (const Algorithm* algorithm : algorithms()) {
    const plan::Shape shape{algorithm->collective, ranks};
    if (!algorithm->applies(shape) || !complaint.empty()) continue;
    const plan::Plan plan = build(*algorithm, shape);
    auto loaded = (*mesh)->load(plan);
    if (!loaded) continue;  // More than kernels take; all ranks are told so.
    Case test;
    test.collective = algorithm->collective;
    test.type = random() % 2 == 0 ? DataType::kFloat32 : DataType::kBfloat16;
    test.count = random() % 1000;
    test.ranks = ranks;
    test.exact = plan.contract == Contract::kRelaxed;
    const auto inputs = DeviceRanks::make_inputs(test, random());
    const DeviceRanks::DeviceBuffers buffers(options.devices[me], test, me, inputs[me]);
    exec::CudaCall call;
    call.type = test.type;
    call.count = test.count;
    call.input = buffers.input;
    call.output = buffers.output;
    // One after the other: the operands of a + may be evaluated in any order.
    complaint = said((*mesh)->launch(rank, *loaded, call, nullptr));
    complaint += said(cudaStreamSynchronize(nullptr));
    complaint += said((*mesh)->rings().check(rank));
    if (complaint.empty()) complaint = DeviceRanks::compare(test, me, inputs, buffers);
    if (!complaint.empty()) complaint = std::string(algorithm->name) + ": " + complaint;
  }
  meeting.wait(ranks, 2);  // Nobody's memory goes while a peer may use it.
  return complaint;
}

/// Runs the ranks as processes that share a Meeting.
void run_processes(int ranks, const std::function<std::string(int rank, Meeting& meeting)>& body) {
  void* memory =
      mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* meeting = new (memory) Meeting;
  test::Processes processes(ranks, [&](int rank) { return body(rank, *meeting); });
  for (int rank = 0; rank < ranks; ++rank) REQUIRE(processes.wait(rank) == 0);
  munmap(memory, sizeof(Meeting));
}

TEST_CASE("ranks in processes of their own, over handles of every kind") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  test::shuffle_threads(seed);
  std::size_t kind = 0;
  for (const int ranks : {2, 3, 8}) {
    for (const cuda::SlotFormat format : cuda::kSlotFormats) {
      const unsigned exports = kExports[kind++ % std::size(kExports)];
      INFO(ranks << " ranks, " << cuda::to_string(format) << ", exported as " << exports);
      run_processes(ranks, [&](int rank, Meeting& meeting) {
        share_as(exports);
        return live(rank, ranks, format, meeting, seed + 1);
      });
    }
  }
}

/// A user's memory: the runtime's, or, as expandable segments are, parts that the driver mapped one
/// after the other, with the buffer across the border of two.
class UserMemory {
 public:
  static constexpr std::size_t kBefore = 4096;

  static Result<UserMemory> make(int device, std::size_t bytes, unsigned types) {
    UserMemory made;
    if (types == CU_MEM_HANDLE_TYPE_NONE) {
      TUTTI_TRY(made.memory_, exec::CudaMemory::allocate(device, kBefore + bytes));
      made.data_ = made.memory_.data() + kBefore;
      return made;
    }
    const bool one = types == CU_MEM_HANDLE_TYPE_FABRIC;  // That has a single handle.
    CUmemAllocationProp wanted = {};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = exec::location_of(device);
    wanted.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(types);
    constexpr std::size_t kPart = std::size_t{2} << 20;
    TUTTI_TRY(made.mapping_, exec::CudaMapping::reserve(one ? kPart : 2 * kPart));
    for (int part = 0; part < (one ? 1 : 2); ++part) {
      CUmemGenericAllocationHandle handle = 0;
      TUTTI_RETURN_IF_ERROR(
          exec::driver_status(exec::cuda_driver().create(&handle, kPart, &wanted, 0), "a part"));
      TUTTI_RETURN_IF_ERROR(made.mapping_.add(handle, kPart));
      exec::cuda_driver().release(handle);
    }
    TUTTI_RETURN_IF_ERROR(made.mapping_.allow({device}));
    made.data_ = made.mapping_.data() + (one ? kBefore : kPart - kBefore);
    return made;
  }
  std::byte* data() const { return data_; }

 private:
  exec::CudaMemory memory_;
  exec::CudaMapping mapping_;
  std::byte* data_ = nullptr;
};

/// Opens what the others have; empty if that went well.
template <class Pointer>
std::string open_all(int device, const exec::CudaName* names, int ranks, Pointer own, int rank,
                     std::vector<exec::CudaImport>& opened, std::vector<Pointer>& buffers) {
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) {
      buffers.push_back(own);
      continue;
    }
    auto one =
        exec::CudaImport::open(device, names[peer], Deadline::after(std::chrono::seconds(30)));
    if (!one) return one.error().to_string();
    buffers.push_back(opened.emplace_back(std::move(*one)).data());
  }
  return "";
}

/// A rank of an all-reduce over mapped peers, of memory that its user made.
std::string reduce_users_memory(int rank, int ranks, unsigned types, Meeting& meeting,
                                std::uint64_t seed) {
  const exec::CudaMeshOptions options = options_for(ranks, cuda::SlotFormat::kSimple);
  const auto me = static_cast<std::size_t>(rank);
  const int device = options.devices[me];
  cudaSetDevice(device);
  Case test;
  test.ranks = ranks;
  test.count = 5000;  // Beyond the border.
  auto mesh = exec::CudaMesh::create(options, rank);
  auto input = UserMemory::make(device, test.input_bytes(), types);
  auto output = UserMemory::make(device, test.output_bytes(), types);
  if (!mesh || !input || !output) {
    meeting.arrived += 1000;
    return "no memory";
  }
  auto shown = exec::CudaExport::of(device, input->data(), test.input_bytes());
  auto result = exec::CudaExport::of(device, output->data(), test.output_bytes());
  if (shown) meeting.inputs[rank] = shown->name();
  if (result) meeting.outputs[rank] = result->name();
  std::string complaint = join(**mesh, rank, ranks, meeting);
  exec::CudaCall call;
  call.count = test.count;
  std::vector<exec::CudaImport> opened;
  complaint += open_all<const std::byte*>(device, meeting.inputs, ranks, input->data(), rank,
                                          opened, call.peer_inputs);
  complaint += open_all<std::byte*>(device, meeting.outputs, ranks, output->data(), rank, opened,
                                    call.peer_outputs);
  const auto inputs = DeviceRanks::make_inputs(test, seed);
  test::Buffer got(test.output_bytes());
  if (complaint.empty()) {
    complaint += said(
        cudaMemcpy(input->data(), inputs[me].data(), inputs[me].size(), cudaMemcpyHostToDevice));
    complaint += said((*mesh)->launch_two_shot(rank, call, nullptr));
    complaint += said(cudaStreamSynchronize(nullptr));
    complaint += said((*mesh)->rings().check(rank));
    complaint += said(cudaMemcpy(got.data(), output->data(), got.size(), cudaMemcpyDeviceToHost));
  }
  if (complaint.empty()) complaint = DeviceRanks::compare(test, me, inputs, got);
  meeting.wait(ranks, 2);
  return complaint;
}

TEST_CASE("an all-reduce of users' memory, of the runtime and of the driver, between processes") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  for (const int ranks : {2, 4}) {
    for (const unsigned types : kExports) {
      INFO(ranks << " ranks, memory made to be exported as " << types);
      run_processes(ranks, [&](int rank, Meeting& meeting) {
        share_as(types);
        test::check_access(!test::kSanitized);
        return reduce_users_memory(rank, ranks, types, meeting, seed);
      });
    }
  }
}

TEST_CASE("memory that was made for this process alone has a name that says so") {
  run_processes(1, [&](int, Meeting&) -> std::string {
    constexpr std::size_t kBytes = std::size_t{2} << 20;
    CUmemAllocationProp wanted = {};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = exec::location_of(test::device_of(0));
    CUmemGenericAllocationHandle handle = 0;
    auto mapping = exec::CudaMapping::reserve(kBytes);
    if (!mapping || exec::cuda_driver().create(&handle, kBytes, &wanted, 0) != CUDA_SUCCESS ||
        !mapping->add(handle, kBytes))
      return "no memory";
    // Nobody may access it yet, and the driver does not know it.
    const auto early = exec::CudaExport::of(test::device_of(0), mapping->data() + 64, 1000);
    if (early || early.error().code != Code::kInvalidArgument) return "memory without access";
    if (!mapping->allow({test::device_of(0)})) return "no access";
    auto shown = exec::CudaExport::of(test::device_of(0), mapping->data() + 64, 1000);
    if (!shown) return shown.error().to_string();
    if (shown->name().kind != exec::CudaHandleKind::kNone)
      return "it was exported as kind " + std::to_string(static_cast<int>(shown->name().kind));
    exec::CudaName elsewhere = shown->name();
    ++elsewhere.process[0];
    const auto opened = exec::CudaImport::open(test::device_of(0), elsewhere,
                                               Deadline::after(std::chrono::seconds(1)));
    if (opened || opened.error().what != "its device exports no memory") return "it was opened";
    // Beyond the mapping there is nothing to name.
    if (exec::CudaExport::of(test::device_of(0), mapping->data(), kBytes + 1))
      return "what is not there was exported";
    // This process needs no handle.
    const auto own = exec::CudaImport::open(test::device_of(1), shown->name(),
                                            Deadline::after(std::chrono::seconds(1)));
    return own ? "" : own.error().to_string();
  });
}

TEST_CASE("threads of a process open and close the same memory of another one at the same time") {
  constexpr int kThreads = 3, kRounds = 200;
  run_processes(2, [&](int rank, Meeting& meeting) -> std::string {
    constexpr std::size_t kBytes = 4096;
    const int device = test::device_of(rank);
    auto memory = exec::CudaMemory::allocate(device, kBytes);
    if (!memory) return "no memory";
    const auto shown = exec::CudaExport::of(device, memory->data(), kBytes);
    if (!shown) return shown.error().to_string();
    if (shown->name().kind != exec::CudaHandleKind::kIpc) return "no IPC handle";
    meeting.inputs[rank] = shown->name();
    meeting.wait(2, 1);
    const exec::CudaName& name = meeting.inputs[1 - rank];
    std::vector<std::string> complaints(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int round = 0; round < kRounds && complaints[static_cast<std::size_t>(t)].empty();
             ++round) {
          const auto opened =
              exec::CudaImport::open(device, name, Deadline::after(std::chrono::seconds(10)));
          if (!opened) complaints[static_cast<std::size_t>(t)] = opened.error().to_string();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    meeting.wait(2, 2);
    for (const std::string& complaint : complaints) {
      if (!complaint.empty()) return complaint;
    }
    return "";
  });
}

TEST_CASE("memory of the runtime is exported as far as it was allocated, and not that of pools") {
  run_processes(1, [&](int, Meeting&) -> std::string {
    constexpr std::size_t kBytes = 4096;
    const int device = test::device_of(0);
    const auto memory = exec::CudaMemory::allocate(device, kBytes);
    if (!memory) return "no memory";
    for (const std::size_t offset : {std::size_t{0}, std::size_t{512}}) {
      std::byte* const at = memory->data() + offset;
      const auto all = exec::CudaExport::of(device, at, kBytes - offset);
      if (!all) return all.error().to_string();
      if (all->name().kind != exec::CudaHandleKind::kIpc || all->name().offset != offset)
        return "no handle of the whole, with an offset";
      for (const std::size_t more : {kBytes - offset + 1, ~std::size_t{0}}) {
        const auto beyond = exec::CudaExport::of(device, at, more);
        if (beyond || beyond.error().code != Code::kInvalidArgument) return "more than there is";
      }
    }
    const auto pooled = exec::CudaMemory::allocate_private(device, kBytes);
    if (!pooled) return "no memory of a pool";
    const auto shown = exec::CudaExport::of(device, pooled->data(), kBytes);
    return shown || shown.error().code != Code::kUnsupported ? "memory of a pool" : "";
  });
}

#if !defined(TUTTI_GPU)
TEST_CASE("where the system lets nobody make memory for fabric handles, the runtime's is taken") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  run_processes(2, [&](int rank, Meeting& meeting) {
    simt::share_as(CU_MEM_HANDLE_TYPE_FABRIC, false);
    return live(rank, 2, cuda::SlotFormat::kSimple, meeting, seed);
  });
}
#endif

}  // namespace
}  // namespace tutti
