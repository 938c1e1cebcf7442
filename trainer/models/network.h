// File: trainer/models/network.h: a network as a row of units, and the models by name.
//
// A unit is a layer, or a block of layers, whose parameters lie together in the flat vector of all
// parameters. Strategies communicate by unit.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data.h"
#include "trainer/models/layers.h"
#include "tutti/result.h"

namespace tutti::trainer {

struct Unit {
  std::string name;
  LayerPtr layer;
  std::size_t offset = 0, size = 0;  // Its parameters, in the flat vector.
  std::size_t buffers_offset = 0;    // Its values that are no parameters, in a vector of these.
};

class Network {
 public:
  struct Named {
    std::string name;
    LayerPtr layer;
  };
  Network(std::vector<Named> layers, std::size_t classes);

  const std::vector<Unit>& units() const { return units_; }
  std::size_t size() const { return size_; }
  std::size_t buffers() const { return buffers_; }
  /// Labels are below this number.
  std::size_t classes() const { return classes_; }

  /// The same for the same seed.
  void initialise(std::uint64_t seed, float* parameters) const;
  void initialise_buffers(float* buffers) const;

 private:
  std::vector<Unit> units_;
  std::size_t size_ = 0, buffers_ = 0, classes_;
};

struct ModelOptions {
  std::string name = "mlp";  // mlp, conv or transformer.
  std::size_t width = 0;     // A hidden layer's; 0: what the model has.
  std::size_t depth = 0;     // Hidden layers or blocks; 0: the model's own.
};

/// mlp: dense layers, 64-128-64-10 if nothing else is asked for. conv: two convolutions with batch
/// normalisation and a dense layer. transformer: character by character, pre-norm blocks.
/// kInvalidArgument if there is no such model, or it does not fit the data.
Result<Network> make_network(const ModelOptions& options, const Samples& data);

/// Turns rows of scores into slopes of the summed cross-entropy, which it returns.
double cross_entropy(float* scores, const std::uint8_t* labels, std::size_t rows,
                     std::size_t classes);

}  // namespace tutti::trainer
