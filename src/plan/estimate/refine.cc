#include "plan/estimate/refine.h"

#include <algorithm>
#include <numeric>

#include "base/hash.h"

namespace tutti::plan {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

// Lists, one for each of many, in one piece of memory.
template <class Item>
class Lists {
 public:
  /// `each(visit)` calls visit(list, item) for all that they contain, always in the same order.
  template <class Each>
  Lists(std::size_t count, Each each) : ends_(count + 1) {
    each([&](std::uint32_t list, const Item&) { ++ends_[list + 1]; });
    std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
    items_.resize(ends_.back());
    std::vector<std::size_t> next(ends_.begin(), ends_.end() - 1);
    each([&](std::uint32_t list, const Item& item) { items_[next[list]++] = item; });
  }
  std::span<const Item> operator[](std::size_t list) const {
    return std::span(items_).subspan(ends_[list], ends_[list + 1] - ends_[list]);
  }

 private:
  std::vector<std::size_t> ends_;
  std::vector<Item> items_;
};

class Refinement {
 public:
  Refinement(const Instances& instances, const Ways& ways, const std::vector<std::uint64_t>& labels)
      : instances_(instances),
        ways_(ways),
        channels_(instances.actor_count()),
        servers_(channels_ + instances.channel_count()),
        colours_(labels.size()),
        signatures_(labels),
        sizes_{instances.actor_count(), instances.channel_count(), ways.server_count()},
        is_due_(labels.size()),
        of_listed_(instances.listed_count(),
                   [&](auto visit) {
                     for (std::uint32_t c = 0; c < instances.channels_each(); ++c) {
                       if (instances.is_own(c)) continue;
                       visit(instances.writer(c) % instances.listed_count(), End{c, false});
                       visit(instances.reader(c) % instances.listed_count(), End{c, true});
                     }
                   }),
        channels_of_(ways.server_count(),
                     [&](auto visit) {
                       for (std::uint32_t c = 0; c < instances.channel_count(); ++c) {
                         if (instances.is_own(c)) continue;
                         for (const Leg& leg : ways.legs(ways.of_channel(c)))
                           visit(leg.server, Load{c, leg.kind});
                       }
                     }),
        actors_of_(ways.server_count(), [&](auto visit) {
          for (std::uint32_t a = 0; a < instances.actor_count(); ++a)
            visit(ways.processor(a).server, a);
        }) {
    std::fill(colours_.begin() + channels_, colours_.begin() + servers_, 1U);
    std::fill(colours_.begin() + servers_, colours_.end(), 2U);
  }

  Partition run() {
    look_at_all();
    split();  // By labels.
    look_at_all();
    while (!due_.empty()) {
      for (const std::uint32_t node : due_) signatures_[node] = signature(node);
      split();
    }
    const auto nodes = static_cast<std::uint32_t>(colours_.size());
    return {classes(0, channels_), classes(channels_, servers_), classes(servers_, nodes)};
  }

 private:
  // A channel of the plan that an actor sends on or reads from.
  struct End {
    std::uint32_t channel = 0;
    bool reads = false;
  };
  // A channel that gives a server work.
  struct Load {
    std::uint32_t channel = 0, kind = 0;
  };

  // Calls visit(node, how the two are joined) for all neighbours of a node.
  template <class Visit>
  void for_each_neighbour(std::uint32_t node, Visit visit) const {
    if (node < channels_) {
      const std::uint32_t instance = node / instances_.listed_count();
      for (const End& end : of_listed_[node % instances_.listed_count()]) {
        visit(channels_ + (end.reads ? instances_.read_from(instance, end.channel)
                                     : instances_.sent_on(instance, end.channel)),
              end.reads ? 1U : 0U);
      }
      visit(servers_ + ways_.processor(node).server, 0U);
    } else if (node < servers_) {
      const std::uint32_t channel = node - channels_;
      if (instances_.is_own(channel)) return;
      visit(instances_.writer(channel), 0U);
      visit(instances_.reader(channel), 1U);
      for (const Leg& leg : ways_.legs(ways_.of_channel(channel)))
        visit(servers_ + leg.server, leg.kind);
    } else {
      const std::uint32_t server = node - servers_;
      for (const Load& load : channels_of_[server]) visit(channels_ + load.channel, load.kind);
      for (const std::uint32_t actor : actors_of_[server]) visit(actor, 0U);
      if (ways_.joins(server)) visit(servers_ + ways_.mirror(server), 0U);
    }
  }

