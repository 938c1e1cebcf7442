#include "trainer/train.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <random>

#include "trainer/model.h"

namespace tutti::trainer {
namespace {

constexpr std::size_t kFirstBucketBytes = 4096;

/// Gradients on their way: all-reduced in buckets, while backward goes on.
///
/// Layers become ready from the last to the first. A bucket is a run of layers; as soon as the
/// first of its layers (the last to become ready) is there, its all-reduce starts, and the
/// process's progress thread carries it on. The first bucket is small, so that communication starts
/// early.
class Buckets {
 public:
  Buckets(Communicator& comm, const std::vector<Layer>& layers, float* gradient,
          std::size_t bucket_bytes)
      : comm_(comm), gradient_(gradient) {
    for (std::size_t l = layers.size(); l-- > 0;) {
      const std::size_t most =
          buckets_.size() <= 1 ? std::min(kFirstBucketBytes, bucket_bytes) : bucket_bytes;
      const Layer& layer = layers[l];
      if (!buckets_.empty() && (buckets_.back().size + layer.size()) * sizeof(float) <= most) {
        buckets_.back().first_layer = l;
        buckets_.back().offset = layer.offset;
        buckets_.back().size += layer.size();
        continue;
      }
      buckets_.push_back({.first_layer = l, .offset = layer.offset, .size = layer.size()});
    }
  }

  /// Layer `l`'s gradient is complete on this rank; starts its bucket if that was the last it
  /// waited for.
  Status ready(std::size_t l) {
    if (next_ == buckets_.size() || buckets_[next_].first_layer != l) return ok();
    Bucket& bucket = buckets_[next_++];
    float* data = gradient_ + bucket.offset;
    bucket.started = Clock::now();
    bucket.ended->store(0, std::memory_order_relaxed);
    TUTTI_TRY(bucket.work,
              comm_.start_all_reduce(data, data, bucket.size, DataType::kFloat32, ReduceOp::kSum));
    bucket.work.then([ended = bucket.ended](const Status&) {
      // relaxed: a figure for people; the work itself orders the data.
      ended->store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    });
    return ok();
  }
  /// Waits until all buckets have been reduced.
  Status finish() {
    const auto begin = Clock::now();
    Clock::time_point busy_until{};  // Calls follow each other; their spans are not counted twice.
    for (Bucket& bucket : buckets_) {
      TUTTI_RETURN_IF_ERROR(bucket.work.wait());
      const auto rep = bucket.ended->load(std::memory_order_relaxed);
      const auto ended = rep == 0 ? Clock::now() : Clock::time_point(Clock::duration(rep));
      const auto from = std::max(bucket.started, busy_until);
      if (ended > from) communicating_s_ += std::chrono::duration<double>(ended - from).count();
      busy_until = std::max(busy_until, ended);
    }
    waiting_s_ += std::chrono::duration<double>(Clock::now() - begin).count();
    next_ = 0;
    return ok();
  }

  std::size_t count() const { return buckets_.size(); }
  /// How long this rank did nothing but wait.
  double idle_seconds() const { return waiting_s_; }
  /// Share of the communication's time that backward and the rest of the step hid, 0 to 1.
  double hidden() const {
    return communicating_s_ > 0 ? std::clamp(1 - waiting_s_ / communicating_s_, 0.0, 1.0) : 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Bucket {
    std::size_t first_layer = 0, offset = 0, size = 0;
    Work work{};
    Clock::time_point started{};
    std::shared_ptr<std::atomic<Clock::rep>> ended = std::make_shared<std::atomic<Clock::rep>>(0);
  };
  Communicator& comm_;
  float* gradient_;
  std::vector<Bucket> buckets_;  // In the order in which they become ready.
  std::size_t next_ = 0;
  double communicating_s_ = 0, waiting_s_ = 0;
};

struct FreeShared {
  void operator()(float* memory) const { (void)mem_free(memory); }
};

/// Part `index` of `parts` of [0, count), as even as can be.
std::pair<std::size_t, std::size_t> part_of(std::size_t count, std::size_t parts,
                                            std::size_t index) {
  return {count * index / parts, count * (index + 1) / parts};
}

class Trainer {
 public:
  Trainer(Communicator& comm, const Split& data, const TrainOptions& options)
      : comm_(comm), data_(data), options_(options), order_(data.train.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
  }

