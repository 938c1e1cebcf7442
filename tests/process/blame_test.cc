// Ranks as processes, of which one is killed or stopped in the middle. All others name it and its
// process, in the next call too. A rank whose buffer a stopped rank still uses says so.
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "base/fd.h"
#include "support/catch.h"
#include "support/processes.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kF32 = DataType::kFloat32;

/// "" if the error blames the rank that runs as `pid`.
std::string blames(const Error& error, const Communicator& comm, Rank peer) {
  const std::string place = "(rank " + std::to_string(peer.value) + " is pid ";
  const bool right = error.peer == peer && error.rank == comm.rank() &&
                     error.what.find(place) != std::string::npos;
  return right ? "" : "blames " + std::to_string(error.peer.value) + ": " + error.to_string();
}

/// Makes all-reduces until one fails. Says that it is ready once one has worked.
Error until_failure(Communicator& comm, std::span<float> data, const ScratchDirectory& directory) {
  for (bool first = true;; first = false) {
    auto status = comm.all_reduce(data.data(), data.data(), data.size(), kF32, ReduceOp::kMax);
    if (!status) return status.error();
    if (first) say_ready(directory, comm.rank().value);
  }
}

TEST_CASE("all ranks blame the one that was killed or stopped, also those that wait for others") {
  Settings settings;
  settings.transport = GENERATE("shared_memory", "tcp");
  settings.algorithm = GENERATE("", "ring");  // Where each waits for its neighbour.
  settings.contract = Contract::kRelaxed;
  settings.timeout = 2s;
  const int signal = GENERATE(SIGKILL, SIGSTOP);
  INFO(settings.transport << " " << settings.algorithm << ", signal " << signal);
  const ScratchDirectory meeting;
  RankProcesses processes(meeting, 4, settings, [&](int, Communicator& comm) -> std::string {
    std::vector<float> data(settings.algorithm.empty() ? 100 : 300'000);
    const Error error = until_failure(comm, data, meeting);
    if (auto wrong = blames(error, comm, Rank{3}); !wrong.empty()) return wrong;
    return blames(comm.barrier().error(), comm, Rank{3});
  });
  REQUIRE(all_ready(meeting, 4));
  processes.signal(3, signal);
  for (int rank = 0; rank < 3; ++rank) CHECK(processes.wait(rank, 60s) == 0);
}

TEST_CASE("a call that fails while a stopped rank is in its buffers says so") {
  Settings settings;
  settings.transport = "shared_memory";
  settings.timeout = 1500ms;
  bool said = false;
  for (int round = 0; round < 24 && !said; ++round) {  // It may be stopped between two calls.
    const ScratchDirectory meeting;
    Processes processes(3, [&](int rank) -> std::string {
      auto comm = join(meeting, rank, 3, settings);
      if (!comm) return comm.error().to_string();
      constexpr std::size_t kCount = std::size_t{16} << 20;
      auto memory = mem_alloc(kCount * sizeof(float));
      if (!memory) return memory.error().to_string();
      const Error error = until_failure(*comm, {static_cast<float*>(*memory), kCount}, meeting);
      const bool writes =
          error.what.find("rank 2 may still write into this call's buffers") != std::string::npos;
      if (writes) std::ofstream(meeting.path() + "/said").put('\n');
      return error.code == Code::kTimeout ? "" : "unexpected: " + error.to_string();
    });
    REQUIRE(all_ready(meeting, 3));
    processes.signal(2, SIGSTOP);
    for (int rank = 0; rank < 2; ++rank) CHECK(processes.wait(rank, 60s) == 0);
    said = std::filesystem::exists(meeting.path() + "/said");
    processes.signal(2, SIGCONT);
    CHECK(processes.wait(2, 60s) == 0);
  }
  CHECK(said);
}

TEST_CASE("an abort ends the wait for memory of a rank that does not answer") {
  using std::filesystem::exists;
  const ScratchDirectory meeting;
  const std::string go = meeting.path() + "/go";
  RankProcesses processes(meeting, 2, {}, [&](int rank, Communicator& comm) -> std::string {
    constexpr std::size_t kCount = std::size_t{1} << 20;
    auto memory = mem_alloc(kCount * sizeof(float));
    if (!memory) return memory.error().to_string();
    auto* const data = static_cast<float*>(*memory);
    if (rank == 1) {
      auto sent = comm.start_send(data, kCount, kF32, Rank{0});
      std::this_thread::sleep_for(200ms);  // The progress thread has told the receiver.
      say_ready(meeting, rank);
      return sent && !sent->wait() ? "" : "the message was taken";
    }
    say_ready(meeting, rank);
    if (!eventually([&] { return exists(go); })) return "no go";
    std::jthread ends([&] {
      std::this_thread::sleep_for(300ms);
      comm.abort("out of patience");
    });
    const auto start = std::chrono::steady_clock::now();
    const Status status = comm.recv(data, kCount, kF32, Rank{1});
    if (status) return "the message came";
    if (status.error().code != Code::kAborted) return status.error().to_string();
    // It waits for memory 5 s long.
    return std::chrono::steady_clock::now() - start < 3s ? "" : "late";
  });
  REQUIRE(all_ready(meeting, 2));
  processes.signal(1, SIGSTOP);
  std::ofstream(go).put('\n');
  CHECK(processes.wait(0, 60s) == 0);
  processes.signal(1, SIGCONT);
  CHECK(processes.wait(1, 60s) == 0);
}

constexpr std::size_t kMapped = std::size_t{1} << 20;  // Elements.

/// A rank of three with memory that the others can map. Rank 1 is the first to give up.
std::string with_memory(const ScratchDirectory& meeting, int rank,
                        const std::function<std::string(Communicator& comm, float* memory)>& body) {
  Settings settings;
  settings.transport = "shared_memory";
  settings.timeout = rank == 1 ? 2s : 60s;
  auto comm = join(meeting, rank, 3, settings);
  if (!comm) return comm.error().to_string();
  auto memory = mem_alloc(kMapped * sizeof(float));
  return memory ? body(*comm, static_cast<float*>(*memory)) : memory.error().to_string();
}

/// "" if the call ended by a deadline and blames rank 0.
std::string blames_0(const Status& status, const Communicator& comm) {
  if (status) return "it worked";
  if (status.error().code != Code::kTimeout) return status.error().to_string();
  return blames(status.error(), comm, Rank{0});
}

// Rank 2 waits for memory of rank 0, and rank 1 for both.
TEST_CASE("a rank that waits for memory shows whose, and is not blamed itself") {
  using std::filesystem::exists;
  const ScratchDirectory meeting;
  const std::string go = meeting.path() + "/go";
  Processes processes(3, [&](int rank) {
    return with_memory(meeting, rank, [&](Communicator& comm, float* memory) -> std::string {
      if (rank == 0) {
        auto sent = comm.start_send(memory, kMapped, kF32, Rank{2});
        std::this_thread::sleep_for(200ms);  // The progress thread has told the receiver.
        say_ready(meeting, rank);
        return sent && !sent->wait() ? "" : "the message was taken";
      }
      say_ready(meeting, rank);
      if (!eventually([&] { return exists(go); })) return "no go";
      return blames_0(rank == 1 ? comm.barrier() : comm.recv(memory, kMapped, kF32, Rank{0}), comm);
    });
  });
  REQUIRE(all_ready(meeting, 3));
  processes.signal(0, SIGSTOP);
  std::ofstream(go).put('\n');
  for (const int rank : {1, 2}) CHECK(processes.wait(rank, 60s) == 0);
  processes.signal(0, SIGCONT);
  CHECK(processes.wait(0, 60s) == 0);
}

/// The socket at which this process hands out memory, as connect takes it.
std::string own_server() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry, gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    std::istringstream words(line);
    const std::vector<std::string> columns{std::istream_iterator<std::string>(words), {}};
    if (columns.size() == 8 && columns[7].starts_with("@tutti-") && inodes.contains(columns[6]))
      return '\0' + columns[7].substr(1);
  }
  return "";
}

