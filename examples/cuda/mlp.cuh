// A multilayer perceptron in the memory of a device, for examples that train: a pass through its
// layers and back, and a step of SGD. Nothing here communicates.
#pragma once
#include <tutti/device.cuh>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "example.h"

constexpr unsigned kWidths[] = {64, 64, 64, 10};  // Pixels, hidden layers, digits.
constexpr unsigned kLayers = 3, kDigits = kWidths[kLayers];
constexpr unsigned kThreads = 256, kTile = 16;
static_assert(kTile * kTile == kThreads);

// Kernels. On a real GPU one would take cuBLAS for the products; this kernel is short, and an
// element's bits depend on neither the number of rows nor that of blocks.

struct Matrix {
  const float* data;
  unsigned row, column;  // Strides.
  TUTTI_DEVICE float at(unsigned r, unsigned c) const { return data[r * row + c * column]; }
};
/// to = a b. The inner dimension is cut into `slices`, whose sums are added up as a balanced tree.
struct Product {
  Matrix a, b;
  float* to = nullptr;
  unsigned to_row = 0, rows = 0, columns = 0, inner = 0, slices = 1;
  bool relu = false;
  const float* activation = nullptr;  // As `to`: ReLU's slope is 0 where this is not positive.
};

/// An element of `to` for each thread, tile by tile.
__global__ void multiply(Product p) {
  __shared__ float a[kTile][kTile], b[kTile][kTile];
  const unsigned x = threadIdx.x % kTile, y = threadIdx.x / kTile, each = p.inner / p.slices;
  const unsigned across = (p.columns + kTile - 1) / kTile;
  const unsigned tiles = (p.rows + kTile - 1) / kTile * across;
  for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const unsigned row = tile / across * kTile + y, column = tile % across * kTile + x;
    float sum = 0, left[8] = {};  // By level of the tree: a sum that waits for its right neighbour.
    for (unsigned slice = 0; slice < p.slices; ++slice) {
      const unsigned end = (slice + 1) * each;
      sum = 0;
      for (unsigned k = slice * each; k < end; k += kTile) {
        a[y][x] = row < p.rows && k + x < end ? p.a.at(row, k + x) : 0;
        b[y][x] = column < p.columns && k + y < end ? p.b.at(k + y, column) : 0;
        __syncthreads();
        for (unsigned i = 0; i < kTile; ++i) sum += a[y][i] * b[i][x];
        __syncthreads();
      }
      unsigned level = 0;
      for (; (slice >> level & 1U) != 0; ++level) sum += left[level];
      left[level] = sum;
    }
    if (row >= p.rows || column >= p.columns) continue;
    const unsigned at = row * p.to_row + column;
    const bool flat = p.activation != nullptr && p.activation[at] <= 0;
    p.to[at] = flat || (p.relu && sum < 0) ? 0 : sum;
  }
}

/// Softmax and cross-entropy, a row for each thread: scores become the slopes of the loss.
struct Loss {
  float* scores;
  const unsigned char* labels;
  float* sums;  // By row, over several steps.
  unsigned rows;
};
__global__ void cross_entropy(Loss l) {
  const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
  for (unsigned row = first; row < l.rows; row += gridDim.x * blockDim.x) {
    float* const score = l.scores + row * (kDigits + 1);
    float most = score[0], sum = 0;
    for (unsigned i = 1; i < kDigits; ++i) most = fmaxf(most, score[i]);
    for (unsigned i = 0; i < kDigits; ++i) sum += score[i] = expf(score[i] - most);
    for (unsigned i = 0; i < kDigits; ++i) score[i] /= sum;
    l.sums[row] -= logf(fmaxf(score[l.labels[row]], 1e-30F));
    score[l.labels[row]] -= 1;
  }
}

/// v = m v + g / samples          w = w - a v
struct Update {
  float *weights, *momentum;
  const float* gradients;
  unsigned count, samples;
  float rate, momentum_factor;
};
__global__ void sgd(Update u) {
  const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
  for (unsigned i = first; i < u.count; i += gridDim.x * blockDim.x) {
    u.momentum[i] = u.momentum_factor * u.momentum[i] + u.gradients[i] / u.samples;
    u.weights[i] -= u.rate * u.momentum[i];
  }
}

/// Blocks that a device runs at a time at least, as kernels here go on to their next tile or
/// element.
inline unsigned most_blocks() {
  static const int count = [] {
    int device = 0, multiprocessors = 0;
    require(cudaGetDevice(&device), "cudaGetDevice");
    require(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
            "cudaDeviceGetAttribute");
    return multiprocessors;
  }();
  return static_cast<unsigned>(count);
}
/// kernel<<<blocks, threads, 0, stream>>>(argument), but in plain C++: the tests compile it as
/// that.
template <class Argument>
void launch(const void* kernel, unsigned blocks, Argument argument, cudaStream_t stream) {
  void* arguments[] = {&argument};
  require(cudaLaunchKernel(kernel, dim3(std::min(blocks, most_blocks())), dim3(kThreads), arguments,
                           0, stream),
          "cudaLaunchKernel");
}

