// File: litmus/memory_model.h: PTX's memory consistency model (PTX ISA, chapter "Memory Consistency
// Model"; Lustig, Sahasrabuddhe and Giroux, "A Formal Analysis of the NVIDIA PTX Memory Consistency
// Model", ASPLOS 2019) as a predicate: whether an execution is allowed.
//
// Two axioms are not here, as they follow from the others where there are no read-modify-writes:
// sequential consistency per location; and that the order of the fence.sc does not contradict
// causality, since an order that does only adds to causality, and so allows nothing more.
//
// An execution is a list of events, the write that each read reads, an order of the writes to each
// location, and one of the fence.sc. Locations do not overlap. Left out, as no protocol here needs
// them: read-modify-writes, other proxies than the generic one, accesses that overlap in part.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tutti::litmus {

/// A barrier of a block is two events: a thread arrives, and leaves when all have arrived.
enum class Kind { kRead, kWrite, kFence, kArrive, kLeave };
enum class Order { kWeak, kRelaxed, kAcquire, kRelease, kAcquireRelease, kSequential };
enum class Scope { kBlock, kDevice, kSystem };

struct Where {
  unsigned block, device;  // A block has a number of its own on all devices.
};

inline constexpr unsigned kInitially = ~0u;  // The "thread" that writes what is there at first.

struct Event {
  Kind kind;
  Order order;
  Scope scope;
  unsigned thread;
  unsigned location;     // For a barrier: its number in the block.
  std::uint64_t value;   // Read or written.
  bool depends = false;  // On the reads of its thread before it.
};

struct Execution {
  std::vector<Where> threads;
  std::vector<Event> events;        // Thread by thread, in program order; initial writes first.
  std::vector<std::size_t> source;  // By event: the write that it reads.
  std::vector<unsigned> rank;  // By event: a write's among those to its location, a fence.sc's.
};

/// A relation between up to 64 events.
class Relation {
 public:
  bool has(std::size_t a, std::size_t b) const { return (rows_[a] >> b & 1) != 0; }
  void add(std::size_t a, std::size_t b) { rows_[a] |= std::uint64_t{1} << b; }
  /// Makes it transitive.
  void close() {
    for (std::size_t middle = 0; middle < rows_.size(); ++middle) {
      for (auto& row : rows_) {
        if ((row >> middle & 1) != 0) row |= rows_[middle];
      }
    }
  }
  bool is_cyclic() const {
    Relation closed = *this;
    closed.close();
    for (std::size_t a = 0; a < rows_.size(); ++a) {
      if (closed.has(a, a)) return true;
    }
    return false;
  }
  /// Adds a -> c for each a -> b here and b -> c there.
  Relation then(const Relation& other) const {
    Relation result;
    for (std::size_t a = 0; a < rows_.size(); ++a) {
      for (std::size_t b = 0; b < rows_.size(); ++b) {
        if (has(a, b)) result.rows_[a] |= other.rows_[b];
      }
    }
    return result;
  }
  Relation operator|(const Relation& other) const {
    Relation result;
    for (std::size_t a = 0; a < rows_.size(); ++a) result.rows_[a] = rows_[a] | other.rows_[a];
    return result;
  }

 private:
  std::array<std::uint64_t, 64> rows_{};
};

/// What is known of the events of an execution before the sources of reads are known.
class Facts {
 public:
  explicit Facts(const Execution& execution) : run_(execution), events_(execution.events) {}

  bool is_memory(std::size_t a) const {
    return events_[a].kind == Kind::kRead || events_[a].kind == Kind::kWrite;
  }
  bool is_write(std::size_t a) const { return events_[a].kind == Kind::kWrite; }
  bool is_strong(std::size_t a) const { return events_[a].order != Order::kWeak; }
  bool same_location(std::size_t a, std::size_t b) const {
    return is_memory(a) && is_memory(b) && events_[a].location == events_[b].location;
  }
  bool in_program_order(std::size_t a, std::size_t b) const {
    const bool initially = events_[a].thread == kInitially && events_[b].thread != kInitially;
    return initially || (a < b && events_[a].thread == events_[b].thread);
  }
  /// Whether the scope of `a` includes the thread of `b`.
  bool includes(std::size_t a, std::size_t b) const {
    if (events_[a].thread == kInitially || events_[b].thread == kInitially) return true;
    const Where mine = run_.threads[events_[a].thread], other = run_.threads[events_[b].thread];
    switch (events_[a].scope) {
      case Scope::kBlock: return mine.block == other.block;
      case Scope::kDevice: return mine.device == other.device;
      case Scope::kSystem: return true;
    }
    return false;
  }
  bool morally_strong(std::size_t a, std::size_t b) const {
    if (is_memory(a) && is_memory(b) && !same_location(a, b)) return false;
    if (in_program_order(a, b) || in_program_order(b, a)) return true;
    return is_strong(a) && is_strong(b) && includes(a, b) && includes(b, a);
  }
  bool is_fence(std::size_t a) const { return events_[a].kind == Kind::kFence; }
  bool is_sequential(std::size_t a) const {
    return is_fence(a) && events_[a].order == Order::kSequential;
  }
  bool releases(std::size_t a) const {
    if (is_fence(a)) return events_[a].order != Order::kAcquire;
    return is_write(a) && events_[a].order == Order::kRelease;
  }
  bool acquires(std::size_t a) const {
    if (is_fence(a)) return events_[a].order != Order::kRelease;
    return events_[a].kind == Kind::kRead && events_[a].order == Order::kAcquire;
  }

