// File: simt/fused_cases.h: calls of the fused kernels, and what they must compute, step by step on
// the host. Several calls in a row, as residuals, masters and momenta live on; each rank's stream
// fills its input anew and copies its results away, so that nothing but the kernels orders ranks.
#pragma once
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/fused.h"
#include "plan/partition.h"
#include "simt/communicator/device_ranks.h"
#include "tutti/detail/reduce_op.h"

namespace tutti::test {

inline constexpr unsigned kThreads = 64;  // In a block: squares are added in their order.
inline constexpr std::size_t kCalls = 3;

/// A buffer of a type, as float32; and back, rounded.
inline std::vector<float> widened(DataType type, const Buffer& data) {
  std::vector<float> values;
  kernels::dispatch(type, ReduceOp::kSum, [&]<DataType constant, ReduceOp>() {
    using Element = kernels::Element<constant>;
    typename Element::Storage stored;
    for (std::size_t at = 0; at < data.size(); at += sizeof stored) {
      std::memcpy(&stored, data.data() + at, sizeof stored);
      values.push_back(static_cast<float>(Element::widen(stored)));
    }
  });
  return values;
}
inline Buffer rounded(DataType type, const std::vector<float>& values) {
  Buffer data(values.size() * size_of(type));
  kernels::dispatch(type, ReduceOp::kSum, [&]<DataType constant, ReduceOp>() {
    using Element = kernels::Element<constant>;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto stored = Element::round(static_cast<typename Element::Accumulator>(values[i]));
      std::memcpy(data.data() + i * sizeof stored, &stored, sizeof stored);
    }
  });
  return data;
}

inline std::string differs(const char* what, std::size_t rank, std::size_t call, const Buffer& want,
                           const Buffer& got) {
  const auto at = std::mismatch(want.begin(), want.end(), got.begin());
  if (at.first == want.end()) return "";
  return std::string(what) + " of rank " + std::to_string(rank) + " differs at byte " +
         std::to_string(at.first - want.begin()) + ", call " + std::to_string(call);
}

inline Case case_for(DataType type, int ranks, std::size_t count) {
  Case test;
  test.type = type;
  test.ranks = ranks;
  test.count = count;
  return test;
}

/// A row's squares in the order of rms_norm.h.
inline float squares_of(const float* row, std::size_t columns, std::size_t unit, unsigned threads) {
  std::vector<float> of_thread(threads, 0.0F);
  for (std::size_t column = 0; column < columns; ++column) {
    float& sum = of_thread[column / unit % threads];
    sum = sum + row[column] * row[column];
  }
  float total = 0;
  for (std::size_t warp = 0; warp < threads; warp += cuda::kWarpLanes) {
    for (std::size_t apart = cuda::kWarpLanes / 2; apart > 0; apart /= 2) {
      for (std::size_t lane = 0; lane < apart; ++lane) {
        of_thread[warp + lane] = of_thread[warp + lane] + of_thread[warp + lane + apart];
      }
    }
    total = warp == 0 ? of_thread[warp] : total + of_thread[warp];
  }
  return total;
}

struct NormCase {
  DataType type;
  std::size_t rows, columns;
  float epsilon;
  bool in_place;
};

/// What a call makes of a sum, a residual and a weight.
inline void norm_reference(const NormCase& test, const Buffer& sum, const Buffer& weight,
                           Buffer& residual, Buffer& output, unsigned threads = kThreads) {
  std::vector<float> rows = widened(test.type, sum), old = widened(test.type, residual);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = old[i] + rows[i];
  residual = rounded(test.type, rows);
  rows = widened(test.type, residual);
  const std::vector<float> weights = widened(test.type, weight);
  const std::size_t unit = cuda::unit_elements(test.type);
  for (std::size_t row = 0; row < test.rows; ++row) {
    float* at = rows.data() + row * test.columns;
    const float mean =
        squares_of(at, test.columns, unit, threads) / static_cast<float>(test.columns);
    const float factor = 1 / std::sqrt(mean + test.epsilon);
    for (std::size_t i = 0; i < test.columns; ++i) at[i] = at[i] * factor * weights[i];
  }
  output = rounded(test.type, rows);
}

