// Communicators of devices whose ranks are processes, or threads of several processes: what one
// process does (communicator_test.cc), over IPC handles.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <list>
#include <optional>
#include <random>
#include <thread>

#include <unistd.h>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "support/processes.h"
#if !defined(TUTTI_GPU)
#include "simt/runtime.h"
#endif

namespace tutti {
namespace {

using test::Case;
using test::DeviceCase;
using test::said;

/// The deadline of calls that have to end long before it.
constexpr std::chrono::seconds kLong{60};

/// What a rank's calls were given, until it calls no more: freeing waits for all that its device
/// does, and so for calls of a rank that shares it and waits for this one's next call.
struct Given {
  std::list<exec::CudaMemory> memories;
  std::list<DeviceCase> cases;

  /// Null: there is none.
  exec::CudaMemory* allocate(int device, std::size_t bytes) {
    auto memory = exec::CudaMemory::allocate(device, bytes);
    return memory ? &memories.emplace_back(std::move(*memory)) : nullptr;
  }
};

/// Sends to the next rank and gets from the one before, more than fits the rings between them.
std::string pass_on(DeviceCommunicator& comm, cudaStream_t stream, Given& given) {
  constexpr std::size_t kCount = 20000;
  const int ranks = comm.rank_count(), me = comm.rank().value;
  exec::CudaMemory* const source = given.allocate(comm.device(), kCount * 4);
  exec::CudaMemory* const target = given.allocate(comm.device(), kCount * 4);
  if (source == nullptr || target == nullptr) return "no memory";
  std::vector<int> data(kCount, me), want(kCount, (me + ranks - 1) % ranks), got(kCount);
  std::string error = said(source->write(0, data.data(), kCount * 4));
  Group group;
  error +=
      said(comm.send(source->data(), kCount, DataType::kInt32, Rank{(me + 1) % ranks}, stream));
  error += said(comm.recv(target->data(), kCount, DataType::kInt32, Rank{want[0]}, stream));
  error += said(group.end());
  error += said(cudaStreamSynchronize(stream));
  error += said(comm.check());
  error += said(target->read(0, got.data(), kCount * 4));
  return !error.empty() ? error : got == want ? "" : "another message came";
}

/// An all-reduce with RMSNorm, on memory that is registered where it can be: in row k of rank r are
/// r + 1, and the residual is k.
std::string normalise(DeviceCommunicator& comm, cudaStream_t stream, Given& given) {
  constexpr std::size_t kRows = 20, kColumns = 100, kCount = kRows * kColumns;
  const int ranks = comm.rank_count();
  exec::CudaMemory* const memory = given.allocate(comm.device(), 3 * kCount * sizeof(float));
  if (memory == nullptr) return "no memory";
  std::vector<float> data(kCount, static_cast<float>(comm.rank().value + 1)),
      weight(kColumns, 1.0F);
  data.insert(data.end(), 2 * kCount, 0.0F);
  for (std::size_t i = 0; i < kCount; ++i) data[kCount + i] = static_cast<float>(i / kColumns);
  std::copy(weight.begin(), weight.end(), data.begin() + 2 * kCount);
  std::string error = said(memory->write(0, data.data(), data.size() * sizeof(float)));
  const Status registered = comm.register_memory(memory->data(), memory->size());
  if (!registered && registered.error().code != Code::kUnsupported) return said(registered);
  RmsNorm call;
  call.input = call.output = memory->data();
  call.residual = memory->data() + kCount * sizeof(float);
  call.weight = memory->data() + 2 * kCount * sizeof(float);
  call.rows = kRows;
  call.columns = kColumns;
  error += said(comm.all_reduce_rms_norm(call, stream));
  error += said(cudaStreamSynchronize(stream));
  error += said(comm.check());
  if (registered) error += said(comm.deregister_memory(memory->data()));
  error += said(memory->read(0, data.data(), data.size() * sizeof(float)));
  for (std::size_t i = 0; i < kCount && error.empty(); ++i) {
    const float sum =
        static_cast<float>(i / kColumns) + static_cast<float>(ranks * (ranks + 1)) / 2;
    if (data[kCount + i] != sum) error = "another sum than " + std::to_string(sum);
    if (data[i] < 0.999F || data[i] > 1.0F) error += " another row";
  }
  return error;
}

/// One rank's life; empty if all is well. `said_of_peers`: what describe() has to say.
std::string live(const test::ScratchDirectory& meeting, int rank, int ranks, std::uint64_t seed,
                 const std::string& said_of_peers = "", int first_device = 0) {
  const auto rendezvous = file_rendezvous(meeting.path(), "devices");
  if (!rendezvous) return rendezvous.error().to_string();
  // Some share one, of their process or of another.
  const int device = test::device_of(first_device + rank % 3);
  Given given;
  auto comm =
      DeviceCommunicator::create(**rendezvous, Rank{rank}, ranks, device, test::small_settings());
  if (!comm) return comm.error().to_string();
  if (const std::string text = comm->describe(); text.find(said_of_peers) == std::string::npos)
    return "it is not said that \"" + said_of_peers + "\": " + text;
  const cudaStream_t stream = test::new_stream(device);
  std::mt19937_64 random(seed);  // The same in all.
  std::string complaint;
  for (int i = 0; i < kCollectiveCount; ++i) {
    for (const std::size_t count : {17, 3000}) {
      Case test;
      test.collective = static_cast<Collective>(i);
      test.ranks = ranks;
      test.type = random() % 2 == 0 ? DataType::kFloat32 : DataType::kBfloat16;
      test.count = count;
      test.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
      const DeviceCase& one =
          given.cases.emplace_back(test, static_cast<std::size_t>(rank), device, random());
      complaint = one.start(*comm, stream);
      if (complaint.empty()) complaint = one.finish(*comm, stream);
      if (!complaint.empty()) {
        comm->abort(complaint);  // The others are not to wait.
        return complaint;
      }
    }
  }
  complaint = pass_on(*comm, stream, given);
  if (complaint.empty()) complaint = normalise(*comm, stream, given);
  auto part = comm->split(rank % 2, 0);
  if (!part) return part.error().to_string();
  if (complaint.empty() && part->rank_count() > 1) complaint = pass_on(*part, stream, given);
  // In another order on every other rank.
  if (rank % 2 == 0) const DeviceCommunicator gone(std::move(*comm));
  if (rank % 2 == 1) const DeviceCommunicator gone(std::move(*part));
  cudaStreamDestroy(stream);
  return complaint;
}

/// So many processes of as many ranks each.
void run_processes(int processes, int threads, std::uint64_t seed) {
  const test::ScratchDirectory meeting;
  test::Processes all(processes, [&](int process) {
    std::vector<std::string> complaints(static_cast<std::size_t>(threads));
    {
      std::vector<std::jthread> ranks;
      for (int thread = 0; thread < threads; ++thread) {
        ranks.emplace_back([&, thread] {
          complaints[static_cast<std::size_t>(thread)] =
              live(meeting, process * threads + thread, processes * threads, seed);
        });
      }
    }
    std::string all_of_them;
    for (const std::string& complaint : complaints) all_of_them += complaint;
    return all_of_them;
  });
  INFO(processes << " processes of " << threads);
  for (int process = 0; process < processes; ++process) REQUIRE(all.wait(process) == 0);
}

TEST_CASE("ranks in processes, one or two to each") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  run_processes(2, 1, seed);
  run_processes(3, 1, seed);
  run_processes(2, 2, seed);
}

#if !defined(TUTTI_GPU)
TEST_CASE("ranks in processes, of which not all reach each other") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  const test::NoPeerAccess none;
  run_processes(3, 2, seed);
}