  /// Whether `first` up to the strong write is a release pattern on the write's location.
  bool is_release_pattern(std::size_t first, std::size_t write) const {
    if (!is_write(write) || !is_strong(write) || !releases(first)) return false;
    if (first == write) return true;
    return in_program_order(first, write) && (is_fence(first) || same_location(first, write));
  }
  bool is_acquire_pattern(std::size_t read, std::size_t last) const {
    if (events_[read].kind != Kind::kRead || !is_strong(read) || !acquires(last)) return false;
    if (read == last) return true;
    return in_program_order(read, last) && (is_fence(last) || same_location(read, last));
  }

  bool meets(std::size_t a, std::size_t b) const {
    return events_[a].kind == Kind::kArrive && events_[b].kind == Kind::kLeave &&
           events_[a].location == events_[b].location &&
           run_.threads[events_[a].thread].block == run_.threads[events_[b].thread].block;
  }

 protected:
  const Execution& run_;
  const std::vector<Event>& events_;
};

class MemoryModel : Facts {
 public:
  explicit MemoryModel(const Execution& execution) : Facts(execution), count_(events_.size()) {
    TUTTI_CHECK(count_ <= 64);
  }

  bool allows() {
    find_order();
    return keeps_coherence() && keeps_causality() && !thin_air().is_cyclic();
  }

 private:
  /// Adds what synchronizes by a read of a write.
  void add_synchronizes(std::size_t write, std::size_t read, Relation& to) const {
    for (std::size_t first = 0; first < count_; ++first) {
      if (!is_release_pattern(first, write)) continue;
      for (std::size_t last = 0; last < count_; ++last) {
        if (is_acquire_pattern(read, last) && morally_strong(first, last)) to.add(first, last);
      }
    }
  }

  /// Causality order, coherence order and communication order.
  void find_order() {
    Relation base;
    for (std::size_t b = 0; b < count_; ++b) {
      if (events_[b].kind == Kind::kRead) {
        const std::size_t write = run_.source[b];
        reads_.add(write, b);
        if (morally_strong(write, b)) {
          observes_.add(write, b);
          add_synchronizes(write, b, base);
        }
      }
      for (std::size_t a = 0; a < count_; ++a) {
        if (in_program_order(a, b) || meets(a, b) || precedes(a, b)) base.add(a, b);
      }
    }
    base.close();
    causes_ = base | observes_.then(base);
    for (std::size_t a = 0; a < count_; ++a) {
      for (std::size_t b = 0; b < count_; ++b) {
        if (!is_write(a) || !is_write(b) || !same_location(a, b) || run_.rank[a] >= run_.rank[b])
          continue;
        if (morally_strong(a, b) || causes_.has(a, b) || causes_.has(b, a)) coherence_.add(a, b);
      }
    }
    coherence_.close();
    for (std::size_t read = 0; read < count_; ++read) {
      if (events_[read].kind != Kind::kRead) continue;
      for (std::size_t write = 0; write < count_; ++write) {
        if (coherence_.has(run_.source[read], write)) from_reads_.add(read, write);
      }
    }
  }
  /// In Fence-SC order.
  bool precedes(std::size_t a, std::size_t b) const {
    return is_sequential(a) && is_sequential(b) && morally_strong(a, b) &&
           run_.rank[a] < run_.rank[b];
  }

  // The axioms.
  bool keeps_coherence() const {
    for (std::size_t a = 0; a < count_; ++a) {
      for (std::size_t b = 0; b < count_; ++b) {
        if (is_write(a) && is_write(b) && same_location(a, b) && causes_.has(a, b) &&
            run_.rank[a] > run_.rank[b])
          return false;
      }
    }
    return true;
  }
  bool keeps_causality() const {
    const Relation communicates = reads_ | from_reads_;
    const Relation both = communicates.then(causes_);
    for (std::size_t a = 0; a < count_; ++a) {
      if (both.has(a, a)) return false;
    }
    return true;
  }
  /// Its cycles are values out of thin air.
  Relation thin_air() const {
    Relation order = reads_;
    for (std::size_t b = 0; b < count_; ++b) {
      for (std::size_t a = 0; a < b; ++a) {
        if (events_[b].depends && events_[a].kind == Kind::kRead && in_program_order(a, b))
          order.add(a, b);
      }
    }
    return order;
  }

  const std::size_t count_;
  Relation reads_, observes_, causes_, coherence_, from_reads_;
};

}  // namespace tutti::litmus
