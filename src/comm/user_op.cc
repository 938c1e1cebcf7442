// Collectives by a program's own operation: bytes are moved by collectives, and reduced in between.
#include "tutti/user_op.h"

#include <array>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "base/wall.h"
#include "comm/state.h"

namespace tutti {
namespace {

/// Up to so many bytes over all ranks each rank gathers all blocks, in one collective: two cost
/// more than the copies that they save.
constexpr std::size_t kMostGatheredBytes = std::size_t{1} << 15;
constexpr std::size_t kAlignment = 64;

/// Memory for elements.
struct Free {
  void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{kAlignment}); }
};
using Memory = std::unique_ptr<std::byte, Free>;
Memory allocate(std::size_t bytes) {
  void* data = ::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow);
  return Memory(static_cast<std::byte*>(data));
}

/// A call. The ranks that take part know the same of it, but for the buffers.
struct Asked {
  Communicator& comm;
  const UserOp& op;
  Collective collective;
  const void* input;
  void* output;
  std::size_t count;
  Rank root{0};

  std::size_t ranks() const { return static_cast<std::size_t>(comm.rank_count()); }
  std::size_t me() const { return static_cast<std::size_t>(comm.rank().value); }
  std::size_t block_bytes() const { return count * op.element_bytes; }
  bool is_rooted() const { return collective == Collective::kReduce; }
  bool has_output() const { return tutti::has_output(collective, comm.rank().value, root.value); }
  /// The ranks whose blocks make up the result of rank `rank`.
  std::size_t summed(std::size_t rank) const {
    return static_cast<std::size_t>(
        summed_ranks(collective, static_cast<int>(rank), comm.rank_count()));
  }
};

/// The canonical reduction of the blocks that were pushed so far: of ranks 0, 1, 2 and so on.
class Fold {
 public:
  Fold(const UserOp& op, std::size_t count) : op_(op), count_(count) {}
  /// The block is this object's from now on, and changes.
  void push(std::byte* block) {
    nodes_[size_++] = {block, 1};
    while (size_ >= 2 && nodes_[size_ - 2].ranks == nodes_[size_ - 1].ranks) {
      combine(nodes_[size_ - 2].block, nodes_[size_ - 1].block);
      nodes_[size_ - 2] = {nodes_[size_ - 1].block, 2 * nodes_[size_ - 1].ranks};
      --size_;
    }
  }
  void write_result(std::byte* to) const {
    if (size_ == 0) return;
    std::memcpy(to, nodes_[size_ - 1].block, count_ * op_.element_bytes);
    for (std::size_t node = size_ - 1; node-- > 0;) combine(nodes_[node].block, to);
  }

 private:
  struct Node {
    std::byte* block;
    std::uint64_t ranks;  // A power of two, smaller than that of the node before.
  };
  void combine(const std::byte* lower, std::byte* higher) const {
    op_.combine(lower, higher, count_, op_.context);
  }
  const UserOp& op_;
  std::size_t count_;
  std::array<Node, 64> nodes_{};
  std::size_t size_ = 0;
};

/// Reduces the first `summed` of `blocks`, at least one, which lie one after the other.
void reduce_blocks(const Asked& asked, std::byte* blocks, std::size_t count, std::size_t summed,
                   std::byte* to) {
  Fold fold(asked.op, count);
  for (std::size_t rank = 0; rank < summed; ++rank)
    fold.push(blocks + rank * count * asked.op.element_bytes);
  fold.write_result(to);
}

/// Each rank, or the root, gets all blocks.
Status call_small(const Asked& asked) {
  const std::size_t bytes = asked.block_bytes();
  const Memory all = allocate(bytes * asked.ranks()), result = allocate(bytes);
  const auto type = DataType::kUint8;
  TUTTI_RETURN_IF_ERROR(asked.is_rooted()
                            ? asked.comm.gather(asked.input, all.get(), bytes, type, asked.root)
                            : asked.comm.all_gather(asked.input, all.get(), bytes, type));
  if (!asked.has_output()) return ok();
  reduce_blocks(asked, all.get(), asked.count, asked.summed(asked.me()), result.get());
  std::memcpy(asked.output, result.get(), bytes);
  return ok();
}

Status call_reduce_scatter(const Asked& asked) {
  const std::size_t bytes = asked.block_bytes();
  const Memory all = allocate(bytes * asked.ranks()), result = allocate(bytes);
  TUTTI_RETURN_IF_ERROR(asked.comm.all_to_all(asked.input, all.get(), bytes, DataType::kUint8));
  reduce_blocks(asked, all.get(), asked.count, asked.ranks(), result.get());
  std::memcpy(asked.output, result.get(), bytes);
  return ok();
}

