#include "trainer/models/network.h"

#include <algorithm>
#include <cmath>

namespace tutti::trainer {
namespace {

constexpr std::size_t kImageSide = 8;
constexpr std::size_t kWidestModel = 8192, kDeepestModel = 256;

std::vector<Network::Named> mlp(const ModelOptions& options, const Samples& data) {
  std::vector<std::size_t> widths{128, 64};
  if (options.width > 0) widths.assign(std::max<std::size_t>(1, options.depth), options.width);
  std::vector<Network::Named> layers;
  std::size_t inputs = data.inputs_each;
  for (const std::size_t width : widths) {
    layers.push_back({"dense" + std::to_string(layers.size()), make_dense(inputs, width, true)});
    inputs = width;
  }
  layers.push_back({"scores", make_dense(inputs, data.classes, false)});
  return layers;
}

std::vector<Network::Named> conv(const ModelOptions& options, const Samples& data) {
  const std::size_t width = options.width > 0 ? options.width : 8, half = kImageSide / 2;
  std::vector<Network::Named> layers;
  layers.push_back({"conv0", make_conv(kImageSide, 1, width, 1)});
  layers.push_back({"norm0", make_batch_norm(kImageSide * kImageSide, width)});
  layers.push_back({"conv1", make_conv(kImageSide, width, 2 * width, 2)});
  layers.push_back({"norm1", make_batch_norm(half * half, 2 * width)});
  layers.push_back({"scores", make_dense(half * half * 2 * width, data.classes, false)});
  return layers;
}

LayerPtr block(std::size_t positions, std::size_t width) {
  constexpr std::size_t kHeads = 2, kWiden = 4;
  std::vector<LayerPtr> attention, dense, both;
  attention.push_back(make_layer_norm(positions, width));
  attention.push_back(make_dense(width, 3 * width, false, positions));
  attention.push_back(make_attention(positions, width, kHeads));
  attention.push_back(make_dense(width, width, false, positions));
  dense.push_back(make_layer_norm(positions, width));
  dense.push_back(make_dense(width, kWiden * width, true, positions));
  dense.push_back(make_dense(kWiden * width, width, false, positions));
  both.push_back(make_residual(make_sequence(std::move(attention))));
  both.push_back(make_residual(make_sequence(std::move(dense))));
  return make_sequence(std::move(both));
}

std::vector<Network::Named> transformer(const ModelOptions& options, const Samples& data) {
  const std::size_t width = options.width > 0 ? options.width : 32;
  const std::size_t depth = options.depth > 0 ? options.depth : 2;
  const std::size_t positions = data.inputs_each;
  std::vector<Network::Named> layers;
  layers.push_back({"embedding", make_embedding(data.classes, positions, width)});
  for (std::size_t b = 0; b < depth; ++b)
    layers.push_back({"block" + std::to_string(b), block(positions, width)});
  std::vector<LayerPtr> head;
  head.push_back(make_layer_norm(positions, width));
  head.push_back(make_dense(width, data.classes, false, positions));
  layers.push_back({"scores", make_sequence(std::move(head))});
  return layers;
}

}  // namespace

Network::Network(std::vector<Named> layers, std::size_t classes) : classes_(classes) {
  for (Named& named : layers) {
    const std::size_t parameters = named.layer->parameters(), buffers = named.layer->buffers();
    units_.push_back({std::move(named.name), std::move(named.layer), size_, parameters, buffers_});
    size_ += parameters;
    buffers_ += buffers;
  }
}

void Network::initialise(std::uint64_t seed, float* parameters) const {
  std::mt19937_64 random(seed);
  for (const Unit& unit : units_) unit.layer->initialise(random, parameters + unit.offset);
}

void Network::initialise_buffers(float* buffers) const {
  for (const Unit& unit : units_) unit.layer->initialise_buffers(buffers + unit.buffers_offset);
}

Result<Network> make_network(const ModelOptions& options, const Samples& data) {
  const auto refuse = [&](const std::string& why) {
    return Error{Code::kInvalidArgument, "model " + options.name + ": " + why};
  };
  if (options.width > kWidestModel || options.depth > kDeepestModel)
    return refuse("at most " + std::to_string(kWidestModel) + " wide and " +
                  std::to_string(kDeepestModel) + " deep");
  const bool images = data.labels_each == 1;
  if (options.name == "mlp" && images) return Network(mlp(options, data), data.classes);
  if (options.name == "conv" && images && data.inputs_each == kImageSide * kImageSide)
    return Network(conv(options, data), data.classes);
  if (options.name == "transformer" && data.labels_each == data.inputs_each) {
    if (options.width % 2 != 0) return refuse("its width must be even, as it has 2 heads");
    return Network(transformer(options, data), data.classes);
  }
  for (const char* known : {"mlp", "conv", "transformer"}) {
    if (options.name == known) return refuse("does not fit the data");
  }
  return refuse("there are mlp, conv and transformer");
}

double cross_entropy(float* scores, const std::uint8_t* labels, std::size_t rows,
                     std::size_t classes) {
  double loss = 0;
  for (std::size_t r = 0; r < rows; ++r, scores += classes) {
    const float highest = *std::max_element(scores, scores + classes);
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c)
      sum += std::exp(static_cast<double>(scores[c] - highest));
    loss += std::log(sum) - static_cast<double>(scores[labels[r]] - highest);
    for (std::size_t c = 0; c < classes; ++c) {
      const double probability = std::exp(static_cast<double>(scores[c] - highest)) / sum;
      scores[c] = static_cast<float>(probability - (c == labels[r] ? 1.0 : 0.0));
    }
  }
  return loss;
}

}  // namespace tutti::trainer
