// A simulated plan as a picture: time from left to right, a row for each lane of each rank. Above
// in a row is what the rank computes, coloured by what the step does; below it what is on its way
// from there, until all links have carried it. The critical path, the chain of steps and messages
// that the last step waited for, is drawn over it; other messages where they are few.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "perf/sweep/svg.h"
#include "tools/explain/explain.h"
#include "tools/simulate/simulate.h"

namespace tutti::tools {
namespace {

using perf::kColours;
using perf::line_at;
using perf::rect_at;
using perf::text_at;
using plan::Place;
using plan::Recording;
using plan::StepKind;

constexpr std::size_t kMostRows = 32;
constexpr std::size_t kMostArrows = 160;   // For messages; more hide what is below.
constexpr std::size_t kMostTitles = 3000;  // Boxes that say what they are when pointed at.
constexpr double kWidth = 1160, kLeft = 92, kRight = 1130, kTop = 92;
constexpr double kMostStart = 0.4;  // Largest share of a bar for starting up.
constexpr double kThin = 0.35;      // Boxes nearer than that are one.

/// The work of a step, which decides its colour.
struct Kind {
  const char* name;
  const char* colour;
};
constexpr Kind kSend{"send", kColours[0]}, kReceive{"receive", kColours[2]},
    kForward{"receive and send", kColours[5]}, kReduce{"reduce", kColours[1]},
    kReduceSend{"reduce and send", kColours[4]}, kCopy{"copy", "#9a9a9a"},
    kSignal{"signal, wait", kColours[3]};
constexpr std::array kKinds{kSend, kReceive, kForward, kReduce, kReduceSend, kCopy, kSignal};

bool leaves(Place place) {
  return place == Place::kSlot || place == Place::kMulticast || place == Place::kPeerOutput;
}
bool comes(Place place) {
  return place == Place::kSlot || place == Place::kMulticast || place == Place::kPeerInput ||
         place == Place::kPeerOutput;
}

const Kind& kind_of(const plan::Lane& lane, const plan::Step& step) {
  if (step.kind != StepKind::kMove) return kSignal;
  bool receives = false, sends = false;
  for (std::uint32_t i = 0; i < step.source_count; ++i)
    receives = receives || comes(lane.locations[step.first + i].place);
  for (std::uint32_t i = 0; i < step.target_count; ++i)
    sends = sends || leaves(lane.locations[step.first + step.source_count + i].place);
  if (step.source_count > 1) return sends ? kReduceSend : kReduce;
  if (receives) return sends ? kForward : kReceive;
  return sends ? kSend : kCopy;
}

std::string time_words(double us) {
  return us < 1e3 ? fmt::format("{:g} us", us) : fmt::format("{:g} ms", us / 1e3);
}

// Boxes of a row in order of time; what touches and is alike is one.
struct Row {
  struct Box {
    double from, to;
    const char* colour;
    std::string title;
    int count = 1;
  };
  double y, height;
  std::vector<Box> boxes{};

  void add(double from, double to, const char* colour, const std::string& title) {
    to = std::max(to, from + 1);
    if (boxes.empty() || colour != boxes.back().colour || from - boxes.back().to >= kThin) {
      boxes.push_back({from, to, colour, title});
      return;
    }
    boxes.back().to = std::max(boxes.back().to, to);
    ++boxes.back().count;
  }
  std::string svg() const {
    std::string svg;
    for (const Box& box : boxes) {
      const std::string more = box.count > 1 ? fmt::format(" and {} more", box.count - 1) : "";
      svg += rect_at(box.from, y, box.to - box.from, height, box.colour,
                     box.title.empty() ? "" : box.title + more);
    }
    return svg;
  }
};

class Drawing {
 public:
  explicit Drawing(const PlayedPlan& played)
      : played_(played), recording_(played.recording), start_(played.start_us) {
    ranks_ = std::min(played.plan.ranks.size(), kMostRows);
    all_lanes_ = played.plan.ranks[0].lanes.size();
    lanes_ = std::min(all_lanes_, std::max<std::size_t>(1, kMostRows / ranks_));
    const std::size_t rows = ranks_ * lanes_;
    row_height_ = rows <= 8 ? 44 : rows <= 16 ? 30 : 21;
    bottom_ = kTop + static_cast<double>(rows) * row_height_;
    whole_ = recording_.tiles >= recording_.of_tiles;
    const double length = recording_.microseconds;
    end_ = start_ + length;
    if (whole_) end_ = std::max(end_, played.bound_us);
    // Where starting up would take most of the picture, only its end is drawn.
    if (start_ > kMostStart * length) begin_ = start_ - kMostStart / 2 * length;
    end_ += 0.01 * (end_ - begin_);
    const auto last = std::ranges::max_element(recording_.steps, {}, &Recording::Step::end_us);
    for (const auto* step = last == recording_.steps.end() ? nullptr : &*last; step != nullptr;
         step = before_of(*step))
      critical_.push_back(step);
    choose_lanes();
  }