inline std::string run_norm(DeviceRanks& ranks, int n, const NormCase& norm, std::uint64_t seed) {
  Case test = case_for(norm.type, n, norm.rows * norm.columns);
  test.in_place = norm.in_place;
  std::vector<std::vector<Buffer>> inputs;
  for (std::size_t call = 0; call < kCalls; ++call) {
    inputs.push_back(DeviceRanks::make_inputs(test, seed + call));
  }
  const auto buffers = ranks.make_buffers(test, inputs[0]);
  // All ranks have one residual, and one weight.
  const Buffer first = DeviceRanks::make_inputs(case_for(norm.type, 1, test.count), seed + 9)[0];
  const Buffer weight = DeviceRanks::make_inputs(case_for(norm.type, 1, norm.columns), seed + 8)[0];
  Case apart = test;
  apart.in_place = false;
  const std::vector<Buffer> firsts(inputs[0].size(), first);
  const auto residuals = ranks.make_buffers(apart, firsts);
  const auto weights = ranks.make_buffers(case_for(norm.type, n, norm.columns),
                                          std::vector<Buffer>(inputs[0].size(), weight));
  std::vector<std::vector<Buffer>> outputs(kCalls, firsts), sums(kCalls, firsts);
  const std::string complaint = ranks.each([&](std::size_t rank) {
    exec::CudaRmsNorm call;
    call.call = ranks.call_of(test, rank, buffers);
    for (const auto& buffer : residuals) call.residuals.push_back(buffer->input);
    call.weight = weights[rank]->input;
    call.rows = norm.rows;
    call.columns = norm.columns;
    call.epsilon = norm.epsilon;
    std::string wrong;
    for (std::size_t i = 0; i < kCalls; ++i) {
      ranks.copy_in(rank, buffers[rank]->input, inputs[i][rank].data(), inputs[i][rank].size());
      ranks.in_step();
      wrong += said(ranks.mesh().launch_rms_norm(static_cast<int>(rank), call, ranks.stream(rank)));
      ranks.in_step();
      ranks.copy_out(rank, outputs[i][rank].data(), buffers[rank]->output, outputs[i][rank].size());
      ranks.copy_out(rank, sums[i][rank].data(), residuals[rank]->input, sums[i][rank].size());
    }
    return wrong;
  });
  if (!complaint.empty()) return complaint;
  Buffer residual = first;
  for (std::size_t i = 0; i < kCalls; ++i) {
    Buffer output;
    norm_reference(norm, expected(test, 0, inputs[i]), weight, residual, output);
    for (std::size_t rank = 0; rank < inputs[i].size(); ++rank) {
      std::string wrong = differs("the residual", rank, i, residual, sums[i][rank]);
      if (wrong.empty()) wrong = differs("the output", rank, i, output, outputs[i][rank]);
      if (!wrong.empty()) return test.to_string() + ": " + wrong;
    }
  }
  return "";
}

struct SgdCase {
  DataType type;
  std::size_t count;
  float learning_rate, momentum, decay;
};

/// One step of a piece; the sum is not rounded before.
inline void sgd_reference(const SgdCase& test, const std::vector<Buffer>& gradients,
                          plan::Range piece, std::vector<float>& master,
                          std::vector<float>& momentum) {
  const std::size_t bytes = size_of(test.type);
  const Form wide = Form::kPartial;
  std::vector<kernels::Source> sources;
  for (const Buffer& gradient : gradients) {
    sources.push_back({gradient.data() + piece.offset * bytes, Form::kContribution, false});
  }
  std::vector<float> sums(piece.count);
  const kernels::Target target{reinterpret_cast<std::byte*>(sums.data()), wide};
  if (piece.count > 0) {
    kernels::reduce_reference({test.type, ReduceOp::kSum, static_cast<int>(gradients.size()), 1, 1},
                              sources, std::span(&target, 1), piece.count);
  }
  for (std::size_t i = 0; i < piece.count; ++i) {
    const float average = sums[i] / static_cast<float>(gradients.size());
    const float decayed = average + test.decay * master[i];
    momentum[i] = test.momentum * momentum[i] + decayed;
    master[i] = master[i] - test.learning_rate * momentum[i];
  }
}

