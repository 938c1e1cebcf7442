#include "virtual/calls.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

namespace tutti::virt {
namespace {

/// Elements of the block that goes from one rank to another, or that the two have in a reduction.
std::size_t count_of(const Call& call, int from, int to) {
  if (!call.varied) return call.count;
  return call.count * (static_cast<std::size_t>(from * 7 + to * 3 + call.root) % 5) / 4;
}

/// The blocks of rank `me`'s input.
std::vector<std::size_t> counts_in(const Call& call, int me, int ranks) {
  std::vector<std::size_t> counts;
  switch (call.collective) {
    case Collective::kAllGather:
    case Collective::kGather: return {count_of(call, me, 0)};
    case Collective::kAllToAll:
      for (int to = 0; to < ranks; ++to) counts.push_back(count_of(call, me, to));
      return counts;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      for (int to = 0; to < ranks; ++to) counts.push_back(count_of(call, 0, to));
      return counts;
    default: return {call.count};
  }
}

std::vector<std::size_t> counts_out(const Call& call, int me, int ranks) {
  std::vector<std::size_t> counts;
  switch (call.collective) {
    case Collective::kReduceScatter:
    case Collective::kScatter: return {count_of(call, 0, me)};
    case Collective::kAllToAll:
      for (int from = 0; from < ranks; ++from) counts.push_back(count_of(call, from, me));
      return counts;
    case Collective::kAllGather:
    case Collective::kGather:
      for (int from = 0; from < ranks; ++from) counts.push_back(count_of(call, from, 0));
      return counts;
    default: return {call.count};
  }
}

std::size_t sum_of(std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

}  // namespace

std::vector<Call> script(const Parameters& run) {
  Random random{run.seed ^ 0x7363726970740000};
  std::vector<Call> calls;
  bool parted = false;
  for (int i = 0; i < run.calls; ++i) {
    Call call;
    const std::uint64_t kind = random.below(20);
    if (kind == 0) call.what = What::kBarrier;
    if (kind == 1 || kind == 2) call.what = What::kMessages;
    if (kind == 3 && !parted) call.what = What::kSplit;
    if (kind == 4 || kind == 5) call.what = What::kBatch;
    if (kind == 6 || (kind < 14 && run.repeats)) call.what = What::kRepeats;
    if (kind == 7 || (kind > 7 && run.windows)) call.what = What::kWindow;
    call.collective = static_cast<Collective>(random.below(kCollectiveCount));
    call.type = random.one_in(2) ? DataType::kInt32 : DataType::kFloat32;
    constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};
    call.op = kOps[random.below(3)];
    const std::uint64_t scale = std::uint64_t{1} << random.below(17);
    const auto most = static_cast<std::uint64_t>(run.most_kib) * 256;  // Elements of 4 bytes.
    call.count = std::min(random.below(scale + 1), most);
    if (run.mapped) {
      call.count = most / (1 + random.below(8));
      if (random.one_in(2)) call.collective = Collective::kAllReduce;
    }
    if (run.one_of_each) {
      call.what = What::kCollective;
      call.collective = static_cast<Collective>(i % kCollectiveCount);
    }
    call.root = static_cast<int>(random.below(static_cast<std::uint64_t>(run.ranks)));
    call.started = random.one_in(3) || run.starts_all;
    call.registered = random.one_in(3) || run.mapped;
    call.in_place = random.one_in(4);
    call.on_part = parted && random.one_in(2);
    call.varied = has_variant(call.collective) && random.one_in(3);
    if (call.what == What::kRepeats) {
      call.count = 1 + call.count % 64;
      call.times = static_cast<int>(2 + random.below(run.repeats ? 12 : 6));
    }
    // Long ones between many ranks take seconds of virtual time, and timers are late by then.
    if (call.what == What::kWindow && !run.mapped)
      call.times = static_cast<int>(1 + random.below(8));
    if (call.what == What::kSplit) parted = true;
    calls.push_back(call);
  }
  return calls;
}

int reduced(const Call& call, int number, int ranks, std::size_t i) {
  int value = value_of(number, 0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const int next = value_of(number, rank, i);
    if (call.op == ReduceOp::kSum) value += next;
    if (call.op == ReduceOp::kMax) value = std::max(value, next);
    if (call.op == ReduceOp::kMin) value = std::min(value, next);
  }
  return value;
}

int value_of(int number, int rank, std::size_t i) {
  return static_cast<int>(
      (i * 13 + static_cast<std::size_t>(rank) * 31 + static_cast<std::size_t>(number) * 7) % 97);
}

void put(std::byte* to, DataType type, std::size_t i, int value) {
  if (type == DataType::kInt32)
    std::memcpy(to + 4 * i, &value, 4);
  else
    (void)(reinterpret_cast<float*>(to)[i] = static_cast<float>(value));
}
bool is(const std::byte* from, DataType type, std::size_t i, int value) {
  std::uint32_t got = 0, wanted = 0;
  std::memcpy(&got, from + 4 * i, 4);
  const auto real = static_cast<float>(value);
  std::memcpy(&wanted, type == DataType::kInt32 ? static_cast<const void*>(&value) : &real, 4);
  return got == wanted;
}

bool is_reduction(Collective what) { return reduces(what); }

bool has_variant(Collective what) {
  return what == Collective::kAllGather || what == Collective::kReduceScatter ||
         what == Collective::kAllToAll || what == Collective::kGather ||
         what == Collective::kScatter;
}

bool is_empty(const Call& call, int ranks) {
  if (!call.varied) return call.count == 0;
  std::size_t all = 0;
  for (int rank = 0; rank < ranks; ++rank) all += sum_of(counts_in(call, rank, ranks));
  return all == 0;
}

bool needs_nobody(const Call& call, int me) {
  switch (call.collective) {
    case Collective::kBroadcast:
    case Collective::kScatter: return me == call.root;
    case Collective::kReduce:
    case Collective::kGather: return me != call.root;
    case Collective::kScan:
    case Collective::kExclusiveScan: return me == 0;
    default: return false;
  }
}

Buffer::Buffer(std::size_t bytes, bool registered) : bytes_(std::max<std::size_t>(bytes, 4)) {
  if (registered) {
    if (auto made = mem_alloc(bytes_); made) mapped_ = static_cast<std::byte*>(*made);
  }
  if (mapped_ == nullptr) plain_.resize(bytes_);
  std::memset(data(), 0x5a, bytes_);
}

Buffer::~Buffer() {
  if (mapped_ != nullptr) (void)mem_free(mapped_);
}

std::uint64_t Buffer::sum() {
  std::uint64_t hash = 1;
  for (std::size_t i = 0; i < bytes_; ++i)
    hash = (hash ^ std::to_integer<std::uint64_t>(data()[i])) * 0x100000001b3;
  return hash;
}

Running::Running(const Call& call, int number, int me, int ranks)
    : call_(call),
      number_(number),
      me_(me),
      ranks_(ranks),
      in_counts_(counts_in(call, me, ranks)),
      out_counts_(counts_out(call, me, ranks)),
      in_(4 * sum_of(in_counts_), call.registered),
      out_(4 * sum_of(out_counts_), call.registered) {
  in_place_ = call.in_place && call.collective == Collective::kAllReduce;
  renew(number);
}

void Running::renew(int number) {
  number_ = number;
  const std::size_t elements = sum_of(in_counts_);
  for (std::size_t i = 0; i < elements; ++i)
    put(in_.data(), call_.type, i, value_of(number, me_, i));
  if (in_place_ && call_.count > 0) std::memcpy(out_.data(), in_.data(), 4 * call_.count);
}

Request Running::request() {
  Request request;
  request.collective = call_.collective;
  request.input = in_place_ ? out_.data() : in_.data();
  request.output = out_.data();
  request.count = call_.count;
  request.type = call_.type;
  request.reduction = call_.op;
  request.root = Rank{call_.root};
  if (!call_.varied) return request;
  request.vector_variant = true;
  if (in_counts_.size() == 1) request.count = in_counts_[0];
  if (out_counts_.size() == 1) request.count = out_counts_[0];
  // In a gather and a scatter only the root knows all sizes.
  const bool rooted = has_root(call_.collective);
  if (in_counts_.size() != 1 && (!rooted || me_ == call_.root))
    request.input_blocks.counts = in_counts_;
  if (out_counts_.size() != 1 && (!rooted || me_ == call_.root))
    request.output_blocks.counts = out_counts_;
  return request;
}

/// Whether a block of the output, which lies at `data`, is what it has to be.
bool Running::right_block(std::size_t block, const std::byte* data) const {
  const int from = static_cast<int>(block);
  const auto before = [&](int rank) {  // Elements of that rank's input before this rank's block.
    const auto counts = counts_in(call_, rank, ranks_);
    return sum_of(std::span(counts).first(static_cast<std::size_t>(me_)));
  };
  const int summed = summed_ranks(call_.collective, me_, ranks_);
  int source = from;  // Negative: elements of the first ranks, reduced.
  std::size_t start = 0;
  switch (call_.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kScan:
    case Collective::kExclusiveScan: source = -1; break;
    case Collective::kReduceScatter: source = -1, start = before(me_); break;
    case Collective::kAllGather:
    case Collective::kGather: break;
    case Collective::kBroadcast: source = call_.root; break;
    case Collective::kScatter: source = call_.root, start = before(source); break;
    case Collective::kAllToAll: start = before(from); break;
  }
  for (std::size_t at = 0; at < out_counts_[block]; ++at) {
    const int value = source < 0 ? reduced(call_, number_, summed, start + at)
                                 : value_of(number_, source, start + at);
    if (!is(data, call_.type, at, value)) return false;
  }
  return true;
}

bool Running::right() {
  if (!has_output(call_.collective, me_, call_.root)) return true;
  const std::byte* data = out_.data();
  for (std::size_t block = 0; block < out_counts_.size(); ++block) {
    if (!right_block(block, data)) return false;
    data += 4 * out_counts_[block];
  }
  return true;
}

}  // namespace tutti::virt
