// File: support/net/slow_network.h: executors over a network that takes its time: frames wait for
// as long as a seed says, payloads are read when they leave and not when they are queued, rails are
// cut if the test wants it, and ranks run in any order. All on one thread.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "exec/host_executor.h"
#include "planner/planner.h"
#include "planner/select.h"
#include "support/cluster.h"
#include "transport/net/rails.h"
#include "transport/net/replicator.h"

namespace tutti::test {

using net::FrameHeader;
using net::FrameSink;
using net::Piece;

/// What is on its way from one rank to another.
struct Frame {
  FrameHeader header;
  Buffer payload;
};
struct Pipe {
  std::deque<Frame> frames;
  std::vector<Frame>* copies = nullptr;  // Gets a copy of each, if it is there.
  std::size_t sent = 0;                  // Frames, ever.
  bool cut = false, left = false;        // Left: by the rank that sends.
};
/// From each rank to each.
using Pipes = std::vector<std::vector<Pipe>>;

/// What all ranks of a test share.
struct Slowness {
  explicit Slowness(std::uint64_t seed) : random(seed) {}
  std::mt19937_64 random;
  unsigned least = 0, most = 4;    // Frames that move at once.
  std::size_t longest = SIZE_MAX;  // That leaves at all, bytes.
  unsigned cut_one_in = 0;         // One of so many moves cuts a rail, unless it is the last one.
  std::function<void()> asleep = [] {};  // What happens while a rank sleeps.
  std::size_t draw() { return least + random() % (most - least + 1); }
};

class SlowCarrier final : public net::Carrier {
 public:
  SlowCarrier(Pipe& out, Pipe& in, Slowness& slowness, bool last)
      : out_(out), in_(in), slowness_(slowness), last_(last) {}
  void send(FrameHeader header, std::span<const Piece> pieces) override {
    queued_.push_back({header, {pieces.begin(), pieces.end()}});
  }
  using Carrier::send;
  ~SlowCarrier() override { out_.left = true; }
  Result<bool> flush() override {
    if (cut()) return broken();
    bool moved = false;
    for (std::size_t i = slowness_.draw(); i > 0 && !queued_.empty(); --i, moved = true) {
      if (queued_.front().header.bytes > slowness_.longest) break;
      Frame frame{queued_.front().header, {}};
      for (const Piece piece : queued_.front().pieces)
        frame.payload.insert(frame.payload.end(), piece.begin(), piece.end());
      if (out_.copies != nullptr) out_.copies->push_back(frame);
      out_.frames.push_back(std::move(frame));
      ++out_.sent;
      queued_.pop_front();
    }
    return moved;
  }
  Result<bool> progress(FrameSink& sink) override {
    TUTTI_TRY(bool moved, flush());
    for (std::size_t i = slowness_.draw(); i > 0 && !in_.frames.empty(); --i) {
      const Frame& frame = in_.frames.front();
      TUTTI_TRY(const auto place, sink.place(frame.header));
      if (!place) break;
      if (cut()) {  // In the middle of a frame.
        std::fill_n(*place, frame.header.bytes / 2, std::byte{0xbb});
        return broken();
      }
      std::ranges::copy(frame.payload, *place);
      TUTTI_RETURN_IF_ERROR(sink.arrived(frame.header));
      if (in_.frames.empty()) return true;  // Given up meanwhile.
      in_.frames.pop_front();
      moved = true;
    }
    if (in_.left && in_.frames.empty()) return broken();
    return moved;
  }
  bool any_memory() const override { return true; }
  void moved(Piece from, std::byte* to) override {
    for (Queued& one : queued_) {
      for (Piece& piece : one.pieces) {
        if (piece.data() >= from.data() && piece.data() < from.data() + from.size())
          piece = {to + (piece.data() - from.data()), piece.size()};
      }
    }
  }
  std::size_t pending() const override { return queued_.size(); }
  std::size_t unsent_bytes() const override { return slowness_.random() % 1000; }
  std::string where() const override { return "slow"; }
  void abandon() override {
    queued_.clear();
    in_.frames.clear();
    out_.frames.clear();
  }
  void leave() override {}
  bool left() override { return true; }
  bool delivering() override { return !out_.cut && !in_.left && !out_.frames.empty(); }