/// Connections to this process's server that say nothing: it takes 64 at a time, a second each.
std::vector<Fd> silent_clients(int count) {
  const std::string name = own_server();
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::copy(name.begin(), name.end(), address.sun_path);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  std::vector<Fd> clients;
  for (int i = 0; i < count && !name.empty(); ++i) {
    Fd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(client.get(), reinterpret_cast<sockaddr*>(&address), length) == 0)
      clients.push_back(std::move(client));
  }
  return clients;
}

// The same in a call, whose ranks have announced their buffers. Rank 1 has mapped rank 0's before.
TEST_CASE("a rank that waits for memory in a call shows whose") {
  const ScratchDirectory meeting;
  Processes processes(3, [&](int rank) {
    return with_memory(meeting, rank, [&](Communicator& comm, float* memory) -> std::string {
      Status status = rank == 0   ? comm.send(memory, kMapped, kF32, Rank{1})
                      : rank == 1 ? comm.recv(memory, kMapped, kF32, Rank{0})
                                  : ok();
      if (status) status = comm.barrier();
      if (!status) return status.error().to_string();
      std::vector<Fd> clients;
      if (rank == 0) clients = silent_clients(500);
      if (rank == 0 && clients.size() != 500) return "its server takes no connections";
      status = comm.all_reduce(memory, memory, kMapped, kF32, ReduceOp::kMax);
      if (rank != 0) return blames_0(status, comm);
      return status ? "it worked" : "";
    });
  });
  for (int rank = 0; rank < 3; ++rank) CHECK(processes.wait(rank, 60s) == 0);
}

}  // namespace
}  // namespace tutti::test
