#include "soak/mix.h"

#include <cstdlib>
#include <cstring>
#include <memory>

#include <fmt/format.h>

namespace tutti::soak {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kFewBytes = std::uint64_t{256} << 10;  // Where several calls are under way.

/// Element `position` of what a rank gives. Sums of it are as easy to tell as itself.
struct Pattern {
  std::uint32_t salt = 0;
  std::uint32_t at(std::size_t rank, std::size_t position) const {
    return static_cast<std::uint32_t>(position * 2654435761U + rank * 40503U) + salt;
  }
  std::uint32_t sum(std::size_t ranks, std::size_t position) const {
    return static_cast<std::uint32_t>(ranks * at(0, position) + 40503U * (ranks * (ranks - 1) / 2));
  }
};

}  // namespace

/// Elements of one or of four bytes, from the heap or from mem_alloc.
struct Mix::Buffer {
  Buffer(std::size_t elements, DataType type, bool registered)
      : count(elements), wide(type == DataType::kUint32) {
    const std::size_t bytes = std::max<std::size_t>(1, elements * size_of(type));
    if (registered) {
      if (auto memory = mem_alloc(bytes)) shared = *memory;
    }
    if (shared == nullptr) heap.reset(std::malloc(bytes));
  }
  ~Buffer() {
    if (shared != nullptr) (void)mem_free(shared);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return shared != nullptr ? shared : heap.get(); }
  template <class Value>
  void fill(Value&& value) {
    for (std::size_t i = 0; i < count; ++i) {
      if (wide)
        static_cast<std::uint32_t*>(data())[i] = value(i);
      else
        static_cast<std::uint8_t*>(data())[i] = static_cast<std::uint8_t>(value(i));
    }
  }
  /// The first element that is not as it should be; `count`: none.
  template <class Value>
  std::size_t find_wrong(Value&& value) const {
    for (std::size_t i = 0; i < count; ++i) {
      const bool right =
          wide ? static_cast<std::uint32_t*>(data())[i] == value(i)
               : static_cast<std::uint8_t*>(data())[i] == static_cast<std::uint8_t>(value(i));
      if (!right) return i;
    }
    return count;
  }

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::size_t count;
  bool wide;
  void* shared = nullptr;
  std::unique_ptr<void, Free> heap;
};

/// A collective that was drawn, with its buffers.
struct Mix::Drawn {
  Request request;
  Pattern pattern;
  std::unique_ptr<Buffer> in, out;

  std::string describe() const {
    return fmt::format("{} of {} {}, root {}", to_string(request.collective), request.count,
                       to_string(request.type), request.root.value);
  }
  /// What the element at `i` of this rank's output should be.
  std::uint32_t expected(std::size_t me, std::size_t ranks, std::size_t i) const {
    const CollectiveTraits traits = traits_of(request.collective);
    const std::size_t own = traits.input_each ? me * request.count : 0;
    if (traits.reduces()) {
      const int summed =
          summed_ranks(request.collective, static_cast<int>(me), static_cast<int>(ranks));
      return pattern.sum(static_cast<std::size_t>(summed), own + i);
    }
    const std::size_t giver =
        traits.root_input ? static_cast<std::size_t>(request.root.value) : i / request.count;
    return pattern.at(giver, own + i % request.count);
  }
  std::string check(Communicator& comm) const {
    const auto me = static_cast<std::size_t>(comm.rank().value);
    const auto ranks = static_cast<std::size_t>(comm.rank_count());
    if (!has_output(request.collective, comm.rank().value, request.root.value)) return "";
    const std::size_t wrong =
        out->find_wrong([&](std::size_t i) { return expected(me, ranks, i); });
    return wrong == out->count ? "" : fmt::format("{}: element {} is wrong", describe(), wrong);
  }
};

