#include "planner/kernel_shape.h"

#include <algorithm>
#include <bit>

namespace tutti::planner {
namespace {

/// The lanes that are chosen, as the user limits them.
std::uint32_t within_limits(std::uint32_t lanes, const Settings& settings) {
  lanes = std::max(lanes, static_cast<std::uint32_t>(settings.least_lanes));
  const auto most = static_cast<std::uint32_t>(settings.most_lanes);
  return most > 0 ? std::min(lanes, most) : lanes;
}

}  // namespace

CommunicatorShape communicator_shape(const CommunicatorDevices& devices, const Settings& settings,
                                     const KernelShape& figures) {
  CommunicatorShape shape;
  const std::size_t room = static_cast<std::size_t>(devices.multiprocessors) / devices.most_on_one;
  const auto fit = static_cast<std::uint32_t>(
      room / (devices.most_on_one > 1 ? figures.shared_lanes_divisor : figures.lanes_divisor));
  const std::uint32_t chosen =
      std::bit_floor(std::clamp(fit, figures.least_lanes, figures.most_lanes));
  shape.lanes = settings.lanes > 0 ? static_cast<std::uint32_t>(settings.lanes)
                                   : within_limits(chosen, settings);
  shape.slot_count = settings.slot_count > 0 ? static_cast<std::uint32_t>(settings.slot_count)
                                             : figures.slot_count;
  shape.slot_bytes = settings.slot_bytes > 0
                         ? (settings.slot_bytes + kSlotGrain - 1) / kSlotGrain * kSlotGrain
                         : figures.slot_bytes;
  const auto too_long = [&] {
    return shape.lanes * devices.ranks * shape.slot_count * shape.slot_bytes > figures.ring_bytes;
  };
  while (settings.slot_bytes == 0 && too_long() && shape.slot_bytes > figures.least_slot_bytes)
    shape.slot_bytes /= 2;
  const std::uint32_t least =
      std::max(static_cast<std::uint32_t>(settings.least_lanes), figures.least_lanes);
  while (settings.lanes == 0 && too_long() && shape.lanes / 2 >= least) shape.lanes /= 2;
  // All messages of a rank go at a time, as far as its share of the device has room.
  shape.queues = static_cast<std::uint32_t>(
      std::min({2 * (devices.ranks - 1), std::size_t{figures.most_queues}, room}));
  // One message each way takes lanes both ways; a part of the device has to be left to others.
  shape.message_blocks = static_cast<std::uint32_t>(
      std::min(std::size_t{2} * shape.lanes, room * figures.message_eighths / 8));
  return shape;
}

}  // namespace tutti::planner
