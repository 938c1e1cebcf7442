// File: tutti/typed.h: collectives and messages over ranges, which know their type and their size.
//
//   std::vector<float> gradient(1000);
//   tutti::Status status = tutti::all_reduce(comm, gradient, tutti::ReduceOp::kAvg);
//
// Each function is the one of communicator.h with that name. The data type is that of the elements,
// so a buffer of doubles can't be summed as floats, and the count is the size of the range. A range
// is contiguous and has a size: an array, a vector, a span. Sizes that don't fit each other are
// kInvalidArgument. `start_...` takes ranges that outlive the call only: a vector that would be
// destroyed at the end of the line does not compile. A range that a rank does not have is left out
// by an empty span: std::span<float>().
//
// A bool takes the logical operations (kAnd, kOr, kXor, and with them kMin, kMax, kProd), and
// std::complex<float> or <double> takes kSum, kAvg and pre-multiplied sums; others are
// kInvalidArgument. For a product of complex numbers, and elements of your own, see user_op.h.
#pragma once
#include <complex>
#include <concepts>
#include <cstdint>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "tutti/communicator.h"

namespace tutti {

/// The data type of a C++ type; specialise it for 16-bit and 8-bit floats of your own:
/// template <> inline constexpr DataType tutti::kDataTypeOf<Half> = DataType::kFloat16;
template <class T>
inline constexpr DataType kDataTypeOf = [] {
  constexpr bool kSigned = std::is_signed_v<T>;
  if constexpr (std::is_same_v<T, float>) return DataType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return DataType::kFloat64;
  if constexpr (std::is_same_v<T, std::byte>) return DataType::kUint8;
  if constexpr (std::is_same_v<T, std::complex<float>>) return DataType::kFloat32;
  if constexpr (std::is_same_v<T, std::complex<double>>) return DataType::kFloat64;
  if constexpr (std::integral<T>) {
    if constexpr (sizeof(T) == 1) return kSigned ? DataType::kInt8 : DataType::kUint8;
    if constexpr (sizeof(T) == 2) return kSigned ? DataType::kInt16 : DataType::kUint16;
    if constexpr (sizeof(T) == 4) return kSigned ? DataType::kInt32 : DataType::kUint32;
    if constexpr (sizeof(T) == 8) return kSigned ? DataType::kInt64 : DataType::kUint64;
  }
  return static_cast<DataType>(0xff);  // None.
}();

/// How many numbers of that data type an element is.
template <class T>
inline constexpr std::size_t kNumbersOf = 1;
template <class T>
inline constexpr std::size_t kNumbersOf<std::complex<T>> = 2;

/// Contiguous elements of a type that the library knows.
template <class R>
concept Buffer = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    size_of(kDataTypeOf<std::ranges::range_value_t<R>>)
!= 0;
/// Those that can be written.
template <class R>
concept OutputBuffer =
    Buffer<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;
/// An input and an output with elements of one type.
template <class In, class Out>
concept Buffers = Buffer<In> && OutputBuffer<Out> &&
    std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>;
/// Those whose elements stay when the expression that names the range is over.
template <class... R>
concept Lasting = (std::ranges::borrowed_range<R> && ...);

namespace detail {

/// Whether that operation on elements gives an element.
template <class T>
constexpr bool takes(ReduceOp op) {
  const bool adds = op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kPreMulSum;
  if constexpr (std::is_same_v<T, bool>) return !adds;
  return kNumbersOf<T> == 1 || adds;
}

template <Buffer R>
constexpr DataType type_of() {
  return kDataTypeOf<std::ranges::range_value_t<R>>;
}
/// The count of a call on `elements` of a range.
template <Buffer R>
constexpr std::size_t numbers(std::size_t elements) {
  return elements * kNumbersOf<std::ranges::range_value_t<R>>;
}

inline Error sizes_differ(const Communicator& comm, std::string_view call, std::size_t is,
                          std::string_view what, std::size_t needed) {
  return {Code::kInvalidArgument,
          std::string(call) + ": the " + std::string(what) + " has " + std::to_string(is) +
              " elements; it needs " + std::to_string(needed),
          comm.rank()};
}

/// Blocks of a buffer of this collective, on this rank: 0: it has none.
inline std::size_t blocks(const Communicator& comm, Collective collective, bool input, Rank root) {
  const CollectiveTraits traits = traits_of(collective);
  if (!(input ? has_input : has_output)(collective, comm.rank().value, root.value)) return 0;
  const bool each = input ? traits.input_each : traits.output_each;
  return each ? static_cast<std::size_t>(comm.rank_count()) : 1;
}

/// The request of a call whose block is what the one buffer says that every rank has.
template <class In, class Out>
Result<Request> request(const Communicator& comm, Collective collective, In&& input, Out&& output,
                        Reduction reduction, Rank root) {
  const std::size_t ins = blocks(comm, collective, true, root);
  const std::size_t outs = blocks(comm, collective, false, root);
  const std::size_t in = std::ranges::size(input), out = std::ranges::size(output);
  const std::size_t count = ins == 1 ? in : outs == 1 ? out : out / outs;
  if (ins != 0 && in != ins * count)
    return sizes_differ(comm, to_string(collective), in, "input", ins * count);
  if (outs != 0 && out != outs * count)
    return sizes_differ(comm, to_string(collective), out, "output", outs * count);
  using Element = std::ranges::range_value_t<In>;
  if (reduces(collective) && !takes<Element>(reduction.op))
    return Error{Code::kInvalidArgument,
                 std::string(to_string(collective)) + ": " +
                     (std::is_same_v<Element, bool> ? "bool" : "complex numbers") +
                     " can't be reduced by " + std::string(to_string(reduction.op)),
                 comm.rank()};
  return Request{.collective = collective,
                 .input = std::ranges::data(input),
                 .output = std::ranges::data(output),
                 .count = numbers<In>(count),
                 .type = type_of<In>(),
                 .reduction = reduction,
                 .root = root};
}

template <class In, class Out>
Status call(Communicator& comm, Collective collective, In&& input, Out&& output,
            Reduction reduction = {}, Rank root = Rank{0}) {
  auto asked = request(comm, collective, input, output, reduction, root);
  if (!asked) return std::move(asked.error());
  return comm.call(*asked);
}

template <class In, class Out>
Result<Work> start(Communicator& comm, Collective collective, In&& input, Out&& output,
                   Reduction reduction = {}, Rank root = Rank{0}) {
  auto asked = request(comm, collective, input, output, reduction, root);
  if (!asked) return std::move(asked.error());
  return comm.start(*asked);
}

}  // namespace detail

// From an input to an output; both may be the same, as far as communicator.h allows that.
template <class In, class Out>
requires Buffers<In, Out> Status all_reduce(Communicator& comm, const In& input, Out&& output,
                                            Reduction reduction) {
  return detail::call(comm, Collective::kAllReduce, input, output, reduction);
}
template <class In, class Out>
requires Buffers<In, Out> && Lasting<In, Out> Result<Work> start_all_reduce(Communicator& comm,
                                                                            In&& input,
                                                                            Out&& output,
                                                                            Reduction reduction) {
  return detail::start(comm, Collective::kAllReduce, input, output, reduction);
}
template <class In, class Out>
requires Buffers<In, Out> Status reduce_scatter(Communicator& comm, const In& input, Out&& output,
                                                Reduction reduction) {
  return detail::call(comm, Collective::kReduceScatter, input, output, reduction);
}
template <class In, class Out>
requires Buffers<In, Out> && Lasting<In, Out> Result<Work> start_reduce_scatter(
    Communicator& comm, In&& input, Out&& output, Reduction reduction) {
  return detail::start(comm, Collective::kReduceScatter, input, output, reduction);
}
template <class In, class Out>
requires Buffers<In, Out> Status all_gather(Communicator& comm, const In& input, Out&& output) {
  return detail::call(comm, Collective::kAllGather, input, output);
}
template <class In, class Out>
requires Buffers<In, Out> && Lasting<In, Out> Result<Work> start_all_gather(Communicator& comm,
                                                                            In&& input,
                                                                            Out&& output) {
  return detail::start(comm, Collective::kAllGather, input, output);
}
template <class In, class Out>
requires Buffers<In, Out> Status broadcast(Communicator& comm, const In& input, Out&& output,
                                           Rank root) {
  return detail::call(comm, Collective::kBroadcast, input, output, {}, root);
}
template <class In, class Out>
requires Buffers<In, Out> && Lasting<In, Out> Result<Work> start_broadcast(Communicator& comm,
                                                                           In&& input, Out&& output,
                                                                           Rank root) {
  return detail::start(comm, Collective::kBroadcast, input, output, {}, root);
}
template <class In, class Out>
requires Buffers<In, Out> Status reduce(Communicator& comm, const In& input, Out&& output,
                                        Reduction reduction, Rank root) {
  return detail::call(comm, Collective::kReduce, input, output, reduction, root);
}
template <class In, class Out>
requires Buffers<In, Out> && Lasting<In, Out> Result<Work> start_reduce(Communicator& comm,
                                                                        In&& input, Out&& output,
                                                                        Reduction reduction,
                                                                        Rank root) {
  return detail::start(comm, Collective::kReduce, input, output, reduction, root);
}
template <class In, class Out>
requires Buffers<In, Out> Status gather(Communicator& comm, const In& input, Out&& output,
                                        Rank root) {
  return detail::call(comm, Collective::kGather, input, output, {}, root);
}
template <class In, class Out>
requires Buffers<In, Out> && Lasting<In, Out> Result<Work> start_gather(Communicator& comm,
                                                                        In&& input, Out&& output,
                                                                        Rank root) {
  return detail::start(comm, Collective::kGather, input, output, {}, root);
}
template <class In, class Out>
requires Buffers<In, Out> Status scatter(Communicator& comm, const In& input, Out&& output,
                                         Rank root) {
  return detail::call(comm, Collective::kScatter, input, output, {}, root);
}
template <class In, class Out>
requires Buffers<In, Out> && Lasting<In, Out> Result<Work> start_scatter(Communicator& comm,
                                                                         In&& input, Out&& output,
                                                                         Rank root) {
  return detail::start(comm, Collective::kScatter, input, output, {}, root);
}
template <class In, class Out>
requires Buffers<In, Out> Status all_to_all(Communicator& comm, const In& input, Out&& output) {
  return detail::call(comm, Collective::kAllToAll, input, output);
}
template <class In, class Out>
requires Buffers<In, Out> && Lasting<In, Out> Result<Work> start_all_to_all(Communicator& comm,
                                                                            In&& input,
                                                                            Out&& output) {
  return detail::start(comm, Collective::kAllToAll, input, output);
}
template <class In, class Out>
requires Buffers<In, Out> Status scan(Communicator& comm, const In& input, Out&& output,
                                      Reduction reduction) {
  return detail::call(comm, Collective::kScan, input, output, reduction);
}
template <class In, class Out>
requires Buffers<In, Out> && Lasting<In, Out> Result<Work> start_scan(Communicator& comm,
                                                                      In&& input, Out&& output,
                                                                      Reduction reduction) {
  return detail::start(comm, Collective::kScan, input, output, reduction);
}
template <class In, class Out>
requires Buffers<In, Out> Status exclusive_scan(Communicator& comm, const In& input, Out&& output,
                                                Reduction reduction) {
  return detail::call(comm, Collective::kExclusiveScan, input, output, reduction);
}
template <class In, class Out>
requires Buffers<In, Out> && Lasting<In, Out> Result<Work> start_exclusive_scan(
    Communicator& comm, In&& input, Out&& output, Reduction reduction) {
  return detail::start(comm, Collective::kExclusiveScan, input, output, reduction);
}

// In place.
template <OutputBuffer R>
Status all_reduce(Communicator& comm, R&& data, Reduction reduction) {
  return detail::call(comm, Collective::kAllReduce, data, data, reduction);
}
template <OutputBuffer R>
requires Lasting<R> Result<Work> start_all_reduce(Communicator& comm, R&& data,
                                                  Reduction reduction) {
  return detail::start(comm, Collective::kAllReduce, data, data, reduction);
}
template <OutputBuffer R>
Status broadcast(Communicator& comm, R&& data, Rank root) {
  return detail::call(comm, Collective::kBroadcast, data, data, {}, root);
}
template <OutputBuffer R>
requires Lasting<R> Result<Work> start_broadcast(Communicator& comm, R&& data, Rank root) {
  return detail::start(comm, Collective::kBroadcast, data, data, {}, root);
}

// Messages.
template <Buffer R>
Status send(Communicator& comm, const R& data, Rank to, Tag tag = {}) {
  return comm.send(std::ranges::data(data), detail::numbers<R>(std::ranges::size(data)),
                   detail::type_of<R>(), to, tag);
}
template <OutputBuffer R>
Status recv(Communicator& comm, R&& data, Rank from, Tag tag = {}) {
  return comm.recv(std::ranges::data(data), detail::numbers<R>(std::ranges::size(data)),
                   detail::type_of<R>(), from, tag);
}
template <Buffer R>
requires Lasting<R> Result<Work> start_send(Communicator& comm, R&& data, Rank to, Tag tag = {}) {
  return comm.start_send(std::ranges::data(data), detail::numbers<R>(std::ranges::size(data)),
                         detail::type_of<R>(), to, tag);
}
template <OutputBuffer R>
requires Lasting<R> Result<Work> start_recv(Communicator& comm, R&& data, Rank from, Tag tag = {}) {
  return comm.start_recv(std::ranges::data(data), detail::numbers<R>(std::ranges::size(data)),
                         detail::type_of<R>(), from, tag);
}

}  // namespace tutti