inline std::string run_sgd(DeviceRanks& ranks, int n, const SgdCase& sgd, std::uint64_t seed) {
  const Case test = case_for(sgd.type, n, sgd.count);
  std::vector<std::vector<Buffer>> gradients;
  for (std::size_t call = 0; call < kCalls; ++call) {
    gradients.push_back(DeviceRanks::make_inputs(test, seed + call));
  }
  const auto buffers = ranks.make_buffers(test, gradients[0]);
  std::vector<plan::Range> pieces;
  std::vector<std::vector<float>> masters, momenta;
  std::vector<exec::CudaMemory> states;
  for (std::size_t rank = 0; rank < gradients[0].size(); ++rank) {
    pieces.push_back(plan::piece_of(sgd.count, static_cast<std::uint32_t>(n),
                                    static_cast<std::uint32_t>(rank), cuda::grain_of(sgd.type)));
    masters.push_back(
        widened(DataType::kFloat32,
                DeviceRanks::make_inputs(case_for(DataType::kFloat32, 1, pieces[rank].count),
                                         seed + rank)[0]));
    momenta.emplace_back(pieces[rank].count, 0.0F);
    // Master, then momentum.
    const std::size_t bytes = (sgd.count + 64) * sizeof(float) / 256 * 256 + 256;
    auto state = exec::CudaMemory::allocate(ranks.device(rank), 2 * bytes);
    if (!state) return state.error().to_string();
    const Status written =
        state->write(0, masters[rank].data(), masters[rank].size() * sizeof(float));
    if (!written) return said(written);
    states.push_back(std::move(*state));
  }
  std::vector<std::vector<Buffer>> results(kCalls, gradients[0]);
  const std::string complaint = ranks.each([&](std::size_t rank) {
    exec::CudaSgd call;
    call.call = ranks.call_of(test, rank, buffers);
    call.master = reinterpret_cast<float*>(states[rank].data());
    call.momentum = reinterpret_cast<float*>(states[rank].data() + states[rank].size() / 2);
    call.learning_rate = sgd.learning_rate;
    call.momentum_factor = sgd.momentum;
    call.weight_decay = sgd.decay;
    std::string wrong;
    for (std::size_t i = 0; i < kCalls; ++i) {
      const Buffer& gradient = gradients[i][rank];
      ranks.copy_in(rank, buffers[rank]->input, gradient.data(), gradient.size());
      ranks.in_step();
      wrong += said(ranks.mesh().launch_sgd(static_cast<int>(rank), call, ranks.stream(rank)));
      ranks.in_step();
      ranks.copy_out(rank, results[i][rank].data(), buffers[rank]->output, gradient.size());
    }
    return wrong;
  });
  if (!complaint.empty()) return test.to_string() + ": " + complaint;
  for (std::size_t i = 0; i < kCalls; ++i) {
    std::vector<float> all;
    for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
      sgd_reference(sgd, gradients[i], pieces[rank], masters[rank], momenta[rank]);
      all.insert(all.end(), masters[rank].begin(), masters[rank].end());
    }
    const Buffer want = rounded(sgd.type, all);
    for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
      const std::string wrong = differs("parameters", rank, i, want, results[i][rank]);
      if (!wrong.empty()) return test.to_string() + ": " + wrong;
    }
  }
  return "";
}

}  // namespace tutti::test