  std::string draw() {
    std::string svg = perf::svg_head(kWidth, bottom_ + 92) + heading() + axis();
    svg += rows();
    svg += arrows();
    if (whole_ && played_.bound_us > 0) svg += bound();
    return svg + legend() + "</svg>\n";
  }

 private:
  // Those of the critical path first.
  void choose_lanes() {
    std::vector<std::uint32_t> order;
    const auto add = [&](std::uint32_t lane) {
      if (std::find(order.begin(), order.end(), lane) == order.end()) order.push_back(lane);
    };
    for (const Recording::Step* step : critical_) add(step->lane);
    for (std::uint32_t lane = 0; lane < all_lanes_; ++lane) add(lane);
    order.resize(lanes_);
    std::sort(order.begin(), order.end());
    row_of_lane_.assign(all_lanes_, kHidden);
    for (std::size_t i = 0; i < lanes_; ++i) row_of_lane_[order[i]] = i;
    lanes_shown_ = std::move(order);
  }

  double x(double us) const { return kLeft + (us - begin_) / (end_ - begin_) * (kRight - kLeft); }
  double at(double us) const { return x(start_ + us); }
  bool shown(std::uint32_t rank, std::uint32_t lane) const {
    return rank < ranks_ && row_of_lane_[lane] != kHidden;
  }
  std::size_t row_of(std::uint32_t rank, std::uint32_t lane) const {
    return rank * lanes_ + row_of_lane_[lane];
  }
  double box_top(std::uint32_t rank, std::uint32_t lane) const {
    return kTop + (static_cast<double>(row_of(rank, lane)) + 0.14) * row_height_;
  }
  double box_middle(std::uint32_t rank, std::uint32_t lane) const {
    return box_top(rank, lane) + 0.24 * row_height_;
  }

  std::string heading() const {
    std::string svg = text_at(16, 26, "start", played_.title, 16, "#111");
    svg += text_at(16, 47, "start", played_.words, 13, "#333");
    return svg + text_at(16, 65, "start", left_out(), 11, "#777");
  }

  std::string left_out() const {
    std::vector<std::string> parts;
    if (ranks_ < played_.plan.ranks.size())
      parts.push_back(
          fmt::format("ranks {} to {} are left out", ranks_, played_.plan.ranks.size() - 1));
    if (lanes_ < all_lanes_)
      parts.push_back(
          all_lanes_ - lanes_ == 1
              ? fmt::format("lane {} of each rank is left out", lanes_)
              : fmt::format("lanes {} to {} of each rank are left out", lanes_, all_lanes_ - 1));
    if (!whole_)
      parts.push_back(fmt::format("the first {} of {} tiles: {} us", recording_.tiles,
                                  recording_.of_tiles, time_text(recording_.microseconds)));
    return fmt::format("{}", fmt::join(parts, "; "));
  }