/// Each rank reduces a piece of all blocks, and sends it to the ranks that get it.
Status call_by_pieces(const Asked& asked) {
  const std::size_t ranks = asked.ranks(), element = asked.op.element_bytes;
  std::vector<std::size_t> pieces(ranks);  // Bytes, by rank.
  for (std::size_t rank = 0; rank < ranks; ++rank)
    pieces[rank] = (asked.count / ranks + (rank < asked.count % ranks ? 1 : 0)) * element;
  const std::size_t mine = pieces[asked.me()];
  const std::vector<std::size_t> of_mine(ranks, mine);
  const bool scans = is_scan(asked.collective);
  const Memory all = allocate(mine * ranks), made = allocate(mine * (scans ? ranks : 1));
  std::byte* results = made.get();

  const auto type = DataType::kUint8;
  TUTTI_RETURN_IF_ERROR(
      asked.comm.all_to_all_v(asked.input, {pieces, {}}, all.get(), {of_mine, {}}, type));
  if (!scans) {
    if (mine > 0) reduce_blocks(asked, all.get(), mine / element, ranks, results);
    return asked.is_rooted()
               ? asked.comm.gather_v(results, mine, asked.output, {pieces, {}}, type, asked.root)
               : asked.comm.all_gather_v(results, asked.output, {pieces, {}}, type);
  }
  std::vector<std::size_t> to(ranks, mine);
  if (asked.summed(0) == 0) {  // Rank 0 gets nothing.
    to[0] = 0;
    if (asked.me() == 0) pieces.assign(ranks, 0);
  }
  Fold fold(asked.op, mine / element);
  std::byte* result = results;
  for (std::size_t rank = 0, pushed = 0; rank < ranks && mine > 0; ++rank) {
    while (pushed < asked.summed(rank)) fold.push(all.get() + mine * pushed++);
    if (pushed == 0) continue;
    fold.write_result(result);
    result += mine;
  }
  return asked.comm.all_to_all_v(results, {to, {}}, asked.output, {pieces, {}}, type);
}

/// The error with the call's name in front; as it is, if there is no memory.
Error named(const Asked& asked, Error&& error) noexcept {
  try {
    error.what = fmt::format("{} by a user operation: {}", to_string(asked.collective), error.what);
  } catch (const std::bad_alloc&) {  // It is understood without.
  }
  return std::move(error);
}

Status check(const Asked& asked) {
  const auto invalid = [&](std::string what) {
    return named(asked, {Code::kInvalidArgument, std::move(what), asked.comm.rank()});
  };
  if (asked.comm.rank_count() == 0) return invalid("this communicator was moved from");
  if (asked.op.combine == nullptr) return invalid("the operation has no function");
  if (asked.op.element_bytes == 0) return invalid("elements have 0 bytes");
  if (asked.is_rooted() && (asked.root.value < 0 || asked.root.value >= asked.comm.rank_count()))
    return invalid(
        fmt::format("there is no root {} in {} ranks", asked.root.value, asked.comm.rank_count()));
  if (asked.count > 0 && (asked.input == nullptr || (asked.has_output() && !asked.output)))
    return invalid("a buffer is null, but not empty");
  if (in_group())
    return invalid(
        "a group is open on this thread; a call by a user operation "
        "is several calls, one after the other");
  std::size_t all = 0;
  if (__builtin_mul_overflow(asked.count, asked.op.element_bytes, &all) ||
      __builtin_mul_overflow(all, 2 * asked.ranks(), &all) || all > PTRDIFF_MAX)
    return invalid(fmt::format("{} elements of {} bytes are more than memory has", asked.count,
                               asked.op.element_bytes));
  return ok();
}

Status run(const Asked& asked) {
  if (asked.collective == Collective::kReduceScatter) return call_reduce_scatter(asked);
  const bool small = asked.block_bytes() * asked.ranks() <= kMostGatheredBytes;
  return small ? call_small(asked) : call_by_pieces(asked);
}

/// Ends the communicator, as the others wait for this rank's part.
Error give_up(const Asked& asked, const std::exception& thrown) noexcept {
  Error error = named(asked, thrown_error("", thrown));
  error.rank = error.peer = asked.comm.rank();
  asked.comm.abort(error.what);
  return error;
}

Status call(const Asked& asked) noexcept {
  try {
    TUTTI_RETURN_IF_ERROR(check(asked));
    if (asked.count == 0) return ok();
    Status outcome = run(asked);
    if (!outcome) return named(asked, std::move(outcome.error()));
    return outcome;
  } catch (const std::exception& thrown) {
    return give_up(asked, thrown);
  } catch (...) {
    return give_up(asked, std::runtime_error("it threw something that is no std::exception"));
  }
}

}  // namespace

Status all_reduce(Communicator& comm, const void* input, void* output, std::size_t count,
                  const UserOp& op) {
  return call({comm, op, Collective::kAllReduce, input, output, count});
}
Status reduce_scatter(Communicator& comm, const void* input, void* output, std::size_t count,
                      const UserOp& op) {
  return call({comm, op, Collective::kReduceScatter, input, output, count});
}
Status reduce(Communicator& comm, const void* input, void* output, std::size_t count,
              const UserOp& op, Rank root) {
  return call({comm, op, Collective::kReduce, input, output, count, root});
}
Status scan(Communicator& comm, const void* input, void* output, std::size_t count,
            const UserOp& op) {
  return call({comm, op, Collective::kScan, input, output, count});
}
Status exclusive_scan(Communicator& comm, const void* input, void* output, std::size_t count,
                      const UserOp& op) {
  return call({comm, op, Collective::kExclusiveScan, input, output, count});
}

Status detail::check_user_sizes(const Communicator& comm, std::string_view call, std::size_t input,
                                std::size_t output, std::size_t blocks) {
  if (input == output * blocks) return ok();
  return Error{Code::kInvalidArgument,
               fmt::format("{}: the input has {} elements and the output {}; the input needs {}",
                           call, input, output, output * blocks),
               comm.rank()};
}

}  // namespace tutti
