// File: soak/board.h: what the ranks of a round tell the process that watches them, in memory that
// they all map.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

#include "soak/schedstat.h"
#include "tutti/result.h"

namespace tutti::soak {

inline constexpr int kMostRanks = 16;

enum class Phase : int {
  kJoining,
  kRunning,  // Its first calls have worked.
  kEnded,    // Its calls are over: all went well, or the fields below say what did not.
};

/// How long a thread had waited for a CPU.
struct Waited {
  int task = 0;
  std::uint64_t ns = 0;
};

/// One rank. It writes the fields before it stores `phase` with release; the watcher reads them
/// after it has loaded that with acquire.
struct Place {
  std::atomic<int> phase{0};
  std::atomic<std::int32_t> child{0};        // The process that it forked; 0: none.
  std::int64_t ended_ns = 0, called_ns = 0;  // When its last call ended and began; steady clock.
  std::uint64_t steps = 0;
  int code = 0, peer = -1;
  int named = -1;  // The peer's number in the text.
  std::array<char, 1024> text{}, wrong{}, call{};
  std::array<Waited, 32> waits{};  // When the last call had ended: by thread.
  int wait_count = 0;

  void put(std::array<char, 1024>& to, std::string_view from) {
    const std::size_t bytes = std::min(from.size(), to.size() - 1);
    std::memcpy(to.data(), from.data(), bytes);
    to[bytes] = 0;
  }
  void put_waits() {
    wait_count = 0;
    for (const auto& [task, ns] : waited_ns(::getpid())) {
      if (wait_count < static_cast<int>(waits.size()))
        waits[static_cast<std::size_t>(wait_count++)] = {task, ns};
    }
  }
  Phase at() const { return static_cast<Phase>(phase.load(std::memory_order_acquire)); }
  void go(Phase next) { phase.store(static_cast<int>(next), std::memory_order_release); }
};

struct Board {
  // relaxed: nothing else is read because of it.
  std::atomic<bool> finish{false};  // Ranks that have met no error come to an end, together.
  std::atomic<bool> leave{false};   // Ranks that have ended may go.
  std::array<Place, kMostRanks> ranks{};

  static Board* make() {
    void* const memory =
        ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : new (memory) Board;
  }
  static void remove(Board* board) { ::munmap(board, sizeof(Board)); }
};

}  // namespace tutti::soak