  Status prepare() {
    TUTTI_TRY(void* memory, mem_alloc(model_.size() * sizeof(float)));
    gradient_.reset(static_cast<float*>(memory));
    weights_.resize(model_.size());
    velocity_.assign(model_.size(), 0);
    model_.initialise(options_.seed, weights_.data());
    // The same already, if all were given the same seed; this makes sure.
    TUTTI_RETURN_IF_ERROR(comm_.broadcast(weights_.data(), weights_.data(), weights_.size(),
                                          DataType::kFloat32, Rank{0}));
    buckets_.emplace(comm_, model_.layers(), gradient_.get(), options_.bucket_bytes);
    return ok();
  }

  Result<Epoch> run_epoch(int epoch) {
    std::mt19937_64 random(options_.seed * 7919 + static_cast<std::uint64_t>(epoch));
    std::shuffle(order_.begin(), order_.end(), random);
    double loss = 0;
    const std::size_t group = options_.batch * static_cast<std::size_t>(options_.accumulate);
    for (std::size_t first = 0; first < order_.size(); first += group) {
      const std::size_t last = std::min(first + group, order_.size());
      TUTTI_TRY(const double sum, step(first, last,
                                       rate_at(epoch + static_cast<double>(first) /
                                                           static_cast<double>(order_.size()))));
      loss += sum;
    }
    double totals[2] = {loss, 0};
    const auto [begin, end] = part_of(data_.test.size(), ranks(), me());
    totals[1] = static_cast<double>(model_.count_right(weights_.data(), data_.test, begin, end));
    TUTTI_RETURN_IF_ERROR(comm_.all_reduce(totals, totals, 2, DataType::kFloat64, ReduceOp::kSum));
    return Epoch{totals[0] / static_cast<double>(order_.size()),
                 totals[1] / static_cast<double>(data_.test.size())};
  }

  /// A hash of the weights' bits; an error unless it is the same on all ranks.
  Result<std::uint64_t> check_replicas() {
    std::uint64_t hash = 14695981039346656037ULL;
    for (const float weight : weights_) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &weight, sizeof(bits));
      hash = (hash ^ bits) * 1099511628211ULL;
    }
    std::vector<std::uint64_t> all(ranks());
    TUTTI_RETURN_IF_ERROR(comm_.all_gather(&hash, all.data(), 1, DataType::kUint64));
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      return Error{Code::kInternal,
                   "the weights of ranks 0 and " + std::to_string(rank) + " differ after training",
                   comm_.rank()};
    }
    return hash;
  }

