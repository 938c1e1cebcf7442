#include "tutti/compression.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "base/hash.h"

namespace tutti {
namespace {

Status check_size(std::span<float> gradient, std::size_t count) {
  if (gradient.size() == count) return ok();
  return Error{Code::kInvalidArgument,
               fmt::format("average: the gradient has {} elements, {} were announced",
                           gradient.size(), count)};
}

void add(std::vector<float>& sum, std::span<const float> gradient,
         std::span<const float> residual) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = gradient[i] + residual[i];
}

/// Takes the vectors' values from a state, in which they lie one after the other.
Status take(std::span<const float> state, std::initializer_list<std::vector<float>*> vectors) {
  std::size_t count = 0;
  for (const std::vector<float>* vector : vectors) count += vector->size();
  if (state.size() != count)
    return Error{Code::kInvalidArgument,
                 fmt::format("restore: the state has {} elements, not the {} of these arguments",
                             state.size(), count)};
  for (std::vector<float>* vector : vectors) {
    std::ranges::copy(state.first(vector->size()), vector->begin());
    state = state.subspan(vector->size());
  }
  return ok();
}

/// Every rank's bytes, by rank.
Status gather(Communicator& comm, const std::vector<std::byte>& mine, std::vector<std::byte>& all) {
  all.resize(mine.size() * static_cast<std::size_t>(comm.rank_count()));
  return comm.all_gather(mine.data(), all.data(), mine.size(), DataType::kUint8);
}

template <class T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// Makes the columns of a matrix (rows x columns, row by row) orthogonal and of length 1. One that
/// depends on those before it becomes 0.
void orthogonalise(std::vector<float>& matrix, std::size_t columns) {
  const std::size_t rows = matrix.size() / columns;
  const auto product = [&](std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t row = 0; row < rows; ++row)
      sum += double{matrix[row * columns + a]} * double{matrix[row * columns + b]};
    return sum;
  };
  for (std::size_t column = 0; column < columns; ++column) {
    const double before = product(column, column);
    for (std::size_t other = 0; other < column; ++other) {
      const double share = product(column, other);
      for (std::size_t row = 0; row < rows; ++row) {
        matrix[row * columns + column] -=
            static_cast<float>(share * double{matrix[row * columns + other]});
      }
    }
    const double left = product(column, column);
    // What is left of a dependent column is rounding.
    const double factor = left > before * 1e-10 ? 1 / std::sqrt(left) : 0;
    for (std::size_t row = 0; row < rows; ++row) {
      float& entry = matrix[row * columns + column];
      entry = static_cast<float>(double{entry} * factor);
    }
  }
}

}  // namespace

TopK::TopK(std::size_t count, std::size_t kept)
    : kept_(std::clamp<std::size_t>(kept, 1, std::max<std::size_t>(1, count))),
      residual_(count),
      sum_(count),
      order_(count),
      mine_(std::min(kept_, count) * (sizeof(std::uint32_t) + sizeof(float))) {}

Status TopK::average(Communicator& comm, std::span<float> gradient) {
  TUTTI_RETURN_IF_ERROR(check_size(gradient, residual_.size()));
  if (gradient.empty()) return ok();
  add(sum_, gradient, residual_);
  std::iota(order_.begin(), order_.end(), 0U);
  const auto end = order_.begin() + static_cast<std::ptrdiff_t>(kept_);
  // A NaN counts as the largest, so that it is seen.
  const auto size = [&](std::uint32_t index) {
    return std::isnan(sum_[index]) ? HUGE_VALF : std::abs(sum_[index]);
  };
  std::nth_element(order_.begin(), end - 1, order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return size(a) != size(b) ? size(a) > size(b) : a < b;
  });
  std::byte* to = mine_.data();
  for (auto index = order_.begin(); index != end; ++index, to += 8) {
    std::memcpy(to, &*index, sizeof(*index));
    std::memcpy(to + sizeof(*index), &sum_[*index], sizeof(float));
  }
  TUTTI_RETURN_IF_ERROR(gather(comm, mine_, all_));
  std::ranges::fill(gradient, 0.0F);
  const auto ranks = static_cast<float>(comm.rank_count());
  for (std::size_t at = 0; at < all_.size(); at += 8) {
    const auto index = get<std::uint32_t>(&all_[at]);
    if (index >= gradient.size())
      return Error{Code::kMismatch, "average: another rank's gradient is larger", comm.rank()};
    gradient[index] += get<float>(&all_[at + sizeof(index)]) / ranks;
  }
  for (auto index = order_.begin(); index != end; ++index) sum_[*index] = 0;
  residual_.swap(sum_);
  return ok();
}

std::vector<float> TopK::state() const { return residual_; }
Status TopK::restore(std::span<const float> state) { return take(state, {&residual_}); }

