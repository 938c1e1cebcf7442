// File: litmus/explore.h: all executions of a small program that the memory model allows.
//
// A program has threads, each of them a function that calls read, write, fence and barrier here, or
// kernels' functions that do (language.h), and locations that threads share. A thread is run again
// and again, each time with other values for what it reads: those that anything writes there. Then
// the threads' runs are combined in all ways, with all sources of reads and all orders of writes,
// and the model (memory_model.h) says which of them are executions.
//
// Polls. A thread that reads a location twice, and nothing else but polls between, would go round
// forever: its run ends at the first of these reads (blocked).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "litmus/memory_model.h"

namespace tutti::litmus {

/// A run of one thread.
struct Trace {
  std::vector<Event> events;
  std::vector<std::uint64_t> results;  // What the thread says it saw,
  std::vector<std::size_t> after;      // after so many events.
  bool blocked = false;
};
/// The runs of all threads.
using Outcome = std::vector<Trace>;

/// A location: what its address is, and how many bytes it has, at most 8.
struct Location {
  const void* at;
  std::size_t bytes;
  std::uint64_t initially = 0;
};

struct ProgramThread {
  Where where;
  std::function<void()> body;
};
struct Program {
  std::vector<Location> locations;
  std::vector<ProgramThread> threads;
};

/// The line that calls a function with a memory order, as in channel.h.
struct Place {
  const char* file;
  int line;
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};
/// A memory order that a program is run without: "no_acquire@channel.h:33"; empty: none.
using Weakening = std::string;
inline Weakening place_name(const char* what, Place place) {
  const char* const slash = std::strrchr(place.file, '/');
  return std::string(what) + "@" + (slash == nullptr ? place.file : slash + 1) + ":" +
         std::to_string(place.line);
}

/// Records the run of a thread, and says what it reads.
class Recorder {
 public:
  struct Blocked {};

  Recorder(const Program& program, std::vector<std::vector<std::uint64_t>> values,
           Weakening without)
      : program_(program), values_(std::move(values)), without_(std::move(without)) {}

  /// All runs of the thread.
  std::vector<Trace> runs(unsigned thread) {
    std::vector<Trace> all;
    choices_.clear();
    do {
      all.push_back(run(thread));
    } while (next());
    return all;
  }
  /// Adds values that were written since. True: there was a new one.
  bool learn(const std::vector<Trace>& traces) {
    bool news = false;
    for (const Trace& trace : traces) {
      for (const Event& event : trace.events) {
        if (event.kind != Kind::kWrite) continue;
        auto& known = values_[event.location];
        if (std::find(known.begin(), known.end(), event.value) != known.end()) continue;
        known.push_back(event.value);
        news = true;
      }
    }
    return news;
  }

  // By the thread that runs.
  /// The location at the address; -1: memory of the thread's own.
  int location(const void* at, std::size_t bytes) const {
    for (std::size_t l = 0; l < program_.locations.size(); ++l) {
      const Location& one = program_.locations[l];
      if (one.at != at) continue;
      TUTTI_CHECK(one.bytes == bytes);
      return static_cast<int>(l);
    }
    return -1;
  }
  std::uint64_t read(unsigned location, Order order, Scope scope) {
    if (std::find(polled_.begin(), polled_.end(), location) != polled_.end()) {
      trace_.blocked = true;
      throw Blocked{};
    }
    if (order != Order::kWeak) polled_.push_back(location);
    if (read_count_ == choices_.size()) choices_.push_back({0, values_[location].size()});
    const std::uint64_t value = values_[location][choices_[read_count_++].taken];
    add({Kind::kRead, order, scope, thread_, location, value});
    return value;
  }
  void write(unsigned location, std::uint64_t value, Order order, Scope scope,
             bool depends = false) {
    polled_.clear();
    add({Kind::kWrite, order, scope, thread_, location, value, depends});
  }
  void fence(Order order, Scope scope) {
    polled_.clear();
    add({Kind::kFence, order, scope, thread_, 0, 0});
  }
  /// The next read of the same location is not another poll.
  void end_poll() { polled_.clear(); }
  void saw(std::uint64_t value) {
    trace_.results.push_back(value);
    trace_.after.push_back(trace_.events.size());
  }
  void barrier() {
    polled_.clear();
    add({Kind::kArrive, Order::kWeak, Scope::kBlock, thread_, barriers_, 0});
    add({Kind::kLeave, Order::kWeak, Scope::kBlock, thread_, barriers_++, 0});
  }
  /// All threads of the block have to be without it, or none.
  void barrier(const Weakening& name) {
    if (!is_without(name)) barrier();
  }
  /// Whether the program runs without this order; notes that there is one.
  bool is_without(const Weakening& order) {
    orders_.insert(order);
    return order == without_;
  }
  const std::set<Weakening>& orders() const { return orders_; }