TEST_CASE("ranks in processes, of which some lose what they write to each other") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  simt::settings().loses_writes[1] = 1;  // What device 1 writes to device 0.
  run_processes(3, 1, seed);
  simt::settings().loses_writes[1] = 0;
}

TEST_CASE("a rank's process has a context on its own device alone") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  for (const bool chosen : {true, false}) {
    const test::ScratchDirectory meeting;
    test::Processes all(2, [&](int rank) -> std::string {
      if (chosen) cudaSetDevice(2 + rank);
      const std::string complaint = live(meeting, rank, 2, seed, "", 2);
      if (!complaint.empty()) return complaint;
      int device = -1;  // As it was before.
      if (cudaGetDevice(&device); device != (chosen ? 2 + rank : 0)) return "another device";
      return simt::contexts() != std::uint64_t{4} << rank
                 ? "contexts on other devices: " + std::to_string(simt::contexts())
                 : "";
    });
    INFO((chosen ? "chosen" : "not chosen"));
    for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank) == 0);
  }
}

TEST_CASE("processes that can't open each other's memory go by the host's") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  for (const bool all_refuse : {true, false}) {
    const test::ScratchDirectory meeting;
    test::Processes all(3, [&](int rank) {
      simt::refuse_handles(all_refuse || rank == 1);
      return live(meeting, rank, 3, seed, all_refuse || rank == 1 ? "host; its memory" : "");
    });
    for (int rank = 0; rank < 3; ++rank) REQUIRE(all.wait(rank) == 0);
  }
}
#endif