/// Images as rows of 64 pixels and a 1, for which the last row of a layer's weights is its bias.
struct Digits {
  std::vector<float> rows;
  std::vector<unsigned char> labels;

  explicit Digits(const std::string& path) {
    std::ifstream file(path);
    for (int value = 0; file >> value; file.ignore(1)) {
      const bool label = rows.size() % (kWidths[0] + 1) == kWidths[0];
      if (label) labels.push_back(static_cast<unsigned char>(value));
      rows.push_back(label ? 1.0F : static_cast<float>(value) / 16);
    }
    require(labels.size() >= 1000, path + ": no file of digits");
  }
};

/// The passes over `rows` rows in `slices` slices, on a stream. Weights and gradients are where
/// the caller has them.
class Mlp {
 public:
  Mlp(const Digits& data, unsigned rows, unsigned slices, cudaStream_t stream)
      : rows_(rows), slices_(slices), stream_(stream) {
    values_[0] = device_copy(data.rows);
    labels_ = device_copy(data.labels);
    losses_ = device_copy(std::vector<float>(rows));
    for (unsigned l = 1; l <= kLayers; ++l) {
      const std::vector<float> ones(rows * (kWidths[l] + 1), 1.0F);
      values_[l] = device_copy(ones);
      slopes_[l] = l < kLayers ? device_copy(ones) : values_[l];
    }
  }

  static unsigned size(unsigned layer) { return (kWidths[layer] + 1) * kWidths[layer + 1]; }
  static void initialise(unsigned layer, float* weights) {
    std::mt19937 random(layer);
    const float range = std::sqrt(6.0F / static_cast<float>(kWidths[layer]));
    for (unsigned i = 0; i < kWidths[layer] * kWidths[layer + 1]; ++i)
      weights[i] = range * (static_cast<float>(random()) * 0x1p-31F - 1);
  }

  /// Layer `l` of the rows from `first` on.
  void forward(unsigned l, unsigned first, const float* weights) {
    const unsigned in = kWidths[l], out = kWidths[l + 1];
    multiply_on_stream({.a = {input(l, first), in + 1, 1},
                        .b = {weights, out, 1},
                        .to = values_[l + 1],
                        .to_row = out + 1,
                        .rows = rows_,
                        .columns = out,
                        .inner = in + 1,
                        .relu = l + 1 < kLayers});
  }
  void begin_backward(unsigned first) {
    launch(TUTTI_KERNEL_HANDLE(cross_entropy), (rows_ + kThreads - 1) / kThreads,
           Loss{values_[kLayers], labels_ + first, losses_, rows_}, stream_);
  }
  void backward(unsigned l, unsigned first, const float* weights, float* gradients) {
    const unsigned in = kWidths[l], out = kWidths[l + 1];
    const Matrix slopes{slopes_[l + 1], out + 1, 1};
    if (l > 0) {
      multiply_on_stream({.a = slopes,
                          .b = {weights, 1, out},
                          .to = slopes_[l],
                          .to_row = in + 1,
                          .rows = rows_,
                          .columns = in,
                          .inner = out,
                          .activation = values_[l]});
    }
    multiply_on_stream({.a = {input(l, first), 1, in + 1},
                        .b = slopes,
                        .to = gradients,
                        .to_row = out,
                        .rows = in + 1,
                        .columns = out,
                        .inner = rows_,
                        .slices = slices_});
  }

  /// The sum of the losses since this was last asked. Waits.
  double take_loss() {
    require(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    double sum = 0;
    for (const float loss : host_copy<float>(losses_, rows_)) sum += loss;
    require(cudaMemset(losses_, 0, rows_ * sizeof(float)), "cudaMemset");
    return sum;
  }

 private:
  /// What layer l computes from.
  float* input(unsigned l, unsigned first) const {
    return values_[l] + (l == 0 ? first * (kWidths[0] + 1) : 0);
  }
  void multiply_on_stream(const Product& product) {
    const auto tiles = [](unsigned size) { return (size + kTile - 1) / kTile; };
    launch(TUTTI_KERNEL_HANDLE(multiply), tiles(product.rows) * tiles(product.columns), product,
           stream_);
  }

  unsigned rows_, slices_;
  cudaStream_t stream_;
  float *values_[kLayers + 1] = {}, *slopes_[kLayers + 1] = {};  // By layer: of its input.
  float* losses_ = nullptr;
  unsigned char* labels_ = nullptr;
};
