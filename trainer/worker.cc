#include "trainer/worker.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <random>
#include <string>

namespace tutti::trainer {
namespace {

/// Part `index` of `parts` of [0, count), as even as can be.
std::pair<std::size_t, std::size_t> part_of(std::size_t count, std::size_t parts,
                                            std::size_t index) {
  return {count * index / parts, count * (index + 1) / parts};
}

}  // namespace

Worker::Worker(const Split& data, const TrainOptions& options)
    : data_(data), options_(options), order_(data.train.size()) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
}

Status Worker::use(Communicator& comm) {
  comm_ = &comm;
  if (gradient_ == nullptr) {
    TUTTI_TRY(void* memory, mem_alloc(model_.size() * sizeof(float)));
    gradient_.reset(static_cast<float*>(memory));
  }
  buckets_.emplace(comm, model_.layers(), gradient_.get(), options_.bucket_bytes);
  return ok();
}

void Worker::initialise() {
  state_ = {};
  state_.weights.resize(model_.size());
  state_.velocity.assign(model_.size(), 0);
  model_.initialise(options_.seed, state_.weights.data());
}

Result<std::optional<Epoch>> Worker::advance() {
  const std::uint64_t epoch = state_.unit / units(), index = state_.unit % units();
  for (; shuffled_ <= epoch; ++shuffled_) {
    std::mt19937_64 random(options_.seed * 7919 + shuffled_);
    std::shuffle(order_.begin(), order_.end(), random);
  }
  if (keeps_) before_ = state_;
  if (index == steps()) {
    TUTTI_TRY(const Epoch figures, evaluate());
    state_.epochs.push_back(figures);
    state_.loss = 0;
    ++state_.unit;
    return std::optional(figures);
  }
  const std::size_t first = index * group();
  const double done = static_cast<double>(first) / static_cast<double>(order_.size());
  TUTTI_TRY(const double loss, step(first, std::min(first + group(), order_.size()),
                                    rate_at(static_cast<double>(epoch) + done)));
  state_.loss += loss;
  ++state_.unit;
  return std::optional<Epoch>();
}

bool Worker::go_back(std::uint64_t unit) {
  if (unit == state_.unit) return true;
  if (!keeps_ || before_.unit != unit) return false;
  state_ = before_;
  return true;
}

Status Worker::hand_over(Rank root) {
  const auto broadcast = [&](auto& values, DataType type) {
    return comm_->broadcast(values.data(), values.data(), values.size(), type, root);
  };
  std::vector<std::uint64_t> sizes{state_.unit, state_.epochs.size()};
  TUTTI_RETURN_IF_ERROR(broadcast(sizes, DataType::kUint64));
  State got;
  got.unit = sizes[0];
  if (comm_->rank() == root) got = state_;
  got.weights.resize(model_.size());
  got.velocity.resize(model_.size());
  std::vector<double> figures(2 * sizes[1]);
  for (std::size_t i = 0; i < got.epochs.size(); ++i) {
    figures[2 * i] = got.epochs[i].loss;
    figures[2 * i + 1] = got.epochs[i].accuracy;
  }
  TUTTI_RETURN_IF_ERROR(broadcast(got.weights, DataType::kFloat32));
  TUTTI_RETURN_IF_ERROR(broadcast(got.velocity, DataType::kFloat32));
  if (!figures.empty()) TUTTI_RETURN_IF_ERROR(broadcast(figures, DataType::kFloat64));
  got.epochs.resize(sizes[1]);
  for (std::size_t i = 0; i < got.epochs.size(); ++i)
    got.epochs[i] = {figures[2 * i], figures[2 * i + 1]};
  got.loss = state_.loss;
  state_ = std::move(got);
  return ok();
}

Result<Epoch> Worker::evaluate() {
  double totals[2] = {state_.loss, 0};
  const auto [begin, end] = part_of(data_.test.size(), ranks(), me());
  totals[1] =
      static_cast<double>(model_.count_right(state_.weights.data(), data_.test, begin, end));
  TUTTI_RETURN_IF_ERROR(comm_->all_reduce(totals, totals, 2, DataType::kFloat64, ReduceOp::kSum));
  return Epoch{totals[0] / static_cast<double>(order_.size()),
               totals[1] / static_cast<double>(data_.test.size())};
}

Result<std::uint64_t> Worker::check_replicas() const {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const float weight : state_.weights) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &weight, sizeof(bits));
    hash = (hash ^ bits) * 1099511628211ULL;
  }
  std::vector<std::uint64_t> all(ranks());
  TUTTI_RETURN_IF_ERROR(comm_->all_gather(&hash, all.data(), 1, DataType::kUint64));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return Error{Code::kInternal,
                 "the weights of ranks 0 and " + std::to_string(rank) + " differ after training",
                 comm_->rank()};
  }
  return hash;
}

/// One epoch of warm-up, then down a cosine to a hundredth.
double Worker::rate_at(double epoch) const {
  if (epoch < 1) return options_.learning_rate * (0.1 + 0.9 * epoch);
  const double way = (epoch - 1) / std::max(1, options_.epochs - 1);
  return options_.learning_rate * (0.01 + 0.99 * 0.5 * (1 + std::cos(std::numbers::pi * way)));
}

/// One synchronised step over order_[first, last); returns this rank's summed loss.
Result<double> Worker::step(std::size_t first, std::size_t last, double rate) {
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
  for (std::size_t i = 0; i < state_.weights.size(); ++i) {
    state_.velocity[i] = mu * state_.velocity[i] + gradient[i] * scale + decay * state_.weights[i];
    state_.weights[i] -= eta * state_.velocity[i];
  }
  return loss;
}

/// Adds this rank's part of the batch order_[begin, end) to the gradient: its slices, as a
/// balanced tree. With `last_batch`, layers go on their way as they are complete.
Result<double> Worker::accumulate(std::size_t begin, std::size_t end, bool add, bool last_batch) {
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
    loss += model_.backward(state_.weights.data(), data_.train, order_.data() + begin + from,
                            to - from, partial_[s].data(), layer_done);
  }
  if (!status) return std::move(status.error());
  return loss;
}

/// A rank without slices still takes part.
Result<double> Worker::idle(bool add, bool last_batch) {
  if (!add) std::fill_n(gradient_.get(), model_.size(), 0.0F);
  for (std::size_t l = model_.layers().size(); last_batch && l-- > 0;)
    TUTTI_RETURN_IF_ERROR(buckets_->ready(l));
  return 0.0;
}

/// Adds up [offset, offset + size) of the slices [first, first + count) in place; returns the
/// sum's place.
float* Worker::tree(std::size_t first, std::size_t count, std::size_t offset, std::size_t size) {
  float* left = partial_[first].data() + offset;
  if (count == 1) return left;
  std::size_t half = 1;
  while (half * 2 < count) half *= 2;
  tree(first, half, offset, size);
  const float* right = tree(first + half, count - half, offset, size);
  for (std::size_t i = 0; i < size; ++i) left[i] += right[i];
  return left;
}

}  // namespace tutti::trainer