  std::string axis() const {
    std::string svg;
    const double step = perf::round_step((end_ - begin_) / 1.8);
    for (double us = std::ceil(begin_ / step) * step; us <= end_; us += step) {
      svg += line_at(x(us), kTop, x(us), bottom_, "stroke='#e6e6e6'");
      svg += text_at(x(us), bottom_ + 17, "middle", time_words(us), 11);
    }
    if (start_ > 0) {
      const double width = x(start_) - kLeft;
      svg += rect_at(kLeft, kTop, width, bottom_ - kTop, "#f3f0e8");
      if (begin_ > 0)
        svg += text_at(kLeft, kTop - 6, "start",
                       fmt::format("{} us of starting up, cut off", start_), 10, "#887");
      else if (width > 56)
        svg += text_at(kLeft + width / 2, kTop - 6, "middle", "starting up", 10, "#887");
    }
    for (std::size_t rank = 0; rank <= ranks_; ++rank) {
      const double y = kTop + static_cast<double>(rank * lanes_) * row_height_;
      svg += line_at(lanes_ > 1 ? 16 : kLeft, y, kRight, y, "stroke='#bbb'");
    }
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      svg += text_at(kLeft - (lanes_ > 1 ? 34 : 10), box_middle(rank, lanes_shown_[0]) + 6, "end",
                     fmt::format("rank {}", rank), 12, "#222");
      for (const std::uint32_t lane : lanes_shown_) {
        if (lanes_ > 1)
          svg += text_at(kLeft - 8, box_middle(rank, lane) + 6, "end", fmt::format("{}", lane), 10,
                         "#888");
      }
    }
    if (lanes_ > 1) svg += text_at(kLeft - 8, kTop - 6, "end", "lane", 10, "#888");
    return svg;
  }

  const Kind& kind_of_step(const Recording::Step& step) const {
    const plan::Lane& lane = played_.plan.ranks[step.rank].lanes[step.lane];
    return kind_of(lane, lane.steps[step.step]);
  }

  std::string rows() const {
    std::vector<Row> boxes, wires;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      for (const std::uint32_t lane : lanes_shown_) {
        boxes.push_back({box_top(rank, lane), 0.48 * row_height_});
        wires.push_back({box_top(rank, lane) + 0.52 * row_height_, 0.2 * row_height_});
      }
    }
    const bool titles = recording_.steps.size() <= kMostTitles;
    for (const Recording::Step& step : recording_.steps) {
      if (!shown(step.rank, step.lane)) continue;
      const Kind& kind = kind_of_step(step);
      boxes[row_of(step.rank, step.lane)].add(
          at(step.start_us), at(step.end_us), kind.colour,
          titles ? fmt::format("rank {} lane {} step {} tile {}: {}, {:.2f} to {:.2f} us",
                               step.rank, step.lane, step.step, step.tile, kind.name,
                               start_ + step.start_us, start_ + step.end_us)
                 : "");
    }
    for (const Recording::Message& message : recording_.messages) {
      if (!shown(message.from, message.lane) || message.sent_us <= message.departs_us) continue;
      wires[row_of(message.from, message.lane)].add(
          at(message.departs_us), at(message.sent_us), "#b8c4d0",
          titles ? fmt::format("to rank {}: {:.0f} bytes, {:.2f} to {:.2f} us, there at {:.2f} us",
                               message.to, message.bytes, start_ + message.departs_us,
                               start_ + message.sent_us, start_ + message.arrives_us)
                 : "");
    }
    std::string svg;
    for (const Row& row : wires) svg += row.svg();
    for (const Row& row : boxes) svg += row.svg();
    return svg;
  }

