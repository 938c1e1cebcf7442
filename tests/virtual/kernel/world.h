// File: virtual/kernel/world.h: all that the processes of a simulated run share.
//
// The world is memory that the driver maps before it forks the ranks, so it has the same address in
// all of them. One thread of all processes runs at a time: the one that holds the baton. Only that
// one reads or writes the world, so nothing in it is atomic but the words by which the baton is
// handed on.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti::virt {

using Time = std::uint64_t;  // Virtual nanoseconds.
inline constexpr Time kNever = ~Time{0};
inline constexpr Time kMicro = 1'000, kMilli = 1'000'000, kSecond = 1'000'000'000;

inline constexpr int kMostHosts = 8, kMostRails = 3;
inline constexpr int kMostRanks = 1024;

/// SplitMix64: the state is a counter, so a seed is a whole stream.
struct Random {
  std::uint64_t state = 0;
  std::uint64_t next() {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// From 0 to `end` - 1.
  std::uint64_t below(std::uint64_t end) { return end <= 1 ? 0 : next() % end; }
  std::uint64_t between(std::uint64_t first, std::uint64_t last) {
    return first + below(last - first + 1);
  }
  bool one_in(std::uint64_t count) { return count != 0 && below(count) == 0; }
};

/// What a thread waits for.
enum class Wait : std::uint8_t { kNone, kTime, kKey, kSockets };

/// One descriptor of a thread that polls: a virtual socket, or -1 for an object of the real kernel.
struct PollItem {
  std::int32_t socket = -1;
  std::int16_t events = 0;
};

/// A thread of a rank, or the driver.
struct Entity {
  enum class State : std::uint8_t { kFree, kRunnable, kWaiting, kDone };
  std::atomic<std::uint32_t> go{0};  // The baton; also the word of the real futex.
  State state = State::kFree;
  Wait wait = Wait::kNone;
  bool timed_out = false;
  bool polls_real = false;  // Some of what it polls is the real kernel's.
  std::int32_t process = -1;
  std::int32_t place = -1;       // In World::runnable.
  std::uint32_t generation = 0;  // Changes with every wait, so that old timers do nothing.
  std::uint64_t key[2] = {};     // What it waits for by kKey.
  std::uint64_t thread = 0;      // pthread_t, for pthread_join.
  PollItem* items = nullptr;
  std::int32_t item_count = 0;
};

/// A process: a rank, or a child that a rank has forked.
struct Process {
  std::int32_t pid = 0;  // The real one; 0: none.
  std::int32_t rank = -1, host = 0;
  std::int32_t parent = -1;  // The process that forked this one.
  bool alive = false, exiting = false, killed = false, finished = false;
  bool dirty = false;  // A socket of it has changed: its pollers look again.
  Time stalled_until = 0, forked_at = kNever, killed_at = kNever;
  std::int32_t* descriptors = nullptr;  // By number: kind or virtual socket, see Descriptor.
  std::uint64_t random = 0;             // State of its getrandom.
};

/// Values of Process::descriptors. From kFirstSocket on: the virtual socket of that index.
enum Descriptor : std::int32_t { kUnknown = 0, kWakes = 1, kEpoll = 2, kFirstSocket = 8 };

struct Event {
  enum class Kind : std::uint8_t { kTimer, kSocket, kStalled };
  Time at = 0;
  std::uint64_t order = 0;  // Events of one time happen in this order.
  Kind kind = Kind::kTimer;
  std::int32_t index = 0;
  std::uint32_t generation = 0;
};

/// A piece of a stream on its way. The end of a stream and a reset are pieces without bytes.
struct Segment {
  enum class Kind : std::uint8_t { kData, kEnd, kReset };
  Time at = 0;
  Kind kind = Kind::kData;
  std::int32_t next = -1;
  std::uint32_t bytes = 0, taken = 0;
  std::byte* data = nullptr;
};

struct Socket {
  enum class State : std::uint8_t {
    kFree,
    kFresh,
    kListening,
    kConnecting,
    kOpen,
    kBroken,
    kEvent
  };
  State state = State::kFree;
  bool shut = false;      // This end has sent its end.
  bool ended = false;     // The peer's end has come.
  bool refused = false;   // While connecting: the answer is a refusal.
  bool accepted = false;  // Somebody has a descriptor of it.
  bool shared = false;    // Several processes have it.
  bool reached = false;   // While connecting: the request has arrived.
  std::int32_t error = 0;
  std::int32_t references = 0;
  std::int32_t process = -1, host = -1, rail = -1;
  std::int32_t peer = -1;  // Socket; -1: gone.
  std::uint32_t generation = 0;
  std::uint32_t own_ip = 0, peer_ip = 0;  // Host order.
  std::uint16_t own_port = 0, peer_port = 0;
  std::int32_t user_timeout_ms = 0;
  bool called = false;                  // This end has connected.
  std::uint64_t sent = 0;               // Bytes.
  Time latest = 0;                      // When the last piece to this end arrives.
  Time waits_since = kNever;            // Unacknowledged since, on a link that carries nothing.
  std::int32_t first = -1, last = -1;   // Segments to this end.
  std::uint32_t queued = 0, ready = 0;  // Bytes to this end: all, and those that have arrived.
  bool end_ready = false;
  std::int32_t waiting_first = -1, waiting_last = -1;  // A listener's sockets to accept.
  std::int32_t next = -1;                              // In such a list, or of free sockets.
  std::int32_t next_bound = -1;                        // In World::first_bound.
};

/// What a forger does to one packet of a connection.
enum class Forgery : std::uint8_t { kNone, kChange, kRepeat, kDrop };

/// What a run may do to its ranks, drawn from the seed.
struct Faults {
  std::uint32_t kills = 0;           // How many ranks.
  std::uint64_t kill_at_point = 0;   // Points of schedule from the start, or after joining.
  bool kill_host = false;            // The rank's host vanishes: no connection is closed.
  std::int32_t in_call = -1;         // Points count from when the first rank makes that call.
  bool after_joining = false;        // Points count from when all ranks have joined.
  std::uint64_t stall_at_point = 0;  // 0: never.
  std::uint32_t stall_at_step = 0;   // Or at this data step, in the middle of a plan.
  Time stall_for = 0;
  std::uint64_t cut_at_point = 0;    // Partition of a host; 0: never.
  Time cut_for = 0;                  // kNever: for good.
  std::uint64_t reset_at_point = 0;  // A connection between ranks.
  Forgery forgery = Forgery::kNone;
  std::uint64_t forge_at_point = 0;
  std::uint64_t refuse_one_in = 0;  // System calls that fail.
  std::uint64_t fork_in_rank = 0;   // 1 + the rank that forks a child which outlives it.
};

enum class Joining : std::uint8_t { kDirectory, kTcp, kUniqueId };

struct Parameters {
  std::uint64_t seed = 0;
  std::int32_t ranks = 2, hosts = 1, rails = 1, cpus = 2;
  std::int32_t switch_one_in = 8;  // At a point, the thread hands on the baton.
  Joining joining = Joining::kDirectory;
  bool starts_all = false;    // Collectives are started, and none is blocking.
  bool one_of_each = false;   // The calls are the collectives, one after another.
  bool recovers = false;      // Ranks that are left shrink the communicator.
  bool repeats = false;       // Most calls are short ones, again and again.
  bool windows = false;       // Most calls make a window, use it and close it.
  bool mapped = false;        // All calls are large, on memory that peers can map.
  bool shared_memory = true;  // Only ranks of one host have it; else TCP.
  std::int32_t timeout_ms = 5000, calls = 8, most_kib = 16;
  std::int32_t odd_call = -1, odd_rank = -1;        // This rank makes another call.
  std::int32_t abort_call = -1, abort_rank = -1;    // This rank aborts before that call.
  std::int32_t absent_call = -1, absent_rank = -1;  // This rank comes late, past all deadlines.
  std::int32_t late_rank = -1;  // It joins when the others' time is nearly over, or just over:
  Time late_by = 0;             // so long after they did.
  bool abort_thread = false;    // On a thread of its own.
  Time slack = 0;               // By which timers are late.
  Time latency = 20 * kMicro, jitter = 10 * kMicro;
  std::uint64_t bytes_per_ms = 1'000'000;
  std::uint32_t loss_one_in = 0;
  std::uint32_t window = 65536;        // Bytes of a connection under way in one direction.
  std::uint32_t interrupt_one_in = 0;  // Waits that a signal ends.
  std::uint32_t preempt_one_in = 0;    // Points at which a process loses its CPU for a moment.
  std::uint32_t short_one_in = 0;      // Reads and writes that move less than they could.
  Faults faults;
};

/// How one call of a rank went.
struct CallReport {
  Time begin = 0, end = 0;  // The last time, if it is repeated.
  Time first = 0;           // When it began the first time.
  Time ok_begin = 0;        // When the last one that was ok began.
  std::int32_t code = 0, peer = -1, number = 0;
  std::int32_t part = 0;  // Which communicator.
  bool wrong = false, touched = false, done = false;
  bool starved = false;
  bool splits = false;  // It makes another communicator.
  bool alone = false;   // A collective that needs nothing of the others.
  bool empty = false;   // No elements: such a call synchronises nothing.
  char what[32] = {};
  char text[360] = {};
};
inline constexpr int kMostCalls = 48;

/// How a rank went on after a failure.
struct RecoveryReport {
  bool begun = false, added = false, wrong = false;
  Time begin = 0, shrunk_at = 0, end = 0;
  std::uint64_t members = 0, agreed = 0;  // A bit for each rank.
  std::int32_t code = 0, peer = -1;
  char text[360] = {};
};

struct RankReport {
  bool joined = false, finished = false;
  // When it stopped because a call on another communicator than that of all had failed.
  Time stopped_at = kNever;
  std::int32_t forks = 0, children_went_on = 0;
  std::int32_t call_count = 0;
  char leaks[200] = {};  // What is left after the end, for people.
  CallReport join;
  RecoveryReport recovery;
  CallReport calls[kMostCalls];
};

/// A request to the driver of the thread that handed it the baton.
struct DriverRequest {
  enum class Kind : std::uint8_t { kNone, kExit, kKill, kDeadlock, kLimit };
  Kind kind = Kind::kNone;
  std::int32_t process = -1;
};

struct World {
  bool running = false, trace = false;
  bool network_changed = false;  // Some process is dirty.
  Time now = 0;
  std::uint64_t points = 0, switches = 0, hash = 0, order = 0;
  std::uint64_t limit_points = 0;
  Random random;
  Parameters parameters;
  DriverRequest request;
  std::int32_t joined = 0;
  std::uint64_t joined_at_point = 0, called_at_point = 0;
  std::uint32_t steps = 0;                     // Data steps since then.
  std::uint32_t faulty[kMostRanks / 32] = {};  // Ranks that a fault has hit.
  Time fault_at = kNever;                      // When the first did.
  bool stall_done = false, cut_done = false, reset_done = false, network_hit = false;
  bool forge_begun = false, forges = false;  // The next packet is forged.
  bool data_hit = false;                     // What was forged carries no proof of its sender.
  std::int32_t kills_done = 0;
  Time aborted_at = kNever, killed_at = kNever;  // The first time.
  std::int32_t driver_pid = 0;                   // The real one.
  bool has_id = false;
  std::byte unique_id[128] = {};
  char directory[64] = {};

