#include "trainer/worker.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>

#include "trainer/hash.h"

namespace tutti::trainer {
namespace {

/// Samples that are evaluated together.
constexpr std::size_t kEvaluated = 64;

/// Part `index` of `parts` of [0, count), as even as can be.
std::pair<std::size_t, std::size_t> part_of(std::size_t count, std::size_t parts,
                                            std::size_t index) {
  return {count * index / parts, count * (index + 1) / parts};
}

}  // namespace

Worker::Worker(const Split& data, const TrainOptions& options, const Network& network)
    : data_(data),
      options_(options),
      network_(network),
      order_(data.train.size()),
      passes_(network, memory_) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
}

Status Worker::use(Communicator& comm) {
  // Kept until it is in a strategy again: a rank may be lost in the calls below.
  if (strategy_ != nullptr) kept_ = snapshot();
  strategy_.reset();
  bytes_ = bytes();
  traffic_.emplace(comm);
  passes_.trace_to(traffic_->spans());
  TUTTI_TRY(auto strategy, make_strategy({*traffic_, network_, memory_, options_.strategy}));
  std::vector<float> first(network_.size());
  network_.initialise(options_.seed, first.data());
  // The same already, if seeds are.
  TUTTI_RETURN_IF_ERROR(
      comm.broadcast(first.data(), first.data(), first.size(), DataType::kFloat32, Rank{0}));
  TUTTI_RETURN_IF_ERROR(strategy->begin(first));
  strategy_ = std::move(strategy);
  if (!kept_) return ok();
  TUTTI_RETURN_IF_ERROR(restore(*kept_));
  kept_.reset();
  return ok();
}

State Worker::position() const {
  return {
      .values = {}, .buffers = passes_.buffers(), .turn = turn_, .loss = loss_, .epochs = epochs_};
}

State Worker::snapshot() {
  State state = position();
  for (const Piece& piece : strategy_->pieces())
    state.values.emplace_back(piece.values.begin(), piece.values.end());
  return state;
}

Status Worker::restore(const State& state) {
  const auto pieces = strategy_->pieces();
  for (std::size_t p = 0; p < pieces.size(); ++p)
    std::copy(state.values[p].begin(), state.values[p].end(), pieces[p].values.begin());
  return go_on(state);
}

Status Worker::go_on(const State& state) {
  passes_.buffers() = state.buffers;
  turn_ = state.turn;
  loss_ = state.loss;
  epochs_ = state.epochs;
  return strategy_->restored();
}

std::string Worker::task() const {
  return std::to_string(network_.size()) + " parameters, " + options_.strategy.optimiser.name +
         ", seed " + std::to_string(options_.seed) + ", " + std::to_string(options_.batch) + " x " +
         std::to_string(options_.accumulate) + " samples a step in " +
         std::to_string(options_.slices) + " slices";
}

Result<std::optional<Epoch>> Worker::advance() {
  const std::uint64_t epoch = turn_ / turns(), index = turn_ % turns();
  for (; shuffled_ <= epoch; ++shuffled_) {
    std::mt19937_64 random(options_.seed * 7919 + shuffled_);
    std::shuffle(order_.begin(), order_.end(), random);
  }
  if (keeps_) copies_[turn_ % copies_.size()] = snapshot();
  if (index == steps()) {
    TUTTI_TRY(const Epoch figures, evaluate());
    epochs_.push_back(figures);
    loss_ = 0;
    ++turn_;
    return std::optional(figures);
  }
  const std::size_t first = index * group();
  const double done = static_cast<double>(first) / static_cast<double>(order_.size());
  RateOptions rates = options_.rate;
  if (rates.peak == 0) rates.peak = default_rate(options_.strategy.optimiser.name);
  const double rate = rate_at(rates, static_cast<double>(epoch) + done, options_.epochs, group());
  TUTTI_RETURN_IF_ERROR(step(first, std::min(first + group(), order_.size()), rate));
  ++turn_;
  return std::optional<Epoch>();
}

