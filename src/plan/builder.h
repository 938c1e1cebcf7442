// File: plan/builder.h: how an algorithm writes down what one rank does.
//
//   builder.move(c, {builder.from(prev, Form::kPartial), builder.input(c)}, builder.to(next,
//   Form::kPartial));
#pragma once
#include <initializer_list>
#include <ranges>
#include <span>
#include <utility>

#include "plan/chunks.h"
#include "plan/plan.h"

namespace tutti::plan {

/// One location, or several in their order, as an argument of a call.
struct Locations : std::span<const Location> {
  Locations(const Location& one) : span(&one, 1) {}
  Locations(std::initializer_list<Location> list) : span(list.begin(), list.size()) {}
  template <std::ranges::contiguous_range List>
  Locations(const List& list) : span(list) {}
};

class Builder {
 public:
  /// `like`: the plan of a rank that does about as much, for which room is reserved; may be null.
  Builder(const Shape& shape, std::uint32_t pieces, const RankPlan* like = nullptr);
  const Shape& shape() const { return shape_; }
  std::uint32_t pieces() const { return pieces_; }

  // Locations. Input and output need no form: the collective fixes it. `index` of scratch counts
  // from 0; the plan has as many scratch chunks as the largest index used says.
  Location input(std::uint32_t chunk) const {
    return {Place::kInput, form_of_input(shape_), 0, chunk};
  }
  Location output(std::uint32_t chunk) const { return {Place::kOutput, Form::kResult, 0, chunk}; }
  Location scratch(std::uint32_t index, Form form) const {
    return {Place::kScratch, form, 0, index};
  }
  Location from(int peer, Form form) const {
    return {Place::kSlot, form, static_cast<std::uint16_t>(peer), 0};
  }
  Location to(int peer, Form form) const { return from(peer, form); }

  /// Adds a step to the current lane. `chunk` is the chunk of the message that it is about. The
  /// order of the sources is the order of reduction.
  void move(std::uint32_t chunk, const Locations& sources, const Locations& targets);
  /// Steps go to this lane from now on; lanes are made as needed. 0 at first.
  void lane(std::size_t index);

  RankPlan finish() && { return std::move(plan_); }

 private:
  Shape shape_;
  std::uint32_t pieces_;
  RankPlan plan_{.lanes = std::vector<Lane>(1)};
  std::size_t lane_ = 0;
};

}  // namespace tutti::plan
