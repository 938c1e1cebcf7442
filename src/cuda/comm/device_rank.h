// File: cuda/comm/device_rank.h: one rank of a communicator of devices: what set-up makes, and what
// all other parts of the communicator use.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/state.h"
#include "cuda/comm/select.h"
#include "cuda/driver/share.h"
#include "cuda/mesh/gpudirect_memory.h"
#include "cuda/mesh/mesh.h"
#include "cuda/mesh/network.h"
#include "topology/graph/graph.h"
#include "tutti/device_communicator.h"

namespace tutti {

using exec::RelaxedCapture;

/// A little memory of the device. Other processes try with it whether they can open such memory.
struct SampleMemory {
  exec::CudaMemory memory;
  exec::CudaExport exported;
};

/// The rings between this rank and ranks of other hosts.
struct HostLinks {
  exec::GpuDirectMemory gpudirect;             // Their slots, if these are in device memory.
  std::string slots_words;                     // Where the slots are and why, for describe().
  std::unique_ptr<exec::CudaNetwork> network;  // Carries them. Null: all ranks are on one host.
};

/// What is known of the hosts that the ranks are on.
struct HostGraph {
  bool asked = false;
  /// This rank's host, as its ranks tell it.
  struct Own {
    std::string name;     // "node1", "box.topo"
    std::string place;    // Its node in a graph of several hosts; else empty.
    std::string how;      // "probe"; empty: from a file.
    std::string why_not;  // Why there is no graph.
    std::shared_ptr<const topology::Graph> graph;
  } own;
  std::string source;   // "topology of node1 (probe)"
  std::string why_not;  // Why plans are chosen without it; empty: they are chosen by it.
};

struct DeviceRank {
  explicit DeviceRank(Communicator joined)
      : control(std::move(joined)), me(control.rank()), rank_count(control.rank_count()) {}

  /// The same ranks in host memory: for set-up, aborts and leaving.
  Communicator control;
  Rank me;
  int rank_count = 1;
  int device = 0;
  Settings settings;
  std::uint64_t token = 0;         // Names the communicator, alike on all ranks.
  planner::DeviceMachine machine;  // Alike on all ranks.
  HostGraph topology;
  bool staged = false;  // Some devices do not reach each other's memory.
  bool eager = false;   // Small all-reduces may take the one-shot kernel.
  SampleMemory sample;
  std::vector<std::string> refusals;  // By rank, why this one can't open its memory; empty: it can.
  std::unique_ptr<exec::CudaMesh> mesh;  // The ranks' rings, and what runs plans on them.
  HostLinks between_hosts;
  double created_ms = 0;

  std::size_t index() const { return static_cast<std::size_t>(me.value); }
  /// The control communicator's insides.
  Communicator::State& host() const { return Insides::of(control); }
  exec::CudaNetwork* network() const { return between_hosts.network.get(); }
};

}  // namespace tutti