 private:
  struct Choice {
    std::size_t taken, of;
  };

  Trace run(unsigned thread);
  void add(const Event& event) { trace_.events.push_back(event); }
  /// The next choice of values; false: that were all.
  bool next() {
    while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().of)
      choices_.pop_back();
    if (choices_.empty()) return false;
    ++choices_.back().taken;
    return true;
  }

  const Program& program_;
  std::vector<std::vector<std::uint64_t>> values_;  // By location: what may be there.
  Weakening without_;
  std::set<Weakening> orders_;
  std::vector<Choice> choices_;
  // The run that is under way:
  unsigned thread_ = 0;
  std::size_t read_count_ = 0;
  unsigned barriers_ = 0;
  std::vector<unsigned> polled_;
  Trace trace_;
};

/// The recorder of the thread that runs.
inline Recorder* recorder = nullptr;

inline Trace Recorder::run(unsigned thread) {
  thread_ = thread;
  read_count_ = barriers_ = 0;
  polled_.clear();
  trace_ = {};
  recorder = this;
  try {
    program_.threads[thread].body();
  } catch (const Blocked&) {
  }
  recorder = nullptr;
  return trace_;
}

/// Calls `visit(outcome)` for each allowed execution, until it returns true.
class Explorer {
 public:
  using Visit = std::function<bool(const Outcome&)>;

  explicit Explorer(const Program& program, Weakening without = {}) : program_(program) {
    std::vector<std::vector<std::uint64_t>> values;
    for (const Location& location : program.locations) values.push_back({location.initially});
    Recorder runner(program, std::move(values), std::move(without));
    bool news = true;
    while (news) {
      news = false;
      runs_.clear();
      for (unsigned thread = 0; thread < program.threads.size(); ++thread) {
        runs_.push_back(runner.runs(thread));
        news |= runner.learn(runs_.back());
      }
    }
    orders_ = runner.orders();
  }

  bool any(const Visit& visit) {
    visit_ = visit;
    Outcome outcome;
    return combine(outcome);
  }
  /// The orders that the program has.
  const std::set<Weakening>& orders() const { return orders_; }
  /// How many candidates the model was asked about.
  std::size_t asked() const { return asked_; }

 private:
  bool combine(Outcome& outcome) {
    if (outcome.size() == runs_.size()) return try_all(outcome);
    for (const Trace& trace : runs_[outcome.size()]) {
      outcome.push_back(trace);
      const bool found = combine(outcome);
      outcome.pop_back();
      if (found) return true;
    }
    return false;
  }

  static unsigned arrivals(const Trace& trace) {
    unsigned count = 0;
    for (const Event& event : trace.events) count += event.kind == Kind::kArrive ? 1 : 0;
    return count;
  }
  /// Ends runs at the barrier at which the block's other threads do not arrive.
  void wait_for_each_other(Outcome& outcome) const {
    for (std::size_t t = 0; t < outcome.size(); ++t) {
      unsigned all = ~0u;
      for (std::size_t other = 0; other < outcome.size(); ++other) {
        if (program_.threads[other].where.block == program_.threads[t].where.block)
          all = std::min(all, arrivals(outcome[other]));
      }
      auto& events = outcome[t].events;
      const auto end = std::find_if(events.begin(), events.end(), [all](const Event& event) {
        return event.kind == Kind::kLeave && event.location >= all;
      });
      if (end == events.end()) continue;
      events.erase(end, events.end());
      while (!outcome[t].after.empty() && outcome[t].after.back() > events.size()) {
        outcome[t].after.pop_back();
        outcome[t].results.pop_back();
      }
      outcome[t].blocked = true;
    }
  }