TEST_CASE("a process that ends leaves the others with an error, not a hang") {
  const test::ScratchDirectory meeting;
  test::Processes all(2, [&](int rank) -> std::string {
    const auto rendezvous = file_rendezvous(meeting.path(), "devices");
    if (!rendezvous) return rendezvous.error().to_string();
    Settings settings = test::small_settings();
    settings.timeout = kLong;
    std::optional<Result<DeviceCommunicator>> comm(
        DeviceCommunicator::create(**rendezvous, Rank{rank}, 2, test::device_of(rank), settings));
    if (!*comm) return comm->error().to_string();
    if (rank == 1) _exit(0);
    const cudaStream_t stream = test::new_stream(0);
    Case test;
    test.ranks = 2;
    test.count = 3000;
    const DeviceCase one(test, 0, 0, 1);
    const std::string error = one.start(**comm, stream);
    if (!error.empty()) return error;
    cudaStreamSynchronize(stream);
    const Status found = (*comm)->check();
    comm.reset();  // Does not hang either.
    return !found && found.error().code == Code::kPeerFailed ? "" : "rank 0 noticed nothing";
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank) == 0);
}

/// One of three ranks, of which the last kills itself while the others have a call. They ask for
/// its end by `check`, or only wait for their streams, and then have to know it as well.
std::string lose_a_rank(const test::ScratchDirectory& meeting, int rank,
                        const std::string& transport, bool checks) {
  const auto rendezvous = file_rendezvous(meeting.path(), "killed");
  if (!rendezvous) return rendezvous.error().to_string();
  Settings settings = test::small_settings();
  settings.timeout = kLong;
  settings.transport = transport;
  auto comm =
      DeviceCommunicator::create(**rendezvous, Rank{rank}, 3, test::device_of(rank), settings);
  if (!comm) return comm.error().to_string();
  const cudaStream_t stream = test::new_stream(comm->device());
  const DeviceCase one(test::all_reduce_of(3000, 3), static_cast<std::size_t>(rank), comm->device(),
                       1);
  std::string error = one.start(*comm, stream);
  if (error.empty()) error = one.finish(*comm, stream);
  if (!error.empty()) return error;
  test::say_ready(meeting, rank);
  if (rank == 2) {
    while (!test::all_ready(meeting, 3)) usleep(1000);
    kill(getpid(), SIGKILL);
  }
  const auto begin = std::chrono::steady_clock::now();
  error = one.start(*comm, stream);
  Status found = ok();
  while (checks && found && std::chrono::steady_clock::now() - begin < std::chrono::seconds(30)) {
    found = comm->check();
    usleep(5000);
  }
  cudaStreamSynchronize(stream);  // The kernels end as well.
  const auto took = std::chrono::steady_clock::now() - begin;
  found = comm->check();
  if (found) return "it noticed nothing";
  if (found.error().code != Code::kPeerFailed || found.error().peer.value != 2)
    return "another error: " + found.error().to_string();
  if (took < std::chrono::seconds(20)) return "";
  return "too late: " + std::to_string(std::chrono::duration<double>(took).count()) + " s";
}

TEST_CASE("a rank that is killed ends the calls of the others long before the deadline") {
  for (const bool checks : {true, false}) {
    for (const char* transport : {"", "tcp"}) {
      const test::ScratchDirectory meeting;
      test::Processes all(3,
                          [&](int rank) { return lose_a_rank(meeting, rank, transport, checks); });
      INFO("transport " << transport << (checks ? ", checked" : ", streams alone"));
      CHECK(all.wait(2) == 128 + SIGKILL);
      for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank) == 0);
    }
  }
}