bool Worker::go_back(std::uint64_t turn) {
  // What comes after that turn will be another state: there are other ranks.
  for (auto& copy : copies_) {
    if (copy && copy->turn > turn) copy.reset();
  }
  const auto& copy = copies_[turn % copies_.size()];
  if (copy && copy->turn == turn) return static_cast<bool>(restore(*copy));
  return turn == turn_;
}

bool Worker::has_whole_state() {
  const auto pieces = strategy_->pieces();
  return !pieces.empty() && std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
    return piece.held == Held::kEverywhere;
  });
}

Status Worker::hand_over(Rank root) {
  const auto broadcast = [&](void* values, std::size_t count, DataType type) {
    return traffic_->communicator().broadcast(values, values, count, type, root);
  };
  std::uint64_t sizes[2] = {turn_, epochs_.size()};
  TUTTI_RETURN_IF_ERROR(broadcast(sizes, 2, DataType::kUint64));
  epochs_.resize(sizes[1]);
  if (!epochs_.empty()) {
    TUTTI_RETURN_IF_ERROR(
        broadcast(epochs_.data(), epochs_.size() * sizeof(Epoch), DataType::kUint8));
  }
  if (!passes_.buffers().empty()) {
    TUTTI_RETURN_IF_ERROR(
        broadcast(passes_.buffers().data(), passes_.buffers().size(), DataType::kFloat32));
  }
  for (const Piece& piece : strategy_->pieces())
    TUTTI_RETURN_IF_ERROR(broadcast(piece.values.data(), piece.values.size(), DataType::kFloat32));
  turn_ = sizes[0];
  return strategy_->restored();
}

/// This rank's slices of the batch order_[begin, end).
std::vector<Slice> Worker::slices_of(std::size_t begin, std::size_t end) const {
  const Strategy::Share share = strategy_->share();
  std::vector<Slice> slices;
  if (share.none) return slices;
  const auto [first, last] = part_of(options_.slices, share.count, share.index);
  for (std::size_t s = first; s < last; ++s) {
    const auto [from, to] = part_of(end - begin, options_.slices, s);
    slices.push_back({order_.data() + begin + from, to - from});
  }
  return slices;
}

/// Stochastic depth (Huang et al., 2016): each rank leaves out other blocks in each step.
std::vector<char> Worker::choose_skipped() const {
  if (options_.drop_units <= 0) return {};
  std::mt19937_64 random(options_.seed + turn_ * traffic_->ranks() + traffic_->me());
  std::bernoulli_distribution drop(options_.drop_units);
  std::vector<char> skipped;
  for (const Unit& unit : network_.units())
    skipped.push_back(unit.layer->may_be_skipped() && drop(random) ? 1 : 0);
  return skipped;
}

Passes::Sum Worker::sum_of_ranks() {
  if (!options_.sync_batch_norm) return {};
  return [this](std::span<double> values) {
    return traffic_->all_reduce(values.data(), values.size(), DataType::kFloat64);
  };
}

/// One synchronised step over order_[first, last).
Status Worker::step(std::size_t first, std::size_t last, double rate) {
  const auto began = std::chrono::steady_clock::now();
  const std::size_t batches = (last - first + options_.batch - 1) / options_.batch;
  const std::vector<char> skipped = choose_skipped();
  StepInfo info{.number = turn_ / turns() * steps() + turn_ % turns() + 1,
                .rate = rate,
                .labels = (last - first) * data_.train.labels_each};
  const auto span = traffic_->spans().begin("step", std::to_string(info.number));
  TUTTI_RETURN_IF_ERROR(strategy_->begin_step(passes_.buffers()));
  for (std::size_t b = 0; b < batches; ++b) {
    const std::size_t begin = first + b * options_.batch;
    const std::vector<Slice> slices = slices_of(begin, std::min(begin + options_.batch, last));
    for (const Slice& slice : slices) info.own_labels += slice.count * data_.train.labels_each;
    if (static_cast<int>(traffic_->me()) == options_.slow_rank)
      std::this_thread::sleep_for(options_.slow_by);
    TUTTI_RETURN_IF_ERROR(strategy_->begin_batch(b == 0, b + 1 == batches));
    TUTTI_TRY(const double loss,
              passes_.train(*strategy_, data_.train, slices, sum_of_ranks(), skipped));
    loss_ += loss;
  }
  {
    const auto optimiser = traffic_->spans().begin("optimiser");
    TUTTI_RETURN_IF_ERROR(strategy_->step(info));
  }
  ++steps_done_;
  steps_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return ok();
}

