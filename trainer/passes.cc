#include "trainer/passes.h"

#include <algorithm>
#include <chrono>

namespace tutti::trainer {
namespace {

/// Adds the time in which it lives, and leaves a span.
class Timed {
 public:
  Timed(double& seconds, const Spans& spans, const char* what, std::string_view of = {})
      : span_(spans.begin(what, of)), seconds_(seconds) {}
  ~Timed() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Spans::Span span_;
  double& seconds_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

/// The largest power of two below `count`: where a balanced tree splits.
std::size_t split_of(std::size_t count) {
  std::size_t half = 1;
  while (half * 2 < count) half *= 2;
  return half;
}

/// Adds values[first, first + count) up into the first of them, as a balanced tree.
void add_tree(std::vector<std::vector<double>>& values, std::size_t first, std::size_t count) {
  if (count <= 1) return;
  const std::size_t half = split_of(count);
  add_tree(values, first, half);
  add_tree(values, first + half, count - half);
  for (std::size_t i = 0; i < values[first].size(); ++i)
    values[first][i] += values[first + half][i];
}

bool is_skipped(const std::vector<char>& skipped, std::size_t unit) {
  return !skipped.empty() && skipped[unit] != 0;
}

}  // namespace

/// A unit's gradients over the slices.
struct Passes::Tree {
  std::size_t unit;
  std::span<const Slice> slices;
  const float* parameters;
};

Passes::Passes(const Network& network, Ledger& ledger)
    : network_(network),
      ledger_(ledger),
      buffers_(network.buffers()),
      tapes_(network.units().size()),
      forward_sums_(network.units().size()),
      backward_sums_(network.units().size()) {
  network_.initialise_buffers(buffers_.data());
}

Pass Passes::pass_of(std::size_t unit, std::size_t slice, std::size_t samples,
                     const float* parameters) {
  return {.parameters = parameters,
          .input = unit == 0 ? inputs_[slice].data() : tapes_[unit - 1][slice].output.data(),
          .samples = samples,
          .training = training_,
          .buffers = buffers_.data() + network_.units()[unit].buffers_offset,
          .forward_sums = forward_sums_[unit].data(),
          .backward_sums = backward_sums_[unit].data()};
}

/// What a layer needs of the whole batch, before it computes.
Status Passes::sum_up(std::size_t unit, const float* parameters, std::span<const Slice> slices,
                      bool is_forward, const Sum& sum) {
  const Layer& layer = *network_.units()[unit].layer;
  if (layer.sums() == 0 || !training_) return ok();
  std::vector<std::vector<double>> each(std::max<std::size_t>(1, slices.size()),
                                        std::vector<double>(layer.sums()));
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const Pass pass = pass_of(unit, s, slices[s].count, parameters);
    is_forward ? layer.add_forward_sums(pass, each[s].data())
               : layer.add_backward_sums(pass, tapes_[unit][s], each[s].data());
  }
  add_tree(each, 0, each.size());
  std::vector<double>& sums = is_forward ? forward_sums_[unit] : backward_sums_[unit];
  sums = std::move(each[0]);
  return sum ? sum(sums) : ok();
}

Status Passes::forward(Strategy& strategy, const Samples& data, std::span<const Slice> slices,
                       bool training, const Sum& sum, const std::vector<char>& skipped) {
  training_ = training;
  inputs_.resize(std::max(inputs_.size(), slices.size()));
  for (std::size_t s = 0; s < slices.size(); ++s) {
    inputs_[s].resize(slices[s].count * data.inputs_each);
    for (std::size_t i = 0; i < slices[s].count; ++i) {
      std::copy_n(data.input(slices[s].samples[i]), data.inputs_each,
                  inputs_[s].data() + i * data.inputs_each);
    }
  }
  for (std::size_t u = 0; u < network_.units().size(); ++u) {
    const Layer& layer = *network_.units()[u].layer;
    tapes_[u].resize(std::max(tapes_[u].size(), slices.size()));
    TUTTI_TRY(const float* parameters, strategy.parameters(u));
    TUTTI_RETURN_IF_ERROR(sum_up(u, parameters, slices, true, sum));
    double evaluation_s = 0;  // No part of a step.
    const Timed timed(training ? compute_s_ : evaluation_s, spans_,
                      training ? "forward" : "evaluate", network_.units()[u].name);
    if (training && layer.sums() > 0 && !slices.empty())
      layer.update_buffers(forward_sums_[u].data(),
                           buffers_.data() + network_.units()[u].buffers_offset);
    for (std::size_t s = 0; s < slices.size(); ++s) {
      const Pass pass = pass_of(u, s, slices[s].count, parameters);
      if (is_skipped(skipped, u)) {
        tapes_[u][s].output.assign(pass.input, pass.input + pass.samples * layer.inputs());
      } else {
        layer.forward(pass, tapes_[u][s]);
      }
    }
    TUTTI_RETURN_IF_ERROR(strategy.release(u));
  }
  return ok();
}

/// Sets `into` to the sum over slices [first, first + count), as a balanced tree.
Status Passes::add_gradients(const Tree& tree, std::size_t first, std::size_t count, float* into,
                             std::size_t depth) {
  const Unit& unit = network_.units()[tree.unit];
  if (count == 1 && tree.slices[first].count == 0) {
    std::fill_n(into, unit.size, 0.0F);
    return ok();
  }
  if (count == 1) {
    std::vector<float>* error = tree.unit == 0 ? nullptr : &tapes_[tree.unit - 1][first].error;
    if (error != nullptr) error->resize(tapes_[tree.unit - 1][first].output.size());
    unit.layer->backward(pass_of(tree.unit, first, tree.slices[first].count, tree.parameters),
                         tapes_[tree.unit][first], error != nullptr ? error->data() : nullptr,
                         into);
    return ok();
  }
  const std::size_t half = split_of(count);
  if (partial_.size() <= depth) partial_.resize(depth + 1);
  if (partial_[depth].size() < unit.size) {
    TUTTI_TRY(partial_[depth], Floats::make(ledger_, Holds::kTransient, unit.size));
  }
  TUTTI_RETURN_IF_ERROR(add_gradients(tree, first, half, into, depth + 1));
  float* right = partial_[depth].data();
  TUTTI_RETURN_IF_ERROR(add_gradients(tree, first + half, count - half, right, depth + 1));
  for (std::size_t i = 0; i < unit.size; ++i) into[i] += right[i];
  return ok();
}

Status Passes::backward_unit(Strategy& strategy, std::size_t unit, std::span<const Slice> slices,
                             const Sum& sum) {
  const std::size_t size = network_.units()[unit].size;
  TUTTI_TRY(const float* parameters, strategy.parameters(unit));
  TUTTI_RETURN_IF_ERROR(sum_up(unit, parameters, slices, false, sum));
  TUTTI_TRY(const Strategy::Target target, strategy.gradient(unit));
  {
    const Timed timed(compute_s_, spans_, "backward", network_.units()[unit].name);
    if (slices.empty()) {
      if (!target.add) std::fill_n(target.data, size, 0.0F);
    } else if (!target.add) {
      TUTTI_RETURN_IF_ERROR(
          add_gradients({unit, slices, parameters}, 0, slices.size(), target.data, 1));
    } else {
      if (partial_.empty()) partial_.resize(1);
      if (partial_[0].size() < size) {
        TUTTI_TRY(partial_[0], Floats::make(ledger_, Holds::kTransient, size));
      }
      float* batch = partial_[0].data();
      TUTTI_RETURN_IF_ERROR(add_gradients({unit, slices, parameters}, 0, slices.size(), batch, 1));
      for (std::size_t i = 0; i < size; ++i) target.data[i] += batch[i];
    }
  }
  TUTTI_RETURN_IF_ERROR(strategy.release(unit));
  return strategy.ready(unit);
}

Status Passes::backward(Strategy& strategy, std::span<const Slice> slices, const Sum& sum,
                        const std::vector<char>& skipped) {
  for (std::size_t u = network_.units().size(); u-- > 0;) {
    if (!is_skipped(skipped, u)) {
      TUTTI_RETURN_IF_ERROR(backward_unit(strategy, u, slices, sum));
      continue;
    }
    for (std::size_t s = 0; s < slices.size(); ++s) tapes_[u - 1][s].error = tapes_[u][s].error;
  }
  return ok();
}

Result<double> Passes::train(Strategy& strategy, const Samples& data, std::span<const Slice> slices,
                             const Sum& sum, const std::vector<char>& skipped) {
  TUTTI_RETURN_IF_ERROR(forward(strategy, data, slices, true, sum, skipped));
  double loss = 0;
  const float scale = strategy.loss_scale();
  {
    const Timed timed(compute_s_, spans_, "loss");
    for (std::size_t s = 0; s < slices.size(); ++s) {
      std::vector<std::uint8_t> labels;
      for (std::size_t i = 0; i < slices[s].count; ++i) {
        const std::uint8_t* label = data.label(slices[s].samples[i]);
        labels.insert(labels.end(), label, label + data.labels_each);
      }
      Tape& last = tapes_.back()[s];
      last.error = last.output;
      loss += cross_entropy(last.error.data(), labels.data(), labels.size(), data.classes);
      if (scale == 1) continue;
      for (float& slope : last.error) slope *= scale;
    }
  }
  TUTTI_RETURN_IF_ERROR(backward(strategy, slices, sum, skipped));
  return loss;
}

Result<std::size_t> Passes::count_right(Strategy& strategy, const Samples& data,
                                        std::span<const Slice> slices) {
  TUTTI_RETURN_IF_ERROR(forward(strategy, data, slices, false, {}, {}));
  std::size_t right = 0;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const float* scores = tapes_.back()[s].output.data();
    for (std::size_t i = 0; i < slices[s].count; ++i) {
      for (std::size_t l = 0; l < data.labels_each; ++l, scores += data.classes) {
        const auto guess = std::max_element(scores, scores + data.classes) - scores;
        right += guess == data.label(slices[s].samples[i])[l] ? 1U : 0U;
      }
    }
  }
  return right;
}

}  // namespace tutti::trainer