  // From one step, at some time, to another.
  std::string arrow(const Recording::Step& from, double from_us, const Recording::Step& to,
                    double to_us) const {
    return fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", at(from_us),
                       box_middle(from.rank, from.lane), at(to_us), box_middle(to.rank, to.lane));
  }

  // Messages where they are few; and, backwards from the last step, what each one waited for.
  std::string arrows() const {
    std::string few, path;
    std::size_t count = 0;
    for (const Recording::Message& message : recording_.messages) {
      if (!shown(message.from, message.lane) || message.receiver == Recording::kNone) continue;
      const Recording::Step& to = recording_.steps[message.receiver];
      if (!shown(to.rank, to.lane)) continue;
      ++count;
      few += arrow({.rank = message.from, .lane = message.lane}, message.departs_us, to,
                   message.arrives_us);
    }
    const Recording::Step* after = nullptr;  // The one before, seen backwards, if it is shown.
    for (const Recording::Step* step : critical_) {
      if (!shown(step->rank, step->lane)) step = nullptr;
      if (step != nullptr && after != nullptr)
        path += arrow(*step, step->end_us, *after, after->start_us);
      if (step != nullptr) path += arrow(*step, step->start_us, *step, step->end_us);
      after = step;
    }
    std::string svg;
    if (count <= kMostArrows)
      svg += fmt::format(
          "<path d='{}' fill='none' stroke='#667' stroke-width='0.8' "
          "stroke-opacity='0.45'/>\n",
          few);
    return svg + fmt::format("<path d='{}' fill='none' stroke='#111' stroke-width='1.6'/>\n",
                             path.empty() ? "M0 0" : path);
  }

  // The step for which a step waited: another lane's, or the one before it in its lane.
  const Recording::Step* before_of(const Recording::Step& step) const {
    if (step.after != Recording::kNone) return &recording_.steps[step.after];
    if (step.start_us <= 0) return nullptr;
    for (auto other = recording_.steps.begin() + (&step - recording_.steps.data());
         other != recording_.steps.begin();) {
      --other;
      if (other->rank == step.rank && other->lane == step.lane) return &*other;
    }
    return nullptr;
  }

  std::string bound() const {
    const double us = played_.bound_us, place = x(us);
    if (us < begin_)
      return text_at(kRight, kTop - 6, "end",
                     fmt::format("bound {} us: before this", time_text(us)), 12, "#b00020");
    const std::string svg = line_at(place, kTop - 2, place, bottom_ + 4,
                                    "stroke='#b00020' stroke-width='1.6' stroke-dasharray='7 4'");
    const bool left = place > kRight - 120;
    return svg + text_at(left ? place - 4 : place + 4, kTop - 8, left ? "end" : "start",
                         fmt::format("bound {} us", time_text(us)), 12, "#b00020");
  }

  std::string legend() const {
    std::string svg;
    double left = kLeft;
    const double y = bottom_ + 50;
    const auto add = [&](const std::string& mark, const char* name) {
      svg += mark;
      svg += text_at(left + 20, y + 4, "start", name, 12);
      left += 36 + 6.6 * static_cast<double>(std::string_view(name).size());
    };
    for (const Kind& kind : kKinds) {
      const bool used = std::ranges::any_of(recording_.steps, [&](const Recording::Step& step) {
        return kind_of_step(step).colour == kind.colour;
      });
      if (used) add(rect_at(left, y - 6, 14, 11, kind.colour), kind.name);
    }
    add(rect_at(left, y - 2, 14, 5, "#b8c4d0"), "on its way");
    add(line_at(left, y, left + 14, y, "stroke='#111' stroke-width='1.6'"), "critical path");
    svg += text_at(kLeft, bottom_ + 76, "start", "empty: waits for a message or for room in a slot",
                   11, "#777");
    return svg;
  }

  const PlayedPlan& played_;
  const Recording& recording_;
  const double start_;
  std::size_t ranks_ = 0, lanes_ = 0, all_lanes_ = 0;
  static constexpr std::size_t kHidden = ~std::size_t{0};
  std::vector<std::size_t> row_of_lane_;  // The row of each lane of a rank.
  std::vector<std::uint32_t> lanes_shown_;
  std::vector<const Recording::Step*> critical_;  // From the last step back.
  double row_height_ = 0, bottom_ = 0, begin_ = 0, end_ = 0;
  bool whole_ = true;
};

}  // namespace

std::string to_svg(const PlayedPlan& played) { return Drawing(played).draw(); }

}  // namespace tutti::tools
