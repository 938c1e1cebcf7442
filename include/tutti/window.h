// File: tutti/window.h: one-sided operations: memory of each rank that the others read and write
// without its help (MPI's windows, MPI-4.0, 12).
//
//   auto window = tutti::Window::create(comm, bytes);    // every rank
//   window->put(data, size, tutti::Rank{1}, 0);          // rank 0
//   window->signal(tutti::Rank{1});
//   window->wait_signal(tutti::Rank{0});                 // rank 1: the data is in window->data()
//
// Ranks of one host copy to and from each other's memory. Between hosts, what is put and asked for
// goes by messages, and the progress thread of the rank that has the memory carries it out.
//
// Threading: calls on one window may come from any thread, one at a time. Not within a Group.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "tutti/communicator.h"
#include "tutti/export.h"
#include "tutti/result.h"
#include "tutti/types.h"

namespace tutti {

class TUTTI_API Window {
 public:
  struct Parts;
  static constexpr int kSignals = 64;

  /// `bytes` of memory of this rank, zeroed and aligned to a page; ranks may give different numbers
  /// and 0. Collective. The window may outlive `comm`, and has its timeout. To abort or revoke
  /// `comm` ends its windows. If one rank can't have its memory, all get an error.
  static Result<Window> create(Communicator& comm, std::size_t bytes);
  Window(Window&&) noexcept;
  Window& operator=(Window&&) noexcept;
  /// Leaves. Ranks that still need this one get kPeerFailed, or kAborted; see close.
  ~Window();
  /// Ends the window, whose memory goes: returns once all ranks have called it, and all that they
  /// have put has come. Collective.
  Status close();

  /// This rank's memory; null if it has 0 bytes.
  std::byte* data() const;
  /// How much rank `of` has; 0 if there is no such rank.
  std::size_t bytes(Rank of) const;
  /// Where this process finds the memory of rank `of`, to load and store itself; null if that is on
  /// another host. Valid until this window is closed.
  std::byte* address_of(Rank of) const;

  // `offset`: bytes from the start of that rank's memory. A rank may name itself. Two ranks must
  // not access the same place at a time, but by `accumulate`, `fetch_add` and `compare_swap`: what
  // is read then is any mix. `data` and the place must not overlap. Errors other than
  // kInvalidArgument are the window's end on all ranks, but for a wait that is late.

  /// Copies `bytes` from `data` to rank `to`. `data` may be changed once this returns. The bytes
  /// are there behind a signal, or after `flush`.
  Status put(const void* data, std::size_t bytes, Rank to, std::size_t offset);
  /// Copies `bytes` of rank `from` to `data`, where they are once this returns. Sees what this rank
  /// has put there before.
  Status get(void* data, std::size_t bytes, Rank from, std::size_t offset);
  /// Each of `count` elements there becomes `op` of it and of this rank's, rounded; each at once,
  /// also if several ranks do that. Their order is no part of the bitwise contract: sums of floats
  /// by several ranks may differ from run to run. `offset` is a multiple of the element's size;
  /// `op` is no average and has no scale.
  Status accumulate(const void* data, std::size_t count, DataType type, ReduceOp op, Rank to,
                    std::size_t offset);
  /// Adds to the number there, at once also if several ranks do that, and gives what it was before;
  /// the sum wraps. With 0 it reads. `offset` is a multiple of 8. All that this rank has put to
  /// `to` before is there, and what other ranks had put there before their call that made the
  /// number is seen: a counter or a lock can hand on memory of that rank (MPI-4.0, 12.3.4,
  /// MPI_Fetch_and_op). A loop that waits for a number has no deadline, and nothing ends it when
  /// the rank that is to change the number dies: give the loop a limit of its own.
  Result<std::int64_t> fetch_add(std::int64_t value, Rank to, std::size_t offset);
  /// The number there becomes `value` if it is `expected`. Gives what it was before: `expected` if
  /// it was exchanged. Otherwise as fetch_add (MPI_Compare_and_swap).
  Result<std::int64_t> compare_swap(std::int64_t expected, std::int64_t value, Rank to,
                                    std::size_t offset);
  /// Returns once all that this rank has put to `to`, or accumulated there, is there.
  Status flush(Rank to);

  /// Adds one to the signals of this `number` that this rank has sent rank `to`, which sees behind
  /// a wait for it what this rank has put and accumulated there before. Numbers are below kSignals.
  Status signal(Rank to, int number = 0);
  /// Waits until rank `from` has sent `count` signals of this number more than were waited for
  /// before. kTimeout after Settings::timeout: nothing is taken, the window goes on, and one may
  /// wait again. kPeerFailed if that rank has died or left; if one of another host has left,
  /// kAborted. Only a wait notices the death of a rank of this host: put, get and signal to it
  /// return ok.
  Status wait_signal(Rank from, int number = 0, std::uint64_t count = 1);

 private:
  explicit Window(std::unique_ptr<Parts> parts);
  template <class Body>
  auto on(std::string_view function, Body&& body) const;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tutti
