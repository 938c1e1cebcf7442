#include "virtual/calls.h"

#include <algorithm>
#include <cstring>

namespace tutti::virt {
namespace {

bool one_gets(Collective what) {
  return what == Collective::kReduce || what == Collective::kGather;
}
std::size_t blocks_in(Collective what, std::size_t ranks) {
  return what == Collective::kReduceScatter || what == Collective::kScatter ||
                 what == Collective::kAllToAll
             ? ranks
             : 1;
}
std::size_t blocks_out(Collective what, std::size_t ranks) {
  return what == Collective::kAllGather || what == Collective::kGather ||
                 what == Collective::kAllToAll
             ? ranks
             : 1;
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

/// What element `i` of the output has to be.
int expected(const Call& call, int number, int me, int ranks, std::size_t i) {
  const std::size_t count = call.count, block = count == 0 ? 0 : i / count,
                    at = count == 0 ? 0 : i % count;
  switch (call.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce: return reduced(call, number, ranks, i);
    case Collective::kReduceScatter:
      return reduced(call, number, ranks, static_cast<std::size_t>(me) * count + i);
    case Collective::kAllGather:
    case Collective::kGather: return value_of(number, static_cast<int>(block), at);
    case Collective::kBroadcast: return value_of(number, call.root, i);
    case Collective::kScatter:
      return value_of(number, call.root, static_cast<std::size_t>(me) * count + i);
    case Collective::kAllToAll:
      return value_of(number, static_cast<int>(block), static_cast<std::size_t>(me) * count + at);
  }
  return 0;
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
    if (run.reduces) {
      call.what = What::kCollective;
      call.collective = Collective::kAllReduce;
    }
    call.root = static_cast<int>(random.below(static_cast<std::uint64_t>(run.ranks)));
    call.started = random.one_in(3) || run.starts_all;
    call.registered = random.one_in(3) || run.mapped;
    call.in_place = random.one_in(4);
    call.on_part = parted && random.one_in(2);
    if (call.what == What::kRepeats) {
      call.count = 1 + call.count % 64;
      call.times = static_cast<int>(2 + random.below(run.repeats ? 12 : 6));
    }
    if (call.what == What::kSplit) parted = true;
    calls.push_back(call);
  }
  return calls;
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

bool is_reduction(Collective what) {
  return what == Collective::kAllReduce || what == Collective::kReduceScatter ||
         what == Collective::kReduce;
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
      in_(4 * call.count * blocks_in(call.collective, static_cast<std::size_t>(ranks)),
          call.registered),
      out_(4 * call.count * blocks_out(call.collective, static_cast<std::size_t>(ranks)),
           call.registered) {
  in_place_ = call.in_place && call.collective == Collective::kAllReduce;
  renew(number);
}

void Running::renew(int number) {
  number_ = number;
  const std::size_t elements =
      call_.count * blocks_in(call_.collective, static_cast<std::size_t>(ranks_));
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
  return request;
}

bool Running::right() {
  if (one_gets(call_.collective) && me_ != call_.root) return true;
  const std::size_t elements =
      call_.count * blocks_out(call_.collective, static_cast<std::size_t>(ranks_));
  for (std::size_t i = 0; i < elements; ++i) {
    if (!is(out_.data(), call_.type, i, expected(call_, number_, me_, ranks_, i))) return false;
  }
  return true;
}

}  // namespace tutti::virt