Mix::Drawn Mix::draw(std::uint64_t most_bytes, int rank_count) {
  Drawn drawn;
  const auto ranks = static_cast<std::size_t>(rank_count);
  Request& request = drawn.request;
  request.collective = static_cast<Collective>(below(kCollectiveCount));
  request.type = below(4) == 0 ? DataType::kUint8 : DataType::kUint32;
  request.reduction = ReduceOp::kSum;
  request.root = Rank{static_cast<int>(below(ranks))};
  // Each power of two is as likely, but the largest messages, of which few fit into a second.
  std::uint64_t power = below(25);
  if (power > 20 && below(4) != 0) power = below(20);
  const std::uint64_t bytes =
      std::min((std::uint64_t{1} << power) + below(1ULL << power), most_bytes);
  const CollectiveTraits traits = traits_of(request.collective);
  const std::size_t blocks = traits.input_each || traits.output_each ? ranks : 1;
  request.count = std::max<std::size_t>(1, bytes / (blocks * size_of(request.type)));
  drawn.pattern.salt = static_cast<std::uint32_t>(random_());
  const bool registered = below(2) == 0;
  drawn.in = std::make_unique<Buffer>((traits.input_each ? ranks : 1) * request.count, request.type,
                                      registered);
  drawn.out = std::make_unique<Buffer>((traits.output_each ? ranks : 1) * request.count,
                                       request.type, registered);
  request.input = drawn.in->data();
  request.output = drawn.out->data();
  return drawn;
}

Status Mix::one(Communicator& comm, std::uint64_t most_bytes) {
  const Drawn drawn = draw(most_bytes, comm.rank_count());
  call_ += drawn.describe();
  const auto me = static_cast<std::size_t>(comm.rank().value);
  drawn.in->fill([&](std::size_t i) { return drawn.pattern.at(me, i); });
  begins();
  TUTTI_RETURN_IF_ERROR(comm.call(drawn.request));
  wrong_ = drawn.check(comm);
  return ok();
}

/// Started calls, waited for one after another or as a group.
Status Mix::several(Communicator& comm, bool group) {
  const auto me = static_cast<std::size_t>(comm.rank().value);
  std::vector<Drawn> all;
  for (std::uint64_t left = 2 + below(3); left > 0; --left) {
    Drawn& drawn = all.emplace_back(draw(kFewBytes, comm.rank_count()));
    drawn.in->fill([&](std::size_t i) { return drawn.pattern.at(me, i); });
    call_ += (call_.empty() ? "" : " + ") + drawn.describe();
  }
  begins();
  std::vector<Work> works;
  Status outcome;
  {
    std::optional<Group> open;
    if (group) open.emplace();
    for (const Drawn& drawn : all) {
      auto work = comm.start(drawn.request);
      if (!work) {
        outcome = std::move(work.error());
        break;
      }
      works.push_back(*std::move(work));
    }
    if (open) {
      if (Status ended = open->end(); !ended && outcome) outcome = std::move(ended);
    }
  }
  // All of them, whatever went wrong: the buffers are the library's until then.
  for (Work& work : works) {
    if (Status done = work.wait(); !done && outcome) outcome = std::move(done);
  }
  if (!outcome) return outcome;
  for (const Drawn& drawn : all) {
    if (wrong_.empty()) wrong_ = drawn.check(comm);
  }
  return ok();
}

/// Blocks of 0 to 4 shares, by rank.
Status Mix::vector_variant(Communicator& comm) {
  const auto me = static_cast<std::size_t>(comm.rank().value);
  const auto ranks = static_cast<std::size_t>(comm.rank_count());
  const std::size_t share = 1 + below(1ULL << below(14));
  const bool to_all = below(2) == 0;
  const std::uint64_t turn = below(5);
  call_ += fmt::format("{}_v of shares of {}", to_all ? "all_to_all" : "all_gather", share);
  const auto block = [&](std::size_t from, std::size_t to) {
    return (from + (to_all ? to : 0) + turn) % 5 * share;
  };
  std::vector<std::size_t> gets, gives;
  std::size_t got = 0, given = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    got += gets.emplace_back(block(rank, me));
    given += gives.emplace_back(block(me, rank));
  }
  if (!to_all) given = block(me, me);
  const Pattern pattern{static_cast<std::uint32_t>(random_())};
  Buffer in(given, DataType::kUint32, false), out(got, DataType::kUint32, false);
  in.fill([&](std::size_t i) { return pattern.at(me, i); });
  begins();
  if (to_all)
    TUTTI_RETURN_IF_ERROR(
        comm.all_to_all_v(in.data(), {gives, {}}, out.data(), {gets, {}}, DataType::kUint32));
  else
    TUTTI_RETURN_IF_ERROR(comm.all_gather_v(in.data(), out.data(), {gets, {}}, DataType::kUint32));
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::size_t first = 0;  // Where this rank's block lies in that one's input.
    for (std::size_t to = 0; to_all && to < me; ++to) first += block(rank, to);
    for (std::size_t i = 0; i < gets[rank]; ++i, ++at) {
      if (static_cast<std::uint32_t*>(out.data())[at] != pattern.at(rank, first + i))
        wrong_ = fmt::format("{}: block {} is wrong", call_, rank);
    }
  }
  return ok();
}

