// File: tutti/compression.h: averages of gradients from which most is left out, and made up for
// later.
//
// Each class holds what one rank has not sent yet, the *residual*, of one buffer. A call adds it to
// the gradient, sends a compressed form of the sum, and keeps the rest: error feedback. So what is
// left out of one step comes in a later one, and gradient descent converges nearly as without it.
// For formats that keep all of a step but its last bits, see wire.h.
//
// All ranks make the same calls with objects of the same arguments, and get the same bits. Results
// depend on the inputs, the rank count and the calls before. Not thread-safe; a call is one or two
// collectives of the communicator. After an error the state is what it was before the call.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/communicator.h"
#include "tutti/export.h"
#include "tutti/result.h"

namespace tutti {

/// The k elements of the largest magnitude, with their indices: 8 k bytes from each rank.
/// |x - sent|^2 <= (1 - k / count) |x|^2. Stich, Cordonnier, Jaggi: Sparsified SGD with memory
/// (2018).
class TUTTI_API TopK {
 public:
  /// It sends `kept` elements, at least 1, out of `count`, at most 2^32 - 1.
  TopK(std::size_t count, std::size_t kept);
  /// Makes `gradient`, of `count` elements, the average over all ranks of what they sent.
  /// kInvalidArgument for another size, else as of an all-gather.
  Status average(Communicator& comm, std::span<float> gradient);
  std::span<const float> residual() const { return residual_; }
  /// What the object knows of earlier calls, for a checkpoint.
  std::vector<float> state() const;
  /// Goes on from the state of an object of the same arguments. kInvalidArgument: another size.
  Status restore(std::span<const float> state);

 private:
  std::size_t kept_;
  std::vector<float> residual_, sum_;
  std::vector<std::uint32_t> order_;
  std::vector<std::byte> mine_, all_;
};

/// The sign of each element, and one scale, their mean magnitude: count / 8 + 4 bytes from each
/// rank. |x - sent|^2 = |x|^2 - (sum of |x_i|)^2 / count. Seide and others: 1-bit stochastic
/// gradient descent (2014); Tang and others: 1-bit Adam (2021).
class TUTTI_API OneBit {
 public:
  explicit OneBit(std::size_t count);
  /// As TopK::average.
  Status average(Communicator& comm, std::span<float> gradient);
  std::span<const float> residual() const { return residual_; }
  /// As those of TopK.
  std::vector<float> state() const;
  Status restore(std::span<const float> state);

 private:
  std::vector<float> residual_, sum_;
  std::vector<std::byte> mine_, all_;
};

/// A matrix as the product of two thin ones: 4 (rows + columns) rank bytes in two all-reduces. One
/// step of subspace iteration, which begins where the last call ended. The average is the mean
/// gradient projected onto a space of that rank, so it is off by no more than its own size. Vogels,
/// Karimireddy, Jaggi: PowerSGD (2019).
class TUTTI_API PowerSgd {
 public:
  /// `rank`: at least 1; at most the smaller of both sizes is used.
  PowerSgd(std::size_t rows, std::size_t columns, std::size_t rank);
  /// `gradient`: rows * columns elements, row by row. Errors as of an all-reduce.
  Status average(Communicator& comm, std::span<float> gradient);
  std::span<const float> residual() const { return residual_; }
  /// As those of TopK.
  std::vector<float> state() const;
  Status restore(std::span<const float> state);

 private:
  std::size_t rows_, columns_, rank_;
  std::vector<float> residual_, sum_;
  std::vector<float> left_, right_, next_right_;  // rows x rank, columns x rank.
};

}  // namespace tutti