Result<Epoch> Worker::evaluate() {
  const auto span = traffic_->spans().begin("evaluation");
  Communicator& comm = traffic_->communicator();
  const auto [begin, end] = part_of(data_.test.size(), traffic_->ranks(), traffic_->me());
  std::vector<std::size_t> samples(end - begin);
  std::iota(samples.begin(), samples.end(), begin);
  std::vector<Slice> slices;
  for (std::size_t i = 0; i < samples.size(); i += kEvaluated)
    slices.push_back({samples.data() + i, std::min(kEvaluated, samples.size() - i)});
  traffic_->pause(true);
  std::vector<float>& buffers = passes_.buffers();
  if (!buffers.empty()) {  // Running means of rank 0, where ranks normalise on their own.
    TUTTI_RETURN_IF_ERROR(comm.broadcast(buffers.data(), buffers.data(), buffers.size(),
                                         DataType::kFloat32, Rank{0}));
  }
  TUTTI_RETURN_IF_ERROR(strategy_->begin_evaluation());
  TUTTI_TRY(const std::size_t right, passes_.count_right(*strategy_, data_.test, slices));
  TUTTI_RETURN_IF_ERROR(strategy_->end_evaluation());
  traffic_->pause(false);
  double totals[2] = {loss_, static_cast<double>(right)};
  TUTTI_RETURN_IF_ERROR(comm.all_reduce(totals, totals, 2, DataType::kFloat64, ReduceOp::kSum));
  const auto each = static_cast<double>(data_.train.labels_each);
  return Epoch{totals[0] / static_cast<double>(order_.size()) / each,
               totals[1] / static_cast<double>(data_.test.size()) / each, bytes()};
}

Result<std::uint64_t> Worker::check_replicas(std::vector<float>& weights) {
  weights.resize(network_.size());
  traffic_->pause(true);
  TUTTI_RETURN_IF_ERROR(strategy_->begin_evaluation());
  for (std::size_t u = 0; u < network_.units().size(); ++u) {
    const Unit& unit = network_.units()[u];
    TUTTI_TRY(const float* values, strategy_->parameters(u));
    std::copy_n(values, unit.size, weights.data() + unit.offset);
    TUTTI_RETURN_IF_ERROR(strategy_->release(u));
  }
  TUTTI_RETURN_IF_ERROR(strategy_->end_evaluation());
  traffic_->pause(false);
  WordHash bits;
  bits.add(weights);
  const std::uint64_t hash = bits.value();
  Communicator& comm = traffic_->communicator();
  std::vector<std::uint64_t> all(traffic_->ranks());
  TUTTI_RETURN_IF_ERROR(comm.all_gather(&hash, all.data(), 1, DataType::kUint64));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return Error{Code::kInternal,
                 "the weights of ranks 0 and " + std::to_string(rank) + " differ after training",
                 comm.rank()};
  }
  return hash;
}

Phases Worker::phases() const {
  return {.steps_s = steps_s_,
          .compute_s = passes_.compute_seconds(),
          .exposed_s = traffic_->exposed_seconds(),
          .communicating_s = traffic_->busy_seconds()};
}

}  // namespace tutti::trainer