/// Round the ring: each sends to the next rank and receives from the one before.
Status Mix::messages(Communicator& comm) {
  const int ranks = comm.rank_count(), me = comm.rank().value;
  const int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
  const std::size_t count = 1 + below(1ULL << below(19));
  call_ += fmt::format("messages of {} uint32", count);
  const Pattern pattern{static_cast<std::uint32_t>(random_())};
  const bool registered = below(2) == 0;
  Buffer out(count, DataType::kUint32, registered), in(count, DataType::kUint32, registered);
  out.fill([&](std::size_t i) { return pattern.at(static_cast<std::size_t>(me), i); });
  begins();
  auto sent = comm.start_send(out.data(), count, DataType::kUint32, Rank{to});
  Status got = comm.recv(in.data(), count, DataType::kUint32, Rank{from});
  // The send also where the receive failed: its buffer is the library's until then.
  Status left = sent ? sent->wait() : Status(std::move(sent.error()));
  if (!got) return got;
  if (!left) return left;
  const std::size_t wrong =
      in.find_wrong([&](std::size_t i) { return pattern.at(static_cast<std::size_t>(from), i); });
  if (wrong != count) wrong_ = fmt::format("{}: element {} is wrong", call_, wrong);
  return ok();
}

/// Splits off a part, and makes a few calls there.
Status Mix::part() {
  const int parts = 1 + static_cast<int>(below(2));
  const bool reversed = below(2) == 0;
  const int ranks = world_.rank_count(), me = world_.rank().value;
  call_ = fmt::format("split into {}", parts);
  begins();
  auto split = world_.split(me % parts, reversed ? -me : me);
  if (!split) return std::move(split.error());
  std::vector<int> members;
  for (int i = 0; i < ranks; ++i) {
    const int rank = reversed ? ranks - 1 - i : i;
    if (rank % parts == me % parts) members.push_back(rank);
  }
  for (int i = 0; i < 2; ++i) {
    call_ = fmt::format("in a part of {} ranks: ", members.size());
    if (Status done = one(*split, kFewBytes); !done) {
      ranks_ = std::move(members);
      return done;
    }
  }
  return ok();
}

std::optional<Ended> Mix::step() {
  // So a step is the same on all ranks, whatever they did in the one before.
  random_.seed(seed_ * 1'000'003 + steps_++);
  wrong_.clear();
  call_.clear();
  ranks_.clear();
  const auto run = [&]() -> Status {
    switch (below(16)) {
      case 0:
        call_ = "barrier";
        begins();
        return world_.barrier();
      case 1:
      case 2: return several(world_, false);
      case 3: return several(world_, true);
      case 4:
      case 5: return messages(world_);
      case 6: return vector_variant(world_);
      case 7: return part();
      default: return one(world_, kMostBytes);
    }
  };
  Status done = run();
  if (done && wrong_.empty()) return std::nullopt;
  Ended ended{.error = {}, .wrong = wrong_, .call = fmt::format("step {}: {}", steps_ - 1, call_)};
  if (!done) {
    ended.error = std::move(done.error());
    ended.part = !ranks_.empty();
    ended.named = ended.error->peer.value;
    const auto peer = static_cast<std::size_t>(ended.error->peer.value);
    if (!ranks_.empty() && ended.error->peer.value >= 0 && peer < ranks_.size())
      ended.error->peer = Rank{ranks_[peer]};
  }
  return ended;
}

}  // namespace tutti::soak