 private:
  struct Queued {
    FrameHeader header;
    std::vector<Piece> pieces;
  };
  /// What is on its way is lost, both ways.
  bool cut() {
    if (!last_ && slowness_.cut_one_in != 0 && slowness_.random() % slowness_.cut_one_in == 0)
      out_.cut = in_.cut = true;
    return out_.cut;
  }
  static Error broken() { return {Code::kPeerFailed, "cut"}; }

  Pipe& out_;
  Pipe& in_;
  Slowness& slowness_;
  bool last_;
  std::deque<Queued> queued_;
};

class SlowNetwork final : public net::Network {
 public:
  /// `rails`: pipes of each. With one it is the carrier itself.
  SlowNetwork(std::vector<Pipes>& rails, std::size_t me, Slowness& slowness) : slowness_(slowness) {
    for (std::size_t rank = 0; rank < rails.front().size(); ++rank) {
      std::vector<std::unique_ptr<net::Carrier>> carriers;
      for (Pipes& pipes : rails) {
        carriers.push_back(std::make_unique<SlowCarrier>(pipes[me][rank], pipes[rank][me], slowness,
                                                         &pipes == &rails.back()));
      }
      if (rank == me)
        carriers_.push_back(nullptr);
      else if (rails.size() == 1)
        carriers_.push_back(std::move(carriers.front()));
      else
        carriers_.push_back(std::make_unique<net::Rails>(std::move(carriers), kSpread));
    }
  }
  net::Carrier* carrier(int rank) override {
    return carriers_[static_cast<std::size_t>(rank)].get();
  }
  void look(std::vector<bool>& ready) override { std::fill(ready.begin(), ready.end(), true); }
  void sleep(std::chrono::nanoseconds) override { slowness_.asleep(); }
  void wake() override {}
  void forget(int) override {}