  // The neighbourhood of a node. A sum, as there is no order among neighbours.
  std::uint64_t signature(std::uint32_t node) const {
    std::uint64_t sum = 0;
    for_each_neighbour(node, [&](std::uint32_t neighbour, std::uint32_t how) {
      sum += mix(std::uint64_t{how} << 32 | colours_[neighbour]);
    });
    return mix(sum + colours_[node]);
  }

  // Splits classes by the signatures of those that are due; then those are due that have neighbours
  // of another class than before.
  void split() {
    struct Group {
      std::uint32_t colour = 0, size = 0, becomes = kNone;
    };
    std::vector<Group> groups;
    std::vector<std::uint32_t> group_of(due_.size());
    FlatMap index;
    std::vector<std::uint32_t> looked_at(sizes_.size());
    for (std::size_t i = 0; i < due_.size(); ++i) {
      const std::uint32_t node = due_[i], colour = colours_[node];
      is_due_[node] = false;
      ++looked_at[colour];
      const auto fresh = static_cast<std::uint32_t>(groups.size());
      group_of[i] = index.find_or_insert(mix(signatures_[node] + colour) >> 1, fresh);
      if (group_of[i] == fresh) groups.push_back({colour});
      ++groups[group_of[i]].size;
    }
    // If a class was looked at as a whole, its largest group keeps the name.
    std::vector<std::uint32_t> largest(sizes_.size(), kNone);
    for (std::uint32_t i = 0; i < groups.size(); ++i) {
      const Group& group = groups[i];
      std::uint32_t& most = largest[group.colour];
      if (looked_at[group.colour] == sizes_[group.colour] &&
          (most == kNone || group.size > groups[most].size))
        most = i;
    }
    for (std::uint32_t i = 0; i < groups.size(); ++i) {
      Group& group = groups[i];
      if (largest[group.colour] == i) continue;
      group.becomes = static_cast<std::uint32_t>(sizes_.size());
      sizes_[group.colour] -= group.size;
      sizes_.push_back(group.size);
    }
    std::vector<std::uint32_t> renamed;
    for (std::size_t i = 0; i < due_.size(); ++i) {
      if (groups[group_of[i]].becomes == kNone) continue;
      colours_[due_[i]] = groups[group_of[i]].becomes;
      renamed.push_back(due_[i]);
    }
    due_.clear();
    for (const std::uint32_t node : renamed)
      for_each_neighbour(node, [&](std::uint32_t neighbour, std::uint32_t) { look_at(neighbour); });
  }

  void look_at_all() {
    due_.resize(colours_.size());
    std::iota(due_.begin(), due_.end(), 0U);
  }
  void look_at(std::uint32_t node) {
    if (is_due_[node]) return;
    is_due_[node] = true;
    due_.push_back(node);
  }

  // The classes of the nodes [begin, end), numbered anew.
  Classes classes(std::uint32_t begin, std::uint32_t end) const {
    Classes found;
    std::vector<std::uint32_t> numbers(sizes_.size(), kNone);
    for (std::uint32_t node = begin; node < end; ++node) {
      std::uint32_t& number = numbers[colours_[node]];
      if (number == kNone) {
        number = static_cast<std::uint32_t>(found.first.size());
        found.first.push_back(node - begin);
        found.size.push_back(0);
      }
      ++found.size[number];
      found.of.push_back(number);
    }
    return found;
  }

  const Instances& instances_;
  const Ways& ways_;
  const std::uint32_t channels_, servers_;  // The first node of each kind; actors are first.
  std::vector<std::uint32_t> colours_;
  std::vector<std::uint64_t> signatures_;
  std::vector<std::uint32_t> sizes_;  // By colour.
  std::vector<bool> is_due_;
  std::vector<std::uint32_t> due_;
  const Lists<End> of_listed_;            // By actor of the plan.
  const Lists<Load> channels_of_;         // By server.
  const Lists<std::uint32_t> actors_of_;  // By server.
};

}  // namespace

Partition nobody_alike(const Instances& instances, const Ways& ways) {
  const auto single = [](std::uint32_t count) {
    Classes all{std::vector<std::uint32_t>(count), {}, std::vector<std::uint32_t>(count, 1)};
    std::iota(all.of.begin(), all.of.end(), 0U);
    all.first = all.of;
    return all;
  };
  return {single(instances.actor_count()), single(instances.channel_count()),
          single(ways.server_count())};
}

Partition refine(const Instances& instances, const Ways& ways,
                 const std::vector<std::uint64_t>& labels) {
  return Refinement(instances, ways, labels).run();
}

}  // namespace tutti::plan