  bool try_all(const Outcome& whole) {
    Outcome outcome = whole;
    wait_for_each_other(outcome);
    Execution execution;
    for (unsigned l = 0; l < program_.locations.size(); ++l) {
      execution.events.push_back({Kind::kWrite, Order::kRelaxed, Scope::kSystem, kInitially, l,
                                  program_.locations[l].initially});
    }
    for (unsigned t = 0; t < outcome.size(); ++t) {
      execution.threads.push_back(program_.threads[t].where);
      auto& events = execution.events;
      events.insert(events.end(), outcome[t].events.begin(), outcome[t].events.end());
    }
    execution.source.assign(execution.events.size(), 0);
    execution.rank.assign(execution.events.size(), 0);
    return choose_sources(execution, 0, outcome);
  }

  bool choose_sources(Execution& execution, std::size_t at, const Outcome& outcome) {
    while (at < execution.events.size() && execution.events[at].kind != Kind::kRead) ++at;
    if (at == execution.events.size()) return choose_order(execution, 0, outcome);
    const Event read = execution.events[at];
    for (std::size_t w = 0; w < execution.events.size(); ++w) {
      const Event& write = execution.events[w];
      if (write.kind != Kind::kWrite || write.location != read.location ||
          write.value != read.value)
        continue;
      execution.source[at] = w;
      if (choose_sources(execution, at + 1, outcome)) return true;
    }
    return false;
  }

  /// Orders the writes to each location, then the fences (as one more location).
  bool choose_order(Execution& execution, unsigned location, const Outcome& outcome) {
    if (location > program_.locations.size()) {
      ++asked_;
      return MemoryModel(execution).allows() && visit_(outcome);
    }
    std::vector<std::size_t> ordered;
    for (std::size_t e = 0; e < execution.events.size(); ++e) {
      const Event& event = execution.events[e];
      const bool is_one = location == program_.locations.size()
                              ? event.kind == Kind::kFence && event.order == Order::kSequential
                              : event.kind == Kind::kWrite && event.location == location &&
                                    event.thread != kInitially;
      if (is_one) ordered.push_back(e);
    }
    do {
      for (unsigned i = 0; i < ordered.size(); ++i) execution.rank[ordered[i]] = i + 1;
      if (choose_order(execution, location + 1, outcome)) return true;
    } while (std::next_permutation(ordered.begin(), ordered.end()));
    return false;
  }

  const Program& program_;
  std::vector<std::vector<Trace>> runs_;
  std::set<Weakening> orders_;
  Visit visit_;
  std::size_t asked_ = 0;
};

// What the threads of hand-written programs do.
inline std::uint64_t read(const std::uint64_t& at, Order order = Order::kRelaxed,
                          Scope scope = Scope::kSystem) {
  return recorder->read(static_cast<unsigned>(recorder->location(&at, sizeof at)), order, scope);
}
inline void write(std::uint64_t& at, std::uint64_t value, Order order = Order::kRelaxed,
                  Scope scope = Scope::kSystem) {
  recorder->write(static_cast<unsigned>(recorder->location(&at, sizeof at)), value, order, scope);
}
/// Writes a value that is computed from all that the thread has read, or only if it has read that.
inline void write_dependent(std::uint64_t& at, std::uint64_t value) {
  recorder->write(static_cast<unsigned>(recorder->location(&at, sizeof at)), value, Order::kRelaxed,
                  Scope::kSystem, true);
}
/// Says what the thread saw.
inline void saw(std::uint64_t value) { recorder->saw(value); }
inline void fence(Order order, Scope scope = Scope::kSystem) { recorder->fence(order, scope); }

}  // namespace tutti::litmus