 private:
  static constexpr std::size_t kSpread = 2048;
  Slowness& slowness_;
  std::vector<std::unique_ptr<net::Carrier>> carriers_;
};

class SlowEndpoint final : public Endpoint {
 public:
  SlowEndpoint(const RegionConfig& config, int me, std::unique_ptr<net::Network> network)
      : memory_(zeroed(Region::bytes_for(config))),
        region_(memory_.get(), config),
        replicator_((region_.format(), region_), me, std::move(network), {}) {}
  const Region& region() const override { return region_; }
  BufferName name(const void*, std::size_t) override { return {}; }
  Result<std::byte*> map(int, BufferName, std::size_t) override { return Error{Code::kSystem, ""}; }
  bool alive(int peer) const override { return !replicator_.failure(peer); }
  RemoteLink* remote_link() override { return &replicator_; }
  std::size_t shared_bytes() const override { return 0; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;  // A sanitizer knows where it ends.
  static Memory zeroed(std::size_t bytes) {
    Memory memory(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
    std::fill_n(memory.get(), bytes, std::byte{});
    return memory;
  }

  Memory memory_;
  Region region_;
  net::Replicator replicator_;
};

/// Rank 0's network, if there is one other rank. Its carrier outlives it, and always gets a look.
class OnePeerNetwork final : public net::Network {
 public:
  explicit OnePeerNetwork(net::Carrier& carrier) : carrier_(carrier) {}
  net::Carrier* carrier(int rank) override { return rank == 1 ? &carrier_ : nullptr; }
  void look(std::vector<bool>& ready) override { ready[1] = true; }
  void sleep(std::chrono::nanoseconds) override {}
  void wake() override {}
  void forget(int) override {}

 private:
  net::Carrier& carrier_;
};

/// One algorithm's plans, for ranks that are a host each.
struct OneAlgorithm : exec::PlanSource {
  OneAlgorithm(std::string which, int ranks) : name(std::move(which)) {
    for (int rank = 0; rank < ranks; ++rank) hosts.of.push_back(rank);
  }
  Result<exec::PlanChoice> choose(const exec::Call& call, exec::Access access,
                                  std::size_t) const override {
    planner::Request request;
    request.shape = {call.collective, static_cast<int>(hosts.of.size()), call.root};
    request.bytes = exec::output_bytes(call, request.shape.rank_count);
    request.mapped = access == exec::Access::kMapped;
    request.vector_variant = call.vector_variant;
    planner::PlannerInputs planner_inputs;
    planner_inputs.hosts = hosts;
    planner_inputs.overrides = name;
    TUTTI_TRY(const auto recipe, planner::choose(request, planner_inputs));
    TUTTI_TRY(const auto* verified, planner::prepare(recipe));
    return exec::PlanChoice{&verified->plan, 1, 0};
  }

  std::string name;
  planner::Hosts hosts;
};

/// A region of short slots.
inline RegionConfig slow_region(int ranks, std::uint32_t message_slots = 8) {
  RegionConfig config = Region::default_config(ranks);
  config.slot_bytes = 8192;  // Longer than what is worth lending.
  config.slot_count = config.multicast_slots = 3;
  config.message_slots = message_slots;
  config.lanes = 8;
  config.replica = 1;
  return config;
}

/// Ranks of one test, all polled by this thread.
class Ranks {
 public:
  struct Options {
    RegionConfig region;
    std::size_t rails = 1;
    exec::EagerLimits::Bytes eager_limit_bytes{};
    std::chrono::milliseconds timeout{60'000};
  };
  Ranks(int count, const std::string& algorithm, std::uint64_t seed, std::size_t rails = 1,
        std::uint32_t message_slots = 8)
      : Ranks({.region = slow_region(count, message_slots), .rails = rails},
              std::make_shared<OneAlgorithm>(algorithm, count), seed) {}
  Ranks(const Options& options, const std::shared_ptr<const exec::PlanSource>& plans,
        std::uint64_t seed)
      : slowness_(seed), rails_(options.rails) {
    const std::size_t ranks = options.region.rank_count;
    for (Pipes& pipes : rails_) pipes.assign(ranks, std::vector<Pipe>(ranks));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const int me = static_cast<int>(rank);
      exec::HostExecutor::Options own;
      own.wait = {.spins = 0, .yields = 0};  // They sleep as soon as they may.
      own.plans = plans;
      own.eager_limit_bytes = options.eager_limit_bytes;
      own.timeout = options.timeout;
      executors_.push_back(std::make_unique<exec::HostExecutor>(
          std::make_unique<SlowEndpoint>(options.region, me,
                                         std::make_unique<SlowNetwork>(rails_, rank, slowness_)),
          me, std::move(own)));
    }
  }
  /// All leave once they have heard each other. The ranks that are left answer one that leaves.
  ~Ranks() {
    slowness_.cut_one_in = 0;
    std::erase(executors_, nullptr);
    const auto pending = [](const auto& one) { return one->endpoint().remote_link()->pending(); };
    slowness_.asleep = [this] {
      for (const auto& executor : executors_) {
        if (executor != nullptr) executor->endpoint().remote_link()->progress();
      }
    };
    for (int turns = 0; turns < 10'000 && std::ranges::any_of(executors_, pending); ++turns)
      slowness_.asleep();
    for (auto& executor : executors_) const auto leaves = std::move(executor);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  Slowness& slowness() { return slowness_; }
  /// Frames of one of two ranks: all, and those that the other has not taken.
  std::size_t sent_by(std::size_t rank) const { return rails_.front()[rank][1 - rank].sent; }
  std::size_t under_way_from(std::size_t rank) const {
    return rails_.front()[rank][1 - rank].frames.size();
  }
  /// A rank leaves, and the others stay.
  void leave(int rank) {
    const auto leaves = std::move(executors_[static_cast<std::size_t>(rank)]);
  }
  /// One connection between two ranks is reset, and what is on its way over it is lost.
  void reset(std::size_t rail, std::size_t from, std::size_t to) {
    for (Pipe* const pipe : {&rails_[rail][from][to], &rails_[rail][to][from]}) {
      pipe->cut = true;
      pipe->frames.clear();
    }
  }
  /// From now on this gets a copy of each frame from one rank to another.
  void copy_frames(std::size_t from, std::size_t to, std::vector<Frame>& copies) {
    rails_.front()[from][to].copies = &copies;
  }
  exec::HostExecutor& operator[](int rank) { return *executors_[static_cast<std::size_t>(rank)]; }
  /// Polls ranks in any order until all are done, each of which is told to `done_with`. Empty, or
  /// what a rank's status says.
  std::string finish(const std::function<void(std::size_t)>& done_with) {
    const std::size_t count = executors_.size();
    std::vector<bool> done(count);
    for (std::size_t left = count, turns = 0; left != 0; ++turns) {
      if (turns == 10'000'000) return "it goes on for ever";
      const std::size_t rank = slowness_.random() % count;
      // A rank that is done goes on to something else that drives the remote link.
      if (done[rank]) executors_[rank]->endpoint().remote_link()->progress();
      if (done[rank] || executors_[rank]->poll() != exec::Poll::kDone) continue;
      done[rank] = true;
      --left;
      if (const Status status = executors_[rank]->take_status(); !status)
        return status.error().to_string();
      done_with(rank);
    }
    return {};
  }

 private:
  Slowness slowness_;
  std::vector<Pipes> rails_;
  std::vector<std::unique_ptr<exec::HostExecutor>> executors_;
};

inline exec::Call call_of(const Case& test, const std::byte* in, std::byte* out) {
  exec::Call call;
  call.collective = test.collective;
  call.type = test.type;
  call.op = test.op;
  call.root = test.root;
  call.input = in;
  call.output = out;
  call.count = test.count;
  return call;
}

/// Where a rank's input and output lie in memory of the longer of the two.
inline std::pair<std::size_t, std::size_t> offsets(const Case& test, int rank) {
  const CollectiveTraits traits = traits_of(test.collective);
  const std::size_t own = static_cast<std::size_t>(rank) * test.count * size_of(test.type);
  const bool gathers = traits.output_each && !traits.input_each;
  const bool scatters = traits.input_each && !traits.output_each;
  return {gathers ? own : 0, scatters ? own : 0};
}

/// One call of all ranks, in place or not; empty, or what is wrong with it.
template <class Ranks>
std::string run(Ranks& ranks, const Case& test, std::uint64_t seed) {
  const auto count = static_cast<std::size_t>(test.ranks);
  std::vector<Buffer> inputs(count, Buffer(test.input_bytes()));
  std::vector<Buffer> apart = inputs, memory(count);
  for (int rank = 0; rank < test.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto [in_at, out_at] = offsets(test, rank);
    fill(test, rank, seed, inputs[r].data());
    memory[r].resize(std::max(test.input_bytes(), test.output_bytes()));
    apart[r] = inputs[r];
    if (test.in_place)
      std::ranges::copy(inputs[r], memory[r].begin() + static_cast<std::ptrdiff_t>(in_at));
    ranks[rank].begin(call_of(test, test.in_place ? memory[r].data() + in_at : apart[r].data(),
                              memory[r].data() + (test.in_place ? out_at : 0)));
  }
  std::vector<Buffer> result(count);
  const auto take = [&](std::size_t rank) {
    result[rank] = memory[rank];
    // It is the user's again, whatever the others still need.
    std::ranges::fill(memory[rank], std::byte{0xdd});
    std::ranges::fill(apart[rank], std::byte{0xdd});
  };
  if (auto said = ranks.finish(take); !said.empty()) return said;
  for (int rank = 0; rank < test.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const Buffer want = expected(test, rank, inputs);
    const std::size_t at = test.in_place ? offsets(test, rank).second : 0;
    if (!std::equal(want.begin(), want.end(), result[r].begin() + static_cast<std::ptrdiff_t>(at)))
      return test.to_string() + ": rank " + std::to_string(rank) + " has a wrong result";
  }
  return {};
}

}  // namespace tutti::test
