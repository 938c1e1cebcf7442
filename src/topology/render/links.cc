// File: topology/render/links.cc: links of the picture outside of the PCI Express trees.
// See parts.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "topology/render/parts.h"

namespace tutti::topology {
namespace {

struct Bundle {
  const Link* first = nullptr;
  int links = 0, count = 0;
  double gbs = 0;
};
using Ends = std::tuple<int, int, LinkKind>;

// Where a line to `other` leaves a box: its middle, or of a wide one what is nearest.
double leave_x(const Anchor& from, const Anchor& other, double share) {
  if (!from.shared) return from.box.middle();
  const double left = from.box.x + 12, right = from.box.x + from.box.width - 12;
  if (!other.shared) return std::clamp(other.box.middle(), left, right);
  const double low = std::max(left, other.box.x + 12);
  const double high = std::min(right, other.box.x + other.box.width - 12);
  return low < high ? low + (high - low) * share : (left + right) / 2;
}

// The lower edge of the host that the bundle's first link leaves; 0 if it leaves none.
double frame_bottom(const Picture& picture, const Bundle& bundle) {
  for (const NodeId end : {bundle.first->a, bundle.first->b}) {
    const NodeId host = picture.graph[end].host;
    if (!host.exists() || picture.anchor_of[host.value] < 0) continue;
    const int anchor = picture.anchor_of[host.value];
    return picture.anchors[static_cast<std::size_t>(anchor)].box.bottom();
  }
  return 0;
}

void draw_bundle(Picture& picture, const Ends& ends, const Bundle& bundle) {
  const auto [a, b, kind] = ends;
  const Anchor* upper = &picture.anchors[static_cast<std::size_t>(a)];
  const Anchor* lower = &picture.anchors[static_cast<std::size_t>(b)];
  if (upper->box.y > lower->box.y) std::swap(upper, lower);
  const double share = kind == LinkKind::kNvlink ? 0.3 : 0.7;
  double x0 = leave_x(*upper, *lower, share), x1 = leave_x(*lower, *upper, share);
  const double y0 = upper->box.bottom(), y1 = lower->box.y;
  std::string path;
  if (kind == LinkKind::kSocket || kind == LinkKind::kInternal) {
    const double y = upper->box.y;
    const double rise = std::min(18.0, 8 + std::abs(x1 - x0) * 0.02);
    path = fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", x0, y, x0,
                       y - rise, x1, y - rise, x1, lower->box.y);
  } else if (y1 >= y0) {
    // A port's line first leaves its host straight down, so that it passes what is below there.
    const double out =
        kind == LinkKind::kPort && !upper->shared ? frame_bottom(picture, bundle) : 0;
    const double start = std::clamp(out, y0, y1), bend = (y1 - start) / 2;
    path = fmt::format("M{:.1f} {:.1f}V{:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", x0, y0,
                       start, x0, start + bend, x1, y1 - bend, x1, y1);
  } else {  // In one row: an arc below, deeper the farther; it leaves on the other's side.
    const double side = x0 < x1 ? 1 : -1, far = std::abs(x1 - x0);
    x0 += side * upper->box.width * (0.4 - std::min(0.3, far / 3000));
    x1 -= side * lower->box.width * (0.4 - std::min(0.3, far / 3000));
    const double deep = std::min(180.0, 30 + far * 0.2), low = lower->box.bottom();
    path = fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", x0, y0, x0,
                       low + deep, x1, low + deep, x1, low);
  }
  const bool wide = upper->shared && lower->shared;
  const std::string title =
      bundle.links == 1 ? title_of(picture.graph, *bundle.first)
                        : fmt::format("{} links, {} x {}, {} each way", bundle.links, bundle.count,
                                      people_word(kind), rate_text(bundle.gbs));
  // Among GPUs that are joined directly it is the number of links that differs, so that shows.
  const bool direct = kind == LinkKind::kNvlink && y1 < y0;
  const double thick = direct ? std::min(1.7 * bundle.count, 8.0) : stroke_width(kind, bundle.gbs);
  picture.scene.line(path, {colour(kind), thick, 0.6}, title);
  if (wide && upper != lower && y1 > y0) {
    picture.scene.text(
        {x1 + 10, y1 - 8, 10, colour(kind), false, true},
        fmt::format("{} x {}, {}", bundle.count, people_word(kind), rate_text(bundle.gbs)));
  }
}

/// What sockets carry, over the longest of their lines: one figure, if it is that of all.
void name_sockets(Picture& picture, const std::map<Ends, Bundle>& bundles) {
  double longest = 0, middle = 0, top = 0, gbs = 0;
  int count = 0;
  for (const auto& [ends, bundle] : bundles) {
    const auto& [a, b, kind] = ends;
    if (kind != LinkKind::kSocket || bundle.gbs <= 0) continue;
    if (count++ > 0 && std::abs(bundle.gbs - gbs) > 1e-9 * gbs) return;
    gbs = bundle.gbs;
    const Box &one = picture.anchors[static_cast<std::size_t>(a)].box,
              &two = picture.anchors[static_cast<std::size_t>(b)].box;
    const double far = std::abs(one.middle() - two.middle());
    if (far <= longest) continue;
    longest = far;
    middle = (one.middle() + two.middle()) / 2;
    top = std::min(one.y, two.y);
  }
  if (count == 0) return;
  picture.scene.text({middle, top - 18, 9, colour(LinkKind::kSocket)},
                     rate_text(gbs) + (count > 1 ? " each" : ""));
}

}  // namespace

void draw_links(Picture& picture) {
  std::map<Ends, Bundle> bundles;
  for (std::size_t i = 0; i < picture.graph.links.size(); ++i) {
    const Link& link = picture.graph.links[i];
    const int a = picture.anchor_of[link.a.value], b = picture.anchor_of[link.b.value];
    if (picture.drawn[i] || a < 0 || b < 0 || a == b) continue;
    Bundle& bundle = bundles[{std::min(a, b), std::max(a, b), link.kind}];
    if (bundle.first == nullptr) bundle.first = &link;
    ++bundle.links;
    bundle.count += link.count;
    bundle.gbs += link.forward.value;
  }
  for (const auto& [ends, bundle] : bundles) draw_bundle(picture, ends, bundle);
  name_sockets(picture, bundles);
}

}  // namespace tutti::topology