  // Links between hosts: nothing passes before that.
  Time blocked_until[kMostHosts][kMostHosts] = {};
  std::uint16_t next_port[kMostHosts] = {};

  std::int32_t most_entities = 0, entity_count = 0;
  std::int32_t most_processes = 0, process_count = 0;
  std::int32_t most_descriptors = 0, most_items = 0;
  std::int32_t most_sockets = 0, socket_count = 0, free_socket = -1;
  std::int32_t first_bound = -1;  // Sockets that have a port of their own and no connection.
  std::int32_t most_segments = 0, segment_count = 0, free_segment = -1;
  std::int32_t most_events = 0, event_count = 0, runnable_count = 0;
  std::uint32_t segment_bytes = 0;
  Entity* entities = nullptr;
  Process* processes = nullptr;
  Socket* sockets = nullptr;
  Segment* segments = nullptr;
  Event* events = nullptr;  // A heap, the earliest first.
  std::int32_t* runnable = nullptr;
  RankReport* reports = nullptr;
};

extern World* world;               // Null outside of the simulator.
extern thread_local Entity* self;  // This thread; null: not one of the simulated ones.

inline Process& own_process() { return world->processes[self->process]; }

/// True in a thread whose calls are simulated.
inline bool active() { return self != nullptr && self->process >= 0 && world->running; }

}  // namespace tutti::virt
