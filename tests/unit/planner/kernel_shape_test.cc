// The shape of a communicator of devices: that of each size of device and of job, and what settings
// change.
#include "planner/kernel_shape.h"

#include <bit>

#include "support/catch.h"

using namespace tutti;
using planner::communicator_shape;
using planner::CommunicatorDevices;
using planner::CommunicatorShape;
using planner::KernelShape;
using planner::kKernelShape;

namespace {

constexpr std::size_t kKiB = 1024;

struct Row {
  CommunicatorDevices devices;
  CommunicatorShape shape;  // Lanes, slots, bytes of a slot, queues, blocks of messages.
};

// A100, H100 PCIe, H100 and H200, B200.
constexpr Row kRows[] = {
    {{108, 1, 1}, {16, 4, 64 * kKiB, 0, 32}},   {{108, 2, 1}, {16, 4, 64 * kKiB, 2, 32}},
    {{108, 2, 2}, {16, 4, 64 * kKiB, 2, 20}},   {{108, 3, 1}, {16, 4, 64 * kKiB, 4, 32}},
    {{108, 3, 2}, {16, 4, 64 * kKiB, 4, 20}},   {{108, 8, 1}, {16, 4, 64 * kKiB, 14, 32}},
    {{108, 8, 2}, {16, 4, 64 * kKiB, 14, 20}},  {{108, 8, 8}, {4, 4, 64 * kKiB, 13, 4}},
    {{108, 16, 1}, {16, 4, 64 * kKiB, 30, 32}}, {{108, 16, 2}, {16, 4, 64 * kKiB, 30, 20}},
    {{108, 16, 8}, {4, 4, 64 * kKiB, 13, 4}},   {{108, 32, 1}, {16, 4, 32 * kKiB, 32, 32}},
    {{108, 32, 2}, {16, 4, 32 * kKiB, 32, 20}}, {{108, 32, 8}, {4, 4, 64 * kKiB, 13, 4}},
    {{108, 64, 1}, {16, 4, 16 * kKiB, 32, 32}}, {{108, 64, 2}, {16, 4, 16 * kKiB, 32, 20}},
    {{108, 64, 8}, {4, 4, 64 * kKiB, 13, 4}},   {{108, 64, 64}, {2, 4, 64 * kKiB, 1, 0}},
    {{114, 1, 1}, {16, 4, 64 * kKiB, 0, 32}},   {{114, 2, 1}, {16, 4, 64 * kKiB, 2, 32}},
    {{114, 2, 2}, {16, 4, 64 * kKiB, 2, 21}},   {{114, 3, 1}, {16, 4, 64 * kKiB, 4, 32}},
    {{114, 3, 2}, {16, 4, 64 * kKiB, 4, 21}},   {{114, 8, 1}, {16, 4, 64 * kKiB, 14, 32}},
    {{114, 8, 2}, {16, 4, 64 * kKiB, 14, 21}},  {{114, 8, 8}, {4, 4, 64 * kKiB, 14, 5}},
    {{114, 16, 1}, {16, 4, 64 * kKiB, 30, 32}}, {{114, 16, 2}, {16, 4, 64 * kKiB, 30, 21}},
    {{114, 16, 8}, {4, 4, 64 * kKiB, 14, 5}},   {{114, 32, 1}, {16, 4, 32 * kKiB, 32, 32}},
    {{114, 32, 2}, {16, 4, 32 * kKiB, 32, 21}}, {{114, 32, 8}, {4, 4, 64 * kKiB, 14, 5}},
    {{114, 64, 1}, {16, 4, 16 * kKiB, 32, 32}}, {{114, 64, 2}, {16, 4, 16 * kKiB, 32, 21}},
    {{114, 64, 8}, {4, 4, 64 * kKiB, 14, 5}},   {{114, 64, 64}, {2, 4, 64 * kKiB, 1, 0}},
    {{132, 1, 1}, {32, 4, 64 * kKiB, 0, 49}},   {{132, 2, 1}, {32, 4, 64 * kKiB, 2, 49}},
    {{132, 2, 2}, {32, 4, 64 * kKiB, 2, 24}},   {{132, 3, 1}, {32, 4, 64 * kKiB, 4, 49}},
    {{132, 3, 2}, {32, 4, 64 * kKiB, 4, 24}},   {{132, 8, 1}, {32, 4, 64 * kKiB, 14, 49}},
    {{132, 8, 2}, {32, 4, 64 * kKiB, 14, 24}},  {{132, 8, 8}, {8, 4, 64 * kKiB, 14, 6}},
    {{132, 16, 1}, {32, 4, 32 * kKiB, 30, 49}}, {{132, 16, 2}, {32, 4, 32 * kKiB, 30, 24}},
    {{132, 16, 8}, {8, 4, 64 * kKiB, 16, 6}},   {{132, 32, 1}, {32, 4, 16 * kKiB, 32, 49}},
    {{132, 32, 2}, {32, 4, 16 * kKiB, 32, 24}}, {{132, 32, 8}, {8, 4, 64 * kKiB, 16, 6}},
    {{132, 64, 1}, {16, 4, 16 * kKiB, 32, 32}}, {{132, 64, 2}, {16, 4, 16 * kKiB, 32, 24}},
    {{132, 64, 8}, {8, 4, 32 * kKiB, 16, 6}},   {{132, 64, 64}, {2, 4, 64 * kKiB, 2, 0}},
    {{148, 1, 1}, {32, 4, 64 * kKiB, 0, 55}},   {{148, 2, 1}, {32, 4, 64 * kKiB, 2, 55}},
    {{148, 2, 2}, {32, 4, 64 * kKiB, 2, 27}},   {{148, 3, 1}, {32, 4, 64 * kKiB, 4, 55}},
    {{148, 3, 2}, {32, 4, 64 * kKiB, 4, 27}},   {{148, 8, 1}, {32, 4, 64 * kKiB, 14, 55}},
    {{148, 8, 2}, {32, 4, 64 * kKiB, 14, 27}},  {{148, 8, 8}, {8, 4, 64 * kKiB, 14, 6}},
    {{148, 16, 1}, {32, 4, 32 * kKiB, 30, 55}}, {{148, 16, 2}, {32, 4, 32 * kKiB, 30, 27}},
    {{148, 16, 8}, {8, 4, 64 * kKiB, 18, 6}},   {{148, 32, 1}, {32, 4, 16 * kKiB, 32, 55}},
    {{148, 32, 2}, {32, 4, 16 * kKiB, 32, 27}}, {{148, 32, 8}, {8, 4, 64 * kKiB, 18, 6}},
    {{148, 64, 1}, {16, 4, 16 * kKiB, 32, 32}}, {{148, 64, 2}, {16, 4, 16 * kKiB, 32, 27}},
    {{148, 64, 8}, {8, 4, 32 * kKiB, 18, 6}},   {{148, 64, 64}, {2, 4, 64 * kKiB, 2, 0}},
};

CommunicatorShape of(CommunicatorDevices devices, const Settings& settings = {}) {
  return communicator_shape(devices, settings);
}

}  // namespace

