// File: tutti/user_op.h: collectives that reduce elements of a program's own by its own function:
// MPI's derived types and user-defined operations (MPI-4.0, 6.9.5).
//
//   struct Best { double value; std::int64_t where; };
//   tutti::all_reduce(comm, mine, best, [](const Best& a, const Best& b) {
//     return b.value > a.value ? b : a;
//   });
//   tutti::all_reduce(comm, in, out, std::multiplies<std::complex<double>>());
//
// The operation is associative; it need not be commutative, because rank r is always to the left of
// rank r + 1. Elements are combined in the canonical order (docs/bitwise-contract.md), so that one
// which rounds gives the same bits on all ranks, in every run and over every transport.
//
// Such a call is one or two collectives of the communicator that move bytes, with the operation
// in between on the calling thread: small ones gather every block on each rank; in large ones each
// rank reduces a piece of all blocks (Thakur, Rabenseifner, Gropp: Optimization of collective
// communication operations in MPICH, 2005). It allocates memory for the blocks that it gathers.
// Host memory; blocking only. Threads, buffers and in place: as in communicator.h.
//
// An operation that throws ends the communicator on all ranks, and so does memory that runs out:
// kSystem on that rank. The others get kAborted in this call, or in the next if they had their
// results already.
#pragma once
#include <cstddef>
#include <memory>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>

#include "tutti/communicator.h"
#include "tutti/export.h"

namespace tutti {

/// An operation on blocks of elements that the library only moves.
struct UserOp {
  std::size_t element_bytes = 0;
  /// higher[i] = lower[i] op higher[i] for `count` elements. `lower` is of lower ranks and stays as
  /// it is. Both lie in an array of such elements that is aligned to 64 bytes. It makes no calls on
  /// the communicator but `abort`.
  void (*combine)(const void* lower, void* higher, std::size_t count, void* context) = nullptr;
  void* context = nullptr;
};

// As the functions of Communicator with these names; counts are in elements. Errors as of those,
// and kInvalidArgument for an operation without a function or a size and in a Group, kMismatch if
// ranks give other sizes. That ranks give other operations is not noticed.
TUTTI_API Status all_reduce(Communicator& comm, const void* input, void* output, std::size_t count,
                            const UserOp& op);
TUTTI_API Status reduce_scatter(Communicator& comm, const void* input, void* output,
                                std::size_t count, const UserOp& op);
TUTTI_API Status reduce(Communicator& comm, const void* input, void* output, std::size_t count,
                        const UserOp& op, Rank root);
TUTTI_API Status scan(Communicator& comm, const void* input, void* output, std::size_t count,
                      const UserOp& op);
TUTTI_API Status exclusive_scan(Communicator& comm, const void* input, void* output,
                                std::size_t count, const UserOp& op);

/// Contiguous elements that may be copied as bytes.
template <class R>
concept Elements = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                   std::is_trivially_copyable_v<std::ranges::range_value_t<R>> &&
                   alignof(std::ranges::range_value_t<R>) <= 64;
/// Two such ranges and a function of two elements that returns a third.
template <class In, class Out, class F>
concept Combines = Elements<In> && Elements<Out> &&
    std::is_same_v<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>> &&
    std::is_invocable_r_v<std::ranges::range_value_t<In>, F&, const std::ranges::range_value_t<In>&,
                          const std::ranges::range_value_t<In>&>;

namespace detail {

/// `function`, which has to outlive it.
template <class T, class F>
UserOp user_op(F& function) {
  return {sizeof(T),
          [](const void* lower, void* higher, std::size_t count, void* context) {
            const auto* low = static_cast<const T*>(lower);
            auto* high = static_cast<T*>(higher);
            for (std::size_t i = 0; i < count; ++i)
              high[i] = (*static_cast<F*>(context))(low[i], high[i]);
          },
          const_cast<void*>(static_cast<const void*>(std::addressof(function)))};
}

/// Ok if the input has `blocks` times as many elements as the output.
TUTTI_API Status check_user_sizes(const Communicator& comm, std::string_view call,
                                  std::size_t input, std::size_t output, std::size_t blocks);

}  // namespace detail

// Over ranges of any elements that may be copied as bytes, by a function of two of them. Sizes that
// don't fit each other are kInvalidArgument. A range that a rank does not have may be empty.
template <class In, class Out, class F>
requires Combines<In, Out, F> Status all_reduce(Communicator& comm, const In& input, Out&& output,
                                                F op) {
  const std::size_t in = std::ranges::size(input), out = std::ranges::size(output);
  TUTTI_RETURN_IF_ERROR(detail::check_user_sizes(comm, "all_reduce", in, out, 1));
  return all_reduce(comm, std::ranges::data(input), std::ranges::data(output), in,
                    detail::user_op<std::ranges::range_value_t<In>>(op));
}
template <class In, class Out, class F>
requires Combines<In, Out, F> Status reduce_scatter(Communicator& comm, const In& input,
                                                    Out&& output, F op) {
  const std::size_t in = std::ranges::size(input), out = std::ranges::size(output);
  const auto ranks = static_cast<std::size_t>(comm.rank_count());
  TUTTI_RETURN_IF_ERROR(detail::check_user_sizes(comm, "reduce_scatter", in, out, ranks));
  return reduce_scatter(comm, std::ranges::data(input), std::ranges::data(output), out,
                        detail::user_op<std::ranges::range_value_t<In>>(op));
}
template <class In, class Out, class F>
requires Combines<In, Out, F> Status reduce(Communicator& comm, const In& input, Out&& output, F op,
                                            Rank root) {
  const std::size_t in = std::ranges::size(input);
  const std::size_t out = comm.rank() == root ? std::ranges::size(output) : in;
  TUTTI_RETURN_IF_ERROR(detail::check_user_sizes(comm, "reduce", in, out, 1));
  return reduce(comm, std::ranges::data(input), std::ranges::data(output), in,
                detail::user_op<std::ranges::range_value_t<In>>(op), root);
}
template <class In, class Out, class F>
requires Combines<In, Out, F> Status scan(Communicator& comm, const In& input, Out&& output, F op) {
  const std::size_t in = std::ranges::size(input), out = std::ranges::size(output);
  TUTTI_RETURN_IF_ERROR(detail::check_user_sizes(comm, "scan", in, out, 1));
  return scan(comm, std::ranges::data(input), std::ranges::data(output), in,
              detail::user_op<std::ranges::range_value_t<In>>(op));
}
template <class In, class Out, class F>
requires Combines<In, Out, F> Status exclusive_scan(Communicator& comm, const In& input,
                                                    Out&& output, F op) {
  const std::size_t in = std::ranges::size(input);
  const std::size_t out = comm.rank() == Rank{0} ? in : std::ranges::size(output);
  TUTTI_RETURN_IF_ERROR(detail::check_user_sizes(comm, "exclusive_scan", in, out, 1));
  return exclusive_scan(comm, std::ranges::data(input), std::ranges::data(output), in,
                        detail::user_op<std::ranges::range_value_t<In>>(op));
}

}  // namespace tutti
