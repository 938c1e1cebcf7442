// File: python/csrc/like_gloo.h: what our backend shares with gloo's class.
//
// torch's C++ takes a group of the type GLOO for an object of gloo's own class: DDP's logger reads
// options_->threads out of it. Where we stand in for gloo, ours have that number at the same place.
// like_gloo/layout.cc compares the two with the headers of the torch that this is built against.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "work.h"

namespace tutti::python {

class LikeGloo : public c10d::Backend {
 public:
  struct Options : c10d::Backend::Options {
    explicit Options(std::string name, std::chrono::milliseconds limit = kBackendDefaultTimeout)
        : c10d::Backend::Options(std::move(name), bounded(limit)) {}
    std::vector<std::shared_ptr<void>> devices;
    int threads = 2;  // The progress thread, and the first for completions.
  };

 protected:
  LikeGloo(int rank, int size, c10::intrusive_ptr<Options> options)
      : c10d::Backend(rank, size), options_(std::move(options)) {}
  std::shared_ptr<void> unused_;  // gloo's own store.
  const c10::intrusive_ptr<Options> options_;
};

}  // namespace tutti::python