TEST_CASE("a communicator's shape follows from its devices") {
  for (const auto& [devices, shape] : kRows) {
    INFO(devices.multiprocessors << " multiprocessors, " << devices.ranks << " ranks, up to "
                                 << devices.most_on_one << " on one");
    const CommunicatorShape made = of(devices);
    CHECK(made.lanes == shape.lanes);
    CHECK(made.slot_count == shape.slot_count);
    CHECK(made.slot_bytes == shape.slot_bytes);
    CHECK(made.queues == shape.queues);
    CHECK(made.message_blocks == shape.message_blocks);
  }
}

TEST_CASE("a communicator's shape keeps the limits") {
  for (int multiprocessors = 1; multiprocessors <= 160; ++multiprocessors) {
    for (std::size_t ranks = 1; ranks <= 64; ++ranks) {
      for (std::size_t most = 1; most <= ranks; ++most) {
        const CommunicatorShape made = of({multiprocessors, ranks, most});
        INFO(multiprocessors << " multiprocessors, " << ranks << " ranks, " << most << " on one");
        REQUIRE(std::has_single_bit(made.lanes));
        REQUIRE(made.lanes >= 2);
        REQUIRE(made.lanes <= 32);
        REQUIRE(made.slot_bytes >= 16 * kKiB);
        REQUIRE(made.lanes * ranks * made.slot_count * made.slot_bytes <= 64 * kKiB * kKiB);
        REQUIRE(made.queues <= 32);
        REQUIRE(made.message_blocks <= 2 * made.lanes);
        REQUIRE(most * made.message_blocks <= static_cast<std::size_t>(multiprocessors) * 3 / 8);
      }
    }
  }
}

TEST_CASE("a communicator's shape follows settings") {
  const CommunicatorDevices h100{132, 8, 1};
  Settings settings;
  settings.lanes = 5;  // And blocks of messages follow.
  CHECK(of(h100, settings) == CommunicatorShape{5, 4, 64 * kKiB, 14, 10});
  settings.slot_bytes = 2 * kKiB * kKiB - 1;  // Whole KiB; however long the rings are.
  settings.slot_count = 6;
  CHECK(of(h100, settings) == CommunicatorShape{5, 6, 2 * kKiB * kKiB, 14, 10});

  settings = {};
  settings.slot_bytes = 256 * kKiB;  // Then lanes are fewer, where nobody says how many;
  CHECK(of(h100, settings) == CommunicatorShape{8, 4, 256 * kKiB, 14, 16});
  settings.least_lanes = 12;  // but not fewer than that.
  CHECK(of(h100, settings) == CommunicatorShape{16, 4, 256 * kKiB, 14, 32});

  settings = {};
  settings.most_lanes = 6;
  CHECK(of(h100, settings) == CommunicatorShape{6, 4, 64 * kKiB, 14, 12});
  settings.most_lanes = 0;
  settings.least_lanes = 48;  // More slots than memory for them: shorter ones.
  CHECK(of(h100, settings) == CommunicatorShape{48, 4, 32 * kKiB, 14, 49});
}

TEST_CASE("a communicator's shape is made of the figures that it is given") {
  KernelShape figures;
  figures.most_lanes = 8;
  figures.slot_count = 2;
  figures.slot_bytes = 32 * kKiB;
  figures.most_queues = 5;
  figures.message_eighths = 1;
  CHECK(figures != kKernelShape);
  CHECK(communicator_shape({100, 8, 1}, {}, figures) == CommunicatorShape{8, 2, 32 * kKiB, 5, 12});
}
