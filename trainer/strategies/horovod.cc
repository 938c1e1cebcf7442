// Horovod: gradients become ready in any order, and a thread in the background asks in cycles which
// of them are ready on all ranks. Those it copies into one fusion buffer, and all-reduces together.
//
//   g = sum of g_r, or adasum(g_r) (adasum.h)          w = update(w, g)
//   sent on each rank and step: 2 (N-1)/N S and a word in each cycle; with Adasum log2(N) S
//
// Sergeev, Del Balso: Horovod: fast and easy distributed deep learning in TensorFlow, 2018.
//
// How ranks find out what is ready everywhere is in response_cache.h.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "trainer/strategies/adasum.h"
#include "trainer/strategies/replica.h"
#include "trainer/strategies/response_cache.h"

namespace tutti::trainer {
namespace {

class Horovod : public Replica {
 public:
  explicit Horovod(const Setup& setup) : Replica(setup), cache_(units()) {}
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
    background_.emplace(*comm_, "background thread");
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
    const double sent = background_->bytes();
    traffic().add(sent - std::exchange(counted_, sent), waited.count());
    return update(info.number, info.rate,
                  options().adasum ? info.labels / traffic().ranks() : info.labels);
  }

  std::string note() const override {
    return std::to_string(cycles_) + " cycles, " + std::to_string(cache_.negotiations()) +
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
    std::vector<char> mine;
    {
      const std::scoped_lock lock(mutex_);
      mine = ready_;
    }
    ++cycles_;
    TUTTI_TRY(const auto all, cache_.agree(*background_, mine));
    return reduce(*background_, all);
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
  std::optional<Traffic> background_;  // The thread's; looked at while it sleeps, as the figures.
  Floats fused_, scratch_;
  ResponseCache cache_;
  std::uint64_t cycles_ = 0, fusions_ = 0;
  double counted_ = 0;  // Bytes of `background_` that were added to the trainer's.
  std::mutex mutex_;    // Guards what is below.
  std::condition_variable changed_;
  std::vector<char> ready_;
  std::size_t left_ = 0;
  bool works_ = false, stops_ = false;
  Status status_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Strategy> make_horovod(const Setup& setup) {
  return std::make_unique<Horovod>(setup);
}

}  // namespace tutti::trainer
