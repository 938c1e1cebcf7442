// Horovod: gradients become ready in any order, and a thread in the background asks in cycles which
// of them are ready on all ranks. Those it copies into one fusion buffer, and all-reduces together.
//
//   g = sum of g_r, or adasum(g_r) (adasum.h)          w = update(w, g)
//   sent on each rank and step: 2 (N-1)/N S and a word in each cycle; with Adasum log2(N) S
//
// Sergeev, Del Balso: Horovod: fast and easy distributed deep learning in TensorFlow, 2018.
//
// A new gradient is negotiated: rank 0 gathers what each rank has ready, and answers with what all
// have. From then on it has a place in the response cache, which is the same on all ranks, and one
// bit of an all-reduce by `and` says whether it is ready everywhere.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "trainer/strategies/adasum.h"
#include "trainer/strategies/replica.h"

namespace tutti::trainer {
namespace {

constexpr std::size_t kBits = 64;

class Horovod : public Replica {
 public:
  using Replica::Replica;
  ~Horovod() override {
    {
      const std::scoped_lock lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    if (works_ && comm_) comm_->abort("training ended in the middle of a step");
    if (thread_.joinable()) thread_.join();
  }

  Status begin(std::span<const float> weights) override {
    TUTTI_RETURN_IF_ERROR(Replica::begin(weights));
    // The thread's own communicator: others go on with theirs at the same time.
    TUTTI_TRY(comm_, traffic().communicator().split(0, static_cast<int>(traffic().me())));
    TUTTI_TRY(fused_, make(Holds::kTransient, size()));
    if (options().adasum) {
      TUTTI_TRY(scratch_, make(Holds::kTransient, size()));
    }
    ready_.assign(units().size(), 0);
    cached_.assign(units().size(), 0);
    thread_ = std::thread([this] { run(); });
    return ok();
  }

  Status ready(std::size_t unit) override {
    if (!last_batch_) return ok();
    const std::scoped_lock lock(mutex_);
    ready_[unit] = 1;
    if (!works_) {  // The first of a step.
      works_ = true;
      left_ = units().size();
      changed_.notify_all();
    }
    return ok();
  }

  Status step(const StepInfo& info) override {
    const auto began = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    // Calls of the thread have deadlines, so it ends.
    changed_.wait(lock, [this] { return !works_; });
    if (!status_) return Error(status_.error());
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - began;
    traffic().add(std::exchange(bytes_, 0), waited.count());
    return update(info.number, info.rate,
                  options().adasum ? info.labels / traffic().ranks() : info.labels);
  }

  std::string note() const override {
    return std::to_string(cycles_) + " cycles, " + std::to_string(negotiations_) +
           " negotiations, " + std::to_string(fusions_) + " fused calls";
  }

 private:
  /// The thread: cycles while a step has gradients that are not reduced.
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return works_ || stops_; });
      if (stops_) return;
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(options().cycle_us));
      Status status = cycle();
      lock.lock();
      if (status && left_ > 0) continue;
      if (!status) status_ = std::move(status);
      works_ = false;
      changed_.notify_all();
      if (!status_) return;
    }
  }

  Status cycle() {
    Traffic traffic(*comm_);
    std::vector<char> mine;
    {
      const std::scoped_lock lock(mutex_);
      mine = ready_;
    }
    ++cycles_;
    // Bit u: ready, and in the cache. The last word: nothing is ready that is not in it.
    std::vector<std::uint64_t> bits(units().size() / kBits + 2);
    bits.back() = ~std::uint64_t{0};
    for (std::size_t u = 0; u < mine.size(); ++u) {
      if (mine[u] != 0 && cached_[u] != 0) bits[u / kBits] |= std::uint64_t{1} << u % kBits;
      if (mine[u] != 0 && cached_[u] == 0) bits.back() = 0;
    }
    TUTTI_RETURN_IF_ERROR(
        traffic.all_reduce(bits.data(), bits.size(), DataType::kUint64, ReduceOp::kAnd));
    std::vector<char> all(mine.size());
    for (std::size_t u = 0; u < mine.size(); ++u)
      all[u] = static_cast<char>(bits[u / kBits] >> u % kBits & 1U);
    if (bits.back() == 0) TUTTI_RETURN_IF_ERROR(negotiate(traffic, mine, all));
    TUTTI_RETURN_IF_ERROR(reduce(traffic, all));
    const std::scoped_lock lock(mutex_);
    bytes_ += traffic.bytes();
    return ok();
  }

  /// Adds to `all` what is new and ready on all ranks. A number for each unit: 0, or its size.
  Status negotiate(Traffic& traffic, const std::vector<char>& mine, std::vector<char>& all) {
    ++negotiations_;
    std::vector<std::uint64_t> asked(mine.size()), asked_by_all(mine.size() * traffic.ranks());
    for (std::size_t u = 0; u < mine.size(); ++u)
      asked[u] = mine[u] != 0 && cached_[u] == 0 ? units()[u].size : 0;
    Request request{.collective = Collective::kGather,
                    .input = asked.data(),
                    .output = asked_by_all.data(),
                    .count = asked.size(),
                    .type = DataType::kUint64,
                    .root = Rank{0}};
    TUTTI_RETURN_IF_ERROR(traffic.call(request));
    for (std::size_t u = 0; u < asked.size() && traffic.me() == 0; ++u) {
      for (std::size_t r = 0; r < traffic.ranks(); ++r)
        asked[u] = asked_by_all[r * asked.size() + u] == asked[u] ? asked[u] : 0;
    }
    request.collective = Collective::kBroadcast;
    request.output = asked.data();
    TUTTI_RETURN_IF_ERROR(traffic.call(request));
    for (std::size_t u = 0; u < asked.size(); ++u) {
      if (asked[u] == 0) continue;
      cached_[u] = 1;
      all[u] = 1;
    }
    return ok();
  }

  /// Reduces these units, as many in one call as the fusion buffer takes, and at least one.
  Status reduce(Traffic& traffic, const std::vector<char>& all) {
    for (std::size_t u = 0; u < all.size();) {
      std::vector<std::size_t> fused, sizes;
      std::size_t count = 0;
      for (; u < all.size(); ++u) {
        if (all[u] == 0) continue;
        const std::size_t unit = units()[u].size;
        if (!fused.empty() && (count + unit) * sizeof(float) > options().bucket_bytes) break;
        std::copy_n(gradients() + units()[u].offset, unit, fused_.data() + count);
        fused.push_back(u);
        sizes.push_back(unit);
        count += unit;
      }
      if (fused.empty()) break;
      ++fusions_;
      if (options().adasum) {
        TUTTI_RETURN_IF_ERROR(adasum(traffic, {fused_.data(), count}, scratch_.span(), sizes));
      } else {
        TUTTI_RETURN_IF_ERROR(traffic.all_reduce(fused_.data(), count));
      }
      const float* from = fused_.data();
      const std::scoped_lock lock(mutex_);
      for (const std::size_t unit : fused) {
        std::copy_n(from, units()[unit].size, gradients() + units()[unit].offset);
        from += units()[unit].size;
        ready_[unit] = 0;
        --left_;
      }
    }
    return ok();
  }

  std::optional<Communicator> comm_;
  Floats fused_, scratch_;
  std::vector<char> cached_;
  std::uint64_t cycles_ = 0, negotiations_ = 0, fusions_ = 0;  // Read while the thread sleeps.
  std::mutex mutex_;                                           // Guards what is below.
  std::condition_variable changed_;
  std::vector<char> ready_;
  std::size_t left_ = 0;
  double bytes_ = 0;
  bool works_ = false, stops_ = false;
  Status status_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Strategy> make_horovod(const Setup& setup) {
  return std::make_unique<Horovod>(setup);
}

}  // namespace tutti::trainer
