// File: plan/builder.h: how an algorithm writes down what one rank does.
//
//   builder.move(c, {builder.from(prev, Form::kPartial), builder.input(c)}, {builder.to(next,
//   Form::kPartial)});
#pragma once
#include <initializer_list>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace tutti::plan {

class Builder {
 public:
  Builder(const Shape& shape, std::uint32_t pieces) : shape_(shape), pieces_(pieces) {}
  const Shape& shape() const { return shape_; }
  std::uint32_t pieces() const { return pieces_; }

  // Locations. Input and output need no form: the collective fixes it. `index` of scratch counts
  // from 0; the plan has as many scratch chunks as the largest index used says.
  Location input(std::uint32_t chunk) const;
  Location output(std::uint32_t chunk) const;
  Location scratch(std::uint32_t index, Form form) const;
  Location from(int peer, Form form) const;
  Location to(int peer, Form form) const;

  /// Adds a step to the current lane. `chunk` is the chunk of the message that it is about. The
  /// order of the sources is the order of reduction.
  void move(std::uint32_t chunk, std::span<const Location> sources,
            std::span<const Location> targets);
  void move(std::uint32_t chunk, std::initializer_list<Location> sources,
            std::initializer_list<Location> targets) {
    move(chunk, std::span(sources.begin(), sources.size()),
         std::span(targets.begin(), targets.size()));
  }
  void signal(int peer);
  void wait(int peer);
  /// Steps go to this lane from now on; lanes are made as needed. 0 at first.
  void lane(std::size_t index);

  RankPlan finish() &&;

 private:
  Lane& current();
  Shape shape_;
  std::uint32_t pieces_;
  RankPlan plan_;
  std::size_t lane_ = 0;
};

}  // namespace tutti::plan
