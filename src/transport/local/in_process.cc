// In-process transport: ranks are threads of one process, so every buffer of every rank is mapped.
#include <cstring>
#include <map>
#include <mutex>

#include "base/fork.h"
#include "base/mapped_memory.h"
#include "transport/transport.h"

namespace tutti {
namespace {

/// The region's memory; freed with the last rank that holds it.
using Memory = std::shared_ptr<MappedMemory>;

/// Where rank 0 leaves the memory until the others of its process have picked it up.
struct Lobby {
  std::mutex mutex;
  std::uint64_t next = 1;
  std::map<std::uint64_t, Memory> memories;
};
Lobby& lobby() {
  static Lobby instance;
  return instance;
}
const HeldAcrossFork lobby_held(ForkOrder::kLobby, []() -> std::mutex& { return lobby().mutex; });

/// Rank 0's memory, in the lobby. The destructor takes it out, also if joining fails.
class Ticket {
 public:
  Ticket() = default;
  ~Ticket() {
    if (number_ == 0) return;
    const std::lock_guard lock(lobby().mutex);
    lobby().memories.erase(number_);
  }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  std::uint64_t leave(Memory memory) {
    const std::lock_guard lock(lobby().mutex);
    lobby().memories[lobby().next] = std::move(memory);
    return number_ = lobby().next++;
  }

 private:
  std::uint64_t number_ = 0;
};

class InProcessEndpoint final : public Endpoint {
 public:
  InProcessEndpoint(Memory memory, const RegionConfig& config)
      : memory_(std::move(memory)), region_(memory_->get(), config) {}
  const Region& region() const override { return region_; }
  BufferName name(const void* data, std::size_t) override {
    return {1, reinterpret_cast<std::uintptr_t>(data)};
  }
  Result<std::byte*> map(int, BufferName name, std::size_t) override {
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(name.offset));
  }
  bool alive(int) const override { return true; }
  std::size_t shared_bytes() const override { return memory_->get_deleter().bytes; }

 private:
  Memory memory_;
  Region region_;
};

Result<std::unique_ptr<Endpoint>> open(const Opening& opening) {
  std::uint64_t ticket = 0;
  Memory memory;
  Ticket left;  // The lobby holds the memory until all ranks have it or joining has failed.
  if (opening.me == 0) {
    const std::size_t bytes = Region::bytes_for(opening.config);
    memory = std::make_shared<MappedMemory>(map_memory(bytes, MAP_SHARED | MAP_ANONYMOUS));
    if (*memory == nullptr)
      return Error{Code::kSystem, "in_process: no memory for " + std::to_string(bytes) + " bytes"};
    Region(memory->get(), opening.config).format();
    ticket = left.leave(memory);
  }

  TUTTI_TRY(const auto tickets, opening.exchange("ticket", std::as_bytes(std::span(&ticket, 1))));
  if (tickets[0].size() != sizeof(ticket))
    return Error{Code::kMismatch, "in_process: rank 0 sent no ticket"};
  std::memcpy(&ticket, tickets[0].data(), sizeof(ticket));
  if (opening.me != 0) {
    const std::lock_guard lock(lobby().mutex);
    const auto found = lobby().memories.find(ticket);
    if (found == lobby().memories.end()) {
      return Error{Code::kMismatch, "in_process: rank 0 is not in this process"};
    }
    memory = found->second;
  }
  TUTTI_TRY([[maybe_unused]] const auto all, opening.exchange("taken", {}));
  return std::unique_ptr<Endpoint>(
      std::make_unique<InProcessEndpoint>(std::move(memory), opening.config));
}

}  // namespace

constinit const Transport in_process_transport{.name = "in_process",
                                               .joins = "ranks of one process",
                                               .reach =
                                                   [](const Peer& self, const Peer& peer) {
                                                     return self.process[0] == peer.process[0] &&
                                                            self.process[1] == peer.process[1];
                                                   },
                                               .open = open};

}  // namespace tutti