TEST_CASE("hosts are processes; one that ends leaves the others with an error that says so") {
  const test::ScratchDirectory meeting;
  test::Processes all(3, [&](int rank) -> std::string {
    const auto rendezvous = file_rendezvous(meeting.path(), "hosts");
    if (!rendezvous) return rendezvous.error().to_string();
    Settings settings = test::small_settings();
    settings.transport = "tcp";
    settings.timeout = kLong;
    // The same device on all hosts, and not the same device.
    auto comm = DeviceCommunicator::create(**rendezvous, Rank{rank}, 3, 0, settings);
    if (!comm) return comm.error().to_string();
    const cudaStream_t stream = test::new_stream(0);
    for (const std::size_t count : {5, 4000}) {
      const DeviceCase one(test::all_reduce_of(count, 3), static_cast<std::size_t>(rank), 0, 1);
      std::string error = one.start(*comm, stream);
      if (error.empty()) error = one.finish(*comm, stream);
      if (!error.empty()) return error;
    }
    test::say_ready(meeting, rank);
    // What it has sent may still be on its way when its own calls have ended.
    if (rank == 1) _exit(test::all_ready(meeting, 3) ? 0 : 1);
    const DeviceCase one(test::all_reduce_of(3000, 3), static_cast<std::size_t>(rank), 0, 1);
    const std::string error = one.start(*comm, stream);
    if (!error.empty()) return error;
    cudaStreamSynchronize(stream);
    const Status found = comm->check();
    if (found) return "it noticed nothing";
    const std::string& what = found.error().what;
    const bool named = what.find("rank 1 can't be reached any more") != std::string::npos;
    return found.error().code == Code::kPeerFailed && named ? "" : what;
  });
  for (int rank = 0; rank < 3; ++rank) CHECK(all.wait(rank) == 0);
}

#if !defined(TUTTI_GPU)
std::size_t memory_in_use() {
  const exec::OnDevice on(0);
  std::size_t available = 0, total = 0;
  cudaMemGetInfo(&available, &total);
  return total - available;
}

TEST_CASE("memory is freed once all processes have closed it, where handles are IPC's") {
  const test::ScratchDirectory meeting;
  test::Processes all(2, [&](int rank) -> std::string {
    simt::share_as(0);
    const auto rendezvous = file_rendezvous(meeting.path(), "devices");
    if (!rendezvous) return rendezvous.error().to_string();
    auto comm = DeviceCommunicator::create(**rendezvous, Rank{rank}, 2, rank);
    if (!comm) return comm.error().to_string();
    std::optional<DeviceCommunicator> one(*std::move(comm));
    // Rank 1 leaves first, waits for rank 0 in vain, and looks no more.
    const auto reached = [&](const std::string& name) {
      const auto end = std::chrono::steady_clock::now() + kLong;
      while (access((meeting.path() + name).c_str(), F_OK) != 0) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      return true;
    };
    const auto note = [&](const std::string& name) { std::ofstream(meeting.path() + name) << "."; };
    if (rank == 0 && !reached("/left")) return "rank 1 does not leave";
    one.reset();
    if (rank == 0 && memory_in_use() != 0) return "its memory is not freed";
    note(rank == 0 ? "/freed" : "/left");
    if (rank == 1 && !reached("/freed")) return "rank 0 does not leave";
    return simt::freed_while_open() == 0 ? "" : "rank 1 had it open";
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank) == 0);
}

TEST_CASE("a process that ends lets what frees a communicator come to its end") {
  static std::atomic<bool> ending{false};
  test::Processes all(1, [](int) -> std::string {
    // Those that are registered first are called last.
    std::atexit([] { _exit(memory_in_use() == 0 ? 0 : 2); });
    test::DeviceCluster cluster({0, 1});
    if (!cluster.complaint.empty()) return cluster.complaint;
    std::string error =
        run_in_group(cluster.comms, cluster.streams, test::all_reduce_of(3000, 2), 1);
    if (memory_in_use() == 0) error += "the ranks have no memory";
    // Freeing may wait for all that the device does, and this lasts until the process ends.
    simt::settings().unmap_waits = true;
    cudaLaunchHostFunc(
        cluster.streams[0], [](void*) { ending.wait(false); }, nullptr);
    cluster.comms.clear();
    if (memory_in_use() == 0) error += "nothing is left to be freed";
    if (!error.empty()) return error;
    std::atexit([] {
      ending = true;
      ending.notify_all();
    });
    std::exit(1);
  });
  CHECK(all.wait(0) == 0);
}
#endif

}  // namespace
}  // namespace tutti
