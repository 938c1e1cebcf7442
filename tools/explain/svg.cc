// A simulated plan as a picture: time from left to right, a row for each lane of each rank. Above
// in a row is what the rank computes, coloured by what the step does; below it what is on its way
// from there, until all links have carried it. The critical path, the chain of steps and messages
// that the last step waited for, is drawn over it; other messages where they are few.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tools/explain/explain.h"
#include "tools/simulate/simulate.h"
#include "tools/svg.h"

namespace tutti::tools {
namespace {

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
class Row {
 public:
  Row(double y, double height) : y_(y), height_(height) {}
  void add(double from, double to, const char* colour, const std::string& title) {
    to = std::max(to, from + 1);
    if (open_ && colour == colour_ && from - to_ < kThin) {
      to_ = std::max(to_, to);
      ++count_;
      return;
    }
    close();
    open_ = true;
    from_ = from;
    to_ = to;
    colour_ = colour;
    title_ = title;
    count_ = 1;
  }
  std::string finish() {
    close();
    return std::move(svg_);
  }

 private:
  void close() {
    if (!open_) return;
    open_ = false;
    const std::string title =
        count_ > 1 && !title_.empty() ? fmt::format("{} and {} more", title_, count_ - 1) : title_;
    svg_ += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='{}'",
                        from_, y_, to_ - from_, height_, colour_);
    svg_ += title.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escaped(title));
  }
  const double y_, height_;
  bool open_ = false;
  double from_ = 0, to_ = 0;
  const char* colour_ = "";
  std::string title_, svg_;
  int count_ = 0;
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
    choose_lanes();
  }

  std::string draw() {
    std::string svg = svg_head(kWidth, bottom_ + 92) + heading() + axis();
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
    for (const Recording::Step* step = last_step(); step != nullptr; step = before_of(*step))
      add(step->lane);
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
  double top(std::uint32_t rank, std::uint32_t lane) const {
    return kTop + static_cast<double>(row_of(rank, lane)) * row_height_;
  }
  double box_top(std::uint32_t rank, std::uint32_t lane) const {
    return top(rank, lane) + 0.14 * row_height_;
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
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
    return text;
  }

  std::string axis() const {
    std::string svg;
    const double step = round_step((end_ - begin_) / 1.8);
    for (double us = std::ceil(begin_ / step) * step; us <= end_; us += step) {
      svg += fmt::format(
          "<line x1='{0:.1f}' y1='{1:.1f}' x2='{0:.1f}' y2='{2:.1f}' stroke='#e6e6e6'/>\n", x(us),
          kTop, bottom_);
      svg += text_at(x(us), bottom_ + 17, "middle", time_words(us), 11);
    }
    if (start_ > 0) {
      const double width = x(start_) - kLeft;
      svg += fmt::format(
          "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='#f3f0e8'/>\n", kLeft,
          kTop, width, bottom_ - kTop);
      if (begin_ > 0)
        svg += text_at(kLeft, kTop - 6, "start",
                       fmt::format("{} us of starting up, cut off", start_), 10, "#887");
      else if (width > 56)
        svg += text_at(kLeft + width / 2, kTop - 6, "middle", "starting up", 10, "#887");
    }
    for (std::size_t rank = 0; rank <= ranks_; ++rank) {
      const double y = kTop + static_cast<double>(rank * lanes_) * row_height_;
      svg += fmt::format("<line x1='{}' y1='{:.1f}' x2='{}' y2='{:.1f}' stroke='#bbb'/>\n",
                         lanes_ > 1 ? 16 : static_cast<int>(kLeft), y, kRight, y);
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

  std::string rows() const {
    std::vector<Row> boxes, wires;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      for (const std::uint32_t lane : lanes_shown_) {
        boxes.emplace_back(box_top(rank, lane), 0.48 * row_height_);
        wires.emplace_back(box_top(rank, lane) + 0.52 * row_height_, 0.2 * row_height_);
      }
    }
    const bool titles = recording_.steps.size() <= kMostTitles;
    for (const Recording::Step& step : recording_.steps) {
      if (!shown(step.rank, step.lane)) continue;
      const plan::Lane& lane = played_.plan.ranks[step.rank].lanes[step.lane];
      const Kind& kind = kind_of(lane, lane.steps[step.step]);
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
    for (Row& row : wires) svg += row.finish();
    for (Row& row : boxes) svg += row.finish();
    return svg;
  }

  std::string arrow(const Recording::Step& from, const Recording::Step& to) const {
    return fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", at(from.end_us),
                       box_middle(from.rank, from.lane), at(to.start_us),
                       box_middle(to.rank, to.lane));
  }

  // Messages where they are few; and, backwards from the last step, what each one waited for.
  std::string arrows() const {
    std::string few;
    std::size_t count = 0;
    for (const Recording::Message& message : recording_.messages) {
      if (!shown(message.from, message.lane) || message.receiver == Recording::kNone) continue;
      const Recording::Step& to = recording_.steps[message.receiver];
      if (!shown(to.rank, to.lane)) continue;
      ++count;
      few += fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", at(message.departs_us),
                         box_middle(message.from, message.lane), at(message.arrives_us),
                         box_middle(to.rank, to.lane));
    }
    std::string svg;
    if (count <= kMostArrows)
      svg += fmt::format(
          "<path d='{}' fill='none' stroke='#667' stroke-width='0.8' "
          "stroke-opacity='0.45'/>\n",
          few);
    std::string path;
    for (const Recording::Step* at_step = last_step(); at_step != nullptr;) {
      if (shown(at_step->rank, at_step->lane))
        path += fmt::format("M{:.1f} {:.1f}H{:.1f}", at(at_step->start_us),
                            box_middle(at_step->rank, at_step->lane), at(at_step->end_us));
      const Recording::Step* before = before_of(*at_step);
      if (before != nullptr && shown(before->rank, before->lane) &&
          shown(at_step->rank, at_step->lane))
        path += arrow(*before, *at_step);
      at_step = before;
    }
    return svg + fmt::format("<path d='{}' fill='none' stroke='#111' stroke-width='1.6'/>\n",
                             path.empty() ? "M0 0" : path);
  }

  const Recording::Step* last_step() const {
    const auto last = std::max_element(
        recording_.steps.begin(), recording_.steps.end(),
        [](const Recording::Step& a, const Recording::Step& b) { return a.end_us < b.end_us; });
    return last == recording_.steps.end() ? nullptr : &*last;
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
    std::string svg = fmt::format(
        "<line x1='{0:.1f}' y1='{1:.1f}' x2='{0:.1f}' y2='{2:.1f}' stroke='#b00020' "
        "stroke-width='1.6' stroke-dasharray='7 4'/>\n",
        place, kTop - 2, bottom_ + 4);
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
    std::vector<const char*> used;
    for (const Recording::Step& step : recording_.steps) {
      const plan::Lane& lane = played_.plan.ranks[step.rank].lanes[step.lane];
      const char* colour = kind_of(lane, lane.steps[step.step]).colour;
      if (std::find(used.begin(), used.end(), colour) == used.end()) used.push_back(colour);
    }
    for (const Kind& kind : kKinds) {
      if (std::find(used.begin(), used.end(), kind.colour) == used.end()) continue;
      add(fmt::format("<rect x='{:.1f}' y='{:.1f}' width='14' height='11' fill='{}'/>\n", left,
                      y - 6, kind.colour),
          kind.name);
    }
    add(fmt::format("<rect x='{:.1f}' y='{:.1f}' width='14' height='5' fill='#b8c4d0'/>\n", left,
                    y - 2),
        "on its way");
    add(fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#111' "
                    "stroke-width='1.6'/>\n",
                    left, y, left + 14, y),
        "critical path");
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
  double row_height_ = 0, bottom_ = 0, begin_ = 0, end_ = 0;
  bool whole_ = true;
};

}  // namespace

std::string to_svg(const PlayedPlan& played) { return Drawing(played).draw(); }

}  // namespace tutti::tools
