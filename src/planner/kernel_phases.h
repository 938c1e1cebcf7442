// File: planner/kernel_phases.h: how long the phases of a step of this library's kernels take
// (kernels/cuda/interpret.h), and what follows for a slot and a hop: the one place for these
// figures. Simulations over the protocols "slots", "packed", "lines" and "multimem" and the choices
// of device communicators (cuda/comm/select.h) are made of them.
//
// Each figure says whose it is. perf/cuda_facts measures what is marked with a star. So far it has
// run on one H200 alone (docs/PERFORMANCE.md), where nothing crosses a link; its figures replace
// these once there are those of several devices, since the two belong together.
#pragma once

namespace tutti::planner {

/// Microseconds, but for the rates. A block does these phases of a step one after the other.
struct KernelPhases {
  /// * From the end of the kernel before on its stream to the first step, and from the last step to
  /// the end: docs/kernels-predicted.md ("Where the time of a small call goes"), first, second,
  /// third and last row.
  double launch_us = 2.3;
  /// * The step, its locations and the ends of its rings, from shared memory; and where the tile
  /// lies. Assumed: some 150 instructions of one warp at 1.7 GHz, and waits for shared memory.
  double look_up_us = 0.2;
  /// Two a step, of 512 threads. Assumed: 40 cycles each, and the last warp's delay.
  double barriers_us = 0.1;
  /// * A load from the device's own memory, under load (docs/kernels-predicted.md, "Assumptions").
  double load_us = 0.9;
  /// * A fence behind stores to a peer ends when the peer has them: a way there and back. 0.5 us of
  /// flight each way over NVLink is NCCL's developers' figure (NVIDIA/nccl issue 2272).
  double release_us = 1.0;
  /// * From a store of a flag until the peer's poll has seen it: a flight, and half a poll of the
  /// peer's own memory (0.65 us a load, docs/kernels-predicted.md).
  double flag_us = 0.5 + 0.3;
  /// Over PCI Express a flight takes so much more: assumed, for switches and root ports. The fence
  /// takes two flights.
  double pcie_flight_us = 0.4;
  /// Within a device's own L2 there is no flight, and a fence is short. Assumed.
  double same_device_us = 0.4;
  /// * Over a network the CPU sees the flag, posts, and the peer's sees that it came. NCCL's figure
  /// for its own protocol "simple" (src/graph/tuning.cc, hwLat).
  double network_us = 14;
  /// * Data beside their flags (packed lines): a flight and half a poll, as NCCL's "LL" (hwLat).
  double packed_us = 0.6, packed_pcie_us = 1, packed_network_us = 2.7;
  /// * The same of a line of 128 bytes over NVLink, all of which has to be there: a vote of the
  /// warp more, assumed. NCCL's "LL128" has 1.9 us (hwLat), in which its warps also reorder data.
  double lines_us = packed_us + 0.1;
  /// A copy of a stream's between devices, from the end of the operation before to its first byte:
  /// assumed, some 5 us. And a call's copies go on so many streams at a time.
  double copy_engine_us = 5;
  int copy_streams = 4;
  /// * A block's loads and stores, bytes together. 64 KiB of loads are under way at a time (512
  /// threads, 8 of 16 bytes each, docs/kernels-predicted.md) and take 0.9 us; storing them takes
  /// 0.6 us more at 64 bytes a cycle.
  double lane_gigabytes_per_second = 2 * 65.536 / (load_us + 0.6);

  /// What a step takes its lane besides its bytes.
  constexpr double slots_lane_us() const { return look_up_us + barriers_us + release_us; }
  constexpr double flagged_lane_us() const { return look_up_us + barriers_us; }
  /// A hop over PCI Express: the flag's, and what its fence takes more.
  constexpr double pcie_us() const { return flag_us + 3 * pcie_flight_us; }
};

inline constexpr KernelPhases kKernelPhases;

}  // namespace tutti::planner
