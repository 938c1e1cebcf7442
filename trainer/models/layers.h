// File: trainer/models/layers.h: the layers that there are. Matrix products are BLIS's.
#pragma once
#include <memory>
#include <vector>

#include "trainer/models/layer.h"

namespace tutti::trainer {

using LayerPtr = std::unique_ptr<Layer>;

/// output = input * weights + bias, for each of `positions` of a sample; with `relu` its positive
/// part. Parameters: weights [inputs][outputs], then biases. He initialisation.
LayerPtr make_dense(std::size_t inputs, std::size_t outputs, bool relu, std::size_t positions = 1);

/// An image [side][side][channels], convolved with filters of 3 x 3 pixels, `stride` apart; blanks
/// around it. Parameters: weights [3][3][channels][filters], then biases.
LayerPtr make_conv(std::size_t side, std::size_t channels, std::size_t filters, std::size_t stride);

/// Batch normalisation of [positions][channels] and a positive part (Ioffe, Szegedy, 2015): mean 0
/// and variance 1 for each channel over the whole batch, then a scale and a shift. Whether the
/// batch is a rank's or that of all ranks (SyncBatchNorm) depends on where its sums are summed.
LayerPtr make_batch_norm(std::size_t positions, std::size_t channels);

/// Layer normalisation of each position (Ba et al., 2016): a scale and a shift for each channel.
LayerPtr make_layer_norm(std::size_t positions, std::size_t channels);

/// Symbols (numbers below `symbols`) at `positions` become vectors of `width`: one for the symbol
/// plus one for its position.
LayerPtr make_embedding(std::size_t symbols, std::size_t positions, std::size_t width);

/// Causal self-attention (Vaswani et al., 2017): from query, key and value of each position,
/// [positions][3][width], to [positions][width]. No parameters of its own.
LayerPtr make_attention(std::size_t positions, std::size_t width, std::size_t heads);

/// One after the other.
LayerPtr make_sequence(std::vector<LayerPtr> layers);
/// input + inner(input).
LayerPtr make_residual(LayerPtr inner);

}  // namespace tutti::trainer
