#include "cuda/mesh/tag.h"

#include "base/hash.h"
#include "exec/calls/call.h"
#include "plan/plan.h"

namespace tutti::exec {
namespace {

using cuda::KnownCall;
using cuda::Report;
using cuda::Why;

constexpr std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }

std::string of_rank(int rank) { return "rank " + std::to_string(rank); }

/// "rank 1's call 3, all_reduce of 100 float32 (sum)".
std::string call_of_rank(int rank, const KnownCall& call) {
  if (call.number == 0) return of_rank(rank) + "'s call";
  return of_rank(rank) + "'s " + in_words(call);
}

/// The same as the subject of a sentence: with the comma that closes the apposition.
std::string subject(int rank, const KnownCall& call) {
  return call_of_rank(rank, call) + (call.number == 0 ? "" : ",");
}

Error timed_out(int teller, int peer, const Report& report) {
  std::string what = subject(teller, report.own) + " waited too long for " + of_rank(peer);
  if (report.other.number != 0) what += ", whose last is " + in_words(report.other);
  return {Code::kTimeout, what};
}

/// What a kernel of the program's named: a rank or a channel that there is not, or a place.
Error outside(int teller, int peer, const Report& report) {
  const std::uint64_t offset = report.own.words[1] | static_cast<std::uint64_t>(report.own.words[2])
                                                         << 32;
  return {Code::kInvalidArgument,
          subject(teller, report.own) + " named what there is not: that channel, " + of_rank(peer) +
              ", or data at byte " + std::to_string(offset) + " of its window"};
}

Error differs(int teller, int peer, const Report& report) {
  std::string what = subject(teller, report.own) + " met ";
  what += report.other.number == 0 ? "another call of " + of_rank(peer)
                                   : call_of_rank(peer, report.other);
  const bool same = report.own.words[0] == report.other.words[0] &&
                    report.own.words[1] == report.other.words[1] &&
                    report.own.words[2] >> 16 != report.other.words[2] >> 16;
  what += same ? "; on registered memory all ranks have buffers in one place of one memory"
               : "; all ranks have to make the same calls in the same order";
  return {Code::kMismatch, what};
}

}  // namespace

// Words: kind, collective, type, operation, root and wire, a few bits each; the count; 16 bits of
// places.

cuda::CallTag tag_of(const CudaCallName& name) {
  const bool collective = name.kind == CudaCallName::kCollective;
  const auto op = collective && reduces(name.collective) ? name.op : ReduceOp::kSum;
  const int root = collective && has_root(name.collective) ? name.root : 0;
  const auto bits = [](auto value, int shift) {
    return static_cast<std::uint32_t>(value) << shift;
  };
  cuda::CallTag tag;
  tag.words[0] = bits(name.kind, 0) | bits(collective ? name.collective : Collective{}, 4) |
                 bits(name.type, 8) | bits(op, 16) | bits(root, 20) | bits(name.wire.format, 28) |
                 bits(name.wire.rounding, 31);
  tag.words[1] = low(name.count);
  tag.words[2] = low(name.count >> 32) & 0xffff;
  if (name.places != 0) tag.words[2] |= bits(mix(name.places) | 1, 16);
  tag.digest = low(Hash().add(name.places).add(tag.words[0]).add(name.count).value());
  return tag;
}

std::string in_words(const cuda::KnownCall& call) {
  const std::uint32_t word = call.words[0];
  const auto kind = static_cast<CudaCallName::Kind>(word & 15);
  const auto collective = static_cast<Collective>(word >> 4 & 15);
  const auto type = static_cast<DataType>(word >> 8 & 255);
  const auto op = static_cast<ReduceOp>(word >> 16 & 15);
  const std::string number = std::to_string(call.number);
  const std::uint64_t count = call.words[1] | static_cast<std::uint64_t>(call.words[2] & 0xffff)
                                                  << 32;
  if (kind == CudaCallName::kMessage)
    return "message " + number + " between them, of " + std::to_string(count) + " bytes";
  if (kind == CudaCallName::kProgram)
    return "kernel of the program, channel " + std::to_string(call.number - 1);
  std::string what = "call " + number + ", ";
  if (kind == CudaCallName::kCollective) {
    Call known;
    known.collective = collective;
    known.type = type;
    known.op = op;
    known.root = static_cast<int>(word >> 20 & 255);
    known.set(Wire(static_cast<WireFormat>(word >> 28 & 7), static_cast<Rounding>(word >> 31)));
    return what + describe_call(pack(known), count);
  }
  what += kind == CudaCallName::kRmsNorm ? "all_reduce_rms_norm of " : "sgd_step of ";
  return what + std::to_string(count) + " " + std::string(to_string(type));
}

Error error_of(const Report& report, int rank) {
  const auto why = static_cast<Why>(report.why & 255);
  const int teller = static_cast<int>(report.why >> 16 & 0xffff);
  const int peer = static_cast<int>(report.why >> 32 & 0xffff);
  Error error{Code::kAborted, "the rank's kernels were told to end"};
  if (why == Why::kTimedOut) error = timed_out(teller, peer, report);
  if (why == Why::kDiffers) error = differs(teller, peer, report);
  if (why == Why::kOutside) error = outside(teller, peer, report);
  if (why == Why::kOverlaps) {
    error = {Code::kMismatch,
             subject(teller, report.own) +
                 " began while another kernel of this communicator and rank was running"};
  }
  error.rank = Rank{rank};
  // If two ranks differ, the peer is the other one.
  if (why != Why::kAborted) error.peer = Rank{peer == rank ? teller : peer};
  return error;
}

}  // namespace tutti::exec