OneBit::OneBit(std::size_t count)
    : residual_(count), sum_(count), mine_(sizeof(float) + (count + 7) / 8) {}

Status OneBit::average(Communicator& comm, std::span<float> gradient) {
  TUTTI_RETURN_IF_ERROR(check_size(gradient, residual_.size()));
  if (gradient.empty()) return ok();
  add(sum_, gradient, residual_);
  double magnitudes = 0;
  std::ranges::fill(mine_, std::byte{});
  for (std::size_t i = 0; i < sum_.size(); ++i) {
    magnitudes += std::abs(double{sum_[i]});
    if (std::signbit(sum_[i])) mine_[sizeof(float) + i / 8] |= std::byte{1} << (i % 8);
  }
  const auto scale = static_cast<float>(magnitudes / static_cast<double>(sum_.size()));
  std::memcpy(mine_.data(), &scale, sizeof(scale));
  TUTTI_RETURN_IF_ERROR(gather(comm, mine_, all_));
  for (float& value : sum_) value -= std::signbit(value) ? -scale : scale;
  residual_.swap(sum_);
  std::ranges::fill(gradient, 0.0F);
  const auto ranks = static_cast<float>(comm.rank_count());
  for (std::size_t at = 0; at < all_.size(); at += mine_.size()) {
    const float share = get<float>(&all_[at]) / ranks;
    const std::byte* const signs = &all_[at + sizeof(float)];
    for (std::size_t i = 0; i < gradient.size(); ++i)
      gradient[i] += (signs[i / 8] >> (i % 8) & std::byte{1}) != std::byte{} ? -share : share;
  }
  return ok();
}

std::vector<float> OneBit::state() const { return residual_; }
Status OneBit::restore(std::span<const float> state) { return take(state, {&residual_}); }

PowerSgd::PowerSgd(std::size_t rows, std::size_t columns, std::size_t rank)
    : rows_(rows),
      columns_(columns),
      rank_(std::max<std::size_t>(1, std::min({rank, rows, columns}))),
      residual_(rows * columns),
      sum_(rows * columns),
      left_(rows * rank_),
      right_(columns * rank_),
      next_right_(columns * rank_) {
  // Any numbers that are alike on all ranks, and not all in one direction.
  for (std::size_t i = 0; i < right_.size(); ++i)
    right_[i] = static_cast<float>(static_cast<double>(mix(i) >> 11) * 0x1p-52 - 1);
}

Status PowerSgd::average(Communicator& comm, std::span<float> gradient) {
  TUTTI_RETURN_IF_ERROR(check_size(gradient, residual_.size()));
  if (gradient.empty()) return ok();
  add(sum_, gradient, residual_);
  const auto all_average = [&](std::vector<float>& matrix) {
    return comm.all_reduce(matrix.data(), matrix.data(), matrix.size(), DataType::kFloat32,
                           ReduceOp::kAvg);
  };
  std::ranges::fill(left_, 0.0F);
  for (std::size_t row = 0; row < rows_; ++row) {
    for (std::size_t column = 0; column < columns_; ++column) {
      for (std::size_t r = 0; r < rank_; ++r)
        left_[row * rank_ + r] += sum_[row * columns_ + column] * right_[column * rank_ + r];
    }
  }
  TUTTI_RETURN_IF_ERROR(all_average(left_));
  orthogonalise(left_, rank_);
  std::ranges::fill(next_right_, 0.0F);
  for (std::size_t row = 0; row < rows_; ++row) {
    for (std::size_t column = 0; column < columns_; ++column) {
      for (std::size_t r = 0; r < rank_; ++r)
        next_right_[column * rank_ + r] += sum_[row * columns_ + column] * left_[row * rank_ + r];
    }
  }
  TUTTI_RETURN_IF_ERROR(all_average(next_right_));
  for (std::size_t row = 0; row < rows_; ++row) {
    for (std::size_t column = 0; column < columns_; ++column) {
      float value = 0;
      for (std::size_t r = 0; r < rank_; ++r)
        value += left_[row * rank_ + r] * next_right_[column * rank_ + r];
      gradient[row * columns_ + column] = value;
      residual_[row * columns_ + column] = sum_[row * columns_ + column] - value;
    }
  }
  right_.swap(next_right_);
  // A direction in which nothing was found would stay 0 for ever.
  for (std::size_t i = 0; i < right_.size(); ++i) {
    if (right_[i] == 0) right_[i] = static_cast<float>(static_cast<double>(mix(i) >> 11) * 0x1p-80);
  }
  return ok();
}

std::vector<float> PowerSgd::state() const {
  std::vector<float> all = residual_;
  all.insert(all.end(), right_.begin(), right_.end());
  return all;
}
Status PowerSgd::restore(std::span<const float> state) {
  return take(state, {&residual_, &right_});
}

}  // namespace tutti