  const std::vector<float>& weights() const { return weights_; }
  const Buckets& buckets() const { return *buckets_; }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(comm_.rank_count()); }
  std::size_t me() const { return static_cast<std::size_t>(comm_.rank().value); }

  /// One epoch of warm-up, then down a cosine to a hundredth.
  double rate_at(double epoch) const {
    if (epoch < 1) return options_.learning_rate * (0.1 + 0.9 * epoch);
    const double way = (epoch - 1) / std::max(1, options_.epochs - 1);
    return options_.learning_rate * (0.01 + 0.99 * 0.5 * (1 + std::cos(std::numbers::pi * way)));
  }

  /// One synchronised step over order_[first, last); returns this rank's summed loss.
  Result<double> step(std::size_t first, std::size_t last, double rate) {
    double loss = 0;
    const std::size_t batches = (last - first + options_.batch - 1) / options_.batch;
    for (std::size_t b = 0; b < batches; ++b) {
      const std::size_t begin = first + b * options_.batch,
                        end = std::min(begin + options_.batch, last);
      TUTTI_TRY(const double sum, accumulate(begin, end, b > 0, b + 1 == batches));
      loss += sum;
    }
    TUTTI_RETURN_IF_ERROR(buckets_->finish());
    const auto scale = static_cast<float>(1.0 / static_cast<double>(last - first));
    const auto mu = static_cast<float>(options_.momentum),
               decay = static_cast<float>(options_.weight_decay);
    const auto eta = static_cast<float>(rate);
    const float* gradient = gradient_.get();
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      velocity_[i] = mu * velocity_[i] + gradient[i] * scale + decay * weights_[i];
      weights_[i] -= eta * velocity_[i];
    }
    return loss;
  }

  /// Adds this rank's part of the batch order_[begin, end) to the gradient: its slices, as a
  /// balanced tree. With `last_batch`, layers go on their way as they are complete.
  Result<double> accumulate(std::size_t begin, std::size_t end, bool add, bool last_batch) {
    const auto [first_slice, last_slice] = part_of(kSlices, ranks(), me());
    const std::size_t slices = last_slice - first_slice;
    double loss = 0;
    Status status;
    if (slices == 0) return idle(add, last_batch);
    partial_.resize(std::max(partial_.size(), slices));
    for (std::size_t s = 0; s < slices; ++s) {
      const auto [from, to] = part_of(end - begin, kSlices, first_slice + s);
      partial_[s].resize(model_.size());
      const bool last_slice_of_all = s + 1 == slices;
      const auto layer_done = [&](std::size_t l) {
        if (!last_slice_of_all || !status) return;
        const Layer& layer = model_.layers()[l];
        const float* sum = tree(0, slices, layer.offset, layer.size());
        float* into = gradient_.get() + layer.offset;
        for (std::size_t i = 0; i < layer.size(); ++i) into[i] = add ? into[i] + sum[i] : sum[i];
        if (last_batch) status = buckets_->ready(l);
      };
      loss += model_.backward(weights_.data(), data_.train, order_.data() + begin + from, to - from,
                              partial_[s].data(), layer_done);
    }
    if (!status) return std::move(status.error());
    return loss;
  }

  /// A rank without slices still takes part.
  Result<double> idle(bool add, bool last_batch) {
    if (!add) std::fill_n(gradient_.get(), model_.size(), 0.0F);
    for (std::size_t l = model_.layers().size(); last_batch && l-- > 0;)
      TUTTI_RETURN_IF_ERROR(buckets_->ready(l));
    return 0.0;
  }

  /// Adds up [offset, offset + size) of the slices [first, first + count) in place; returns the
  /// sum's place.
  float* tree(std::size_t first, std::size_t count, std::size_t offset, std::size_t size) {
    float* left = partial_[first].data() + offset;
    if (count == 1) return left;
    std::size_t half = 1;
    while (half * 2 < count) half *= 2;
    tree(first, half, offset, size);
    const float* right = tree(first + half, count - half, offset, size);
    for (std::size_t i = 0; i < size; ++i) left[i] += right[i];
    return left;
  }

  Communicator& comm_;
  const Split& data_;
  const TrainOptions& options_;
  Model model_;
  std::vector<std::size_t> order_;
  // Peers can map it, so that reducing it needs no copy.
  std::unique_ptr<float, FreeShared> gradient_;
  std::vector<float> weights_, velocity_;
  std::vector<std::vector<float>> partial_;  // The gradients of this rank's slices.
  std::optional<Buckets> buckets_;
};

}  // namespace

Result<Outcome> train(Communicator& comm, const Split& data, const TrainOptions& options,
                      const std::function<void(int, int, const Epoch&)>& progress) {
  if (options.epochs < 1 || options.batch < 1 || options.accumulate < 1 ||
      options.bucket_bytes < 1) {
    return Error{Code::kInvalidArgument,
                 "epochs, batch, accumulate and bucket bytes must be at least 1", comm.rank()};
  }
  Trainer trainer(comm, data, options);
  TUTTI_RETURN_IF_ERROR(trainer.prepare());
  TUTTI_TRY(const Counters before, comm.counters());
  Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    TUTTI_TRY(const Epoch done, trainer.run_epoch(epoch));
    outcome.epochs.push_back(done);
    if (comm.rank().value == 0) progress(epoch + 1, options.epochs, done);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  TUTTI_TRY(
      outcome.straggler,
      find_straggler(comm, before, {std::max(seconds, 1e-9), trainer.buckets().idle_seconds()}));
  TUTTI_TRY(outcome.weights_hash, trainer.check_replicas());
  outcome.images_per_second =
      static_cast<double>(data.train.size()) * options.epochs / std::max(seconds, 1e-9);
  outcome.hidden = trainer.buckets().hidden();
  outcome.buckets = trainer.buckets().count();
  outcome.weights = trainer.weights();
  return outcome;
}

}  // namespace tutti::trainer
