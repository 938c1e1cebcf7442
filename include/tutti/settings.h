// File: tutti/settings.h: every knob of the library, in one value that is read once.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "tutti/export.h"
#include "tutti/result.h"
#include "tutti/wire.h"

namespace tutti {

/// Each field can be set by the environment variable named beside it. Programs that set fields
/// themselves start from `Settings::from_environment()` or from `Settings{}`.
/// It has more than 15 fields: one for each setting of a communicator.
struct TUTTI_API Settings {
  std::chrono::milliseconds timeout{60'000};     // TUTTI_TIMEOUT_MS: the deadline of every wait.
  Contract contract = Contract::kDeterministic;  // TUTTI_CONTRACT: deterministic or relaxed.
  /// TUTTI_ALGORITHM: force one, "direct" or "all_reduce=ring,broadcast=binomial", "ring:2" with
  /// its lanes twice; or forbid one, "^ring", "all_reduce=^packet".
  std::string algorithm;
  /// TUTTI_WIRE: how float32 values travel in all-reduces that sum or average, "int8" or
  /// "bfloat16:stochastic"; see wire.h. Their results are rounded.
  Wire wire;
  std::string transport;       // TUTTI_TRANSPORT: force one, "shared_memory"; forbid, "^verbs,ucx".
  std::size_t slot_bytes = 0;  // TUTTI_SLOT_BYTES: size of a channel slot; 0 chooses by rank count.
  int slot_count = 0;          // TUTTI_SLOT_COUNT: slots per channel; 0 chooses.
  /// TUTTI_READ_FROM: bytes of a block from which ranks read each other's plain buffers, where the
  /// system lets them, instead of sending slots; 0 chooses; "off" (SIZE_MAX) never.
  std::size_t read_from_bytes = 0;
  /// TUTTI_UNEXPECTED_BYTES: bytes of messages that a rank keeps which came before a receive asked
  /// for their tag; what is more waits at its sender until one does.
  std::size_t unexpected_bytes = std::size_t{256} << 20;
  int lanes = 0;  // TUTTI_LANES: parallel shares of a collective; 0 chooses.
  /// TUTTI_LEAST_LANES, TUTTI_MOST_LANES: limits of what is chosen for devices, where a lane takes
  /// one multiprocessor; 0: none. Where they contradict each other the second one holds.
  int least_lanes = 0, most_lanes = 0;
  /// TUTTI_PLAN: files with plans to run instead of algorithms, "mine.plan" or "a.plan,b.plan".
  std::string plan;
  /// TUTTI_GROUPS: how many ranks in a row are near each other, {8}; nested, innermost first:
  /// {8, 32}. Each a multiple of the one before, from 2 on. Empty: none.
  std::vector<int> groups;
  /// TUTTI_WEIGHTS: by rank, how much of an all-reduce it owns compared with the others, for
  /// `weighted`. Empty: all the same.
  std::vector<int> weights;
  int spin = -1;  // TUTTI_SPIN: pauses before a waiting rank yields; -1 chooses.
  /// TUTTI_ADAPT: whether ranks try what is fastest while calls run, "on" or "off".
  bool adapt = true;
  /// TUTTI_TUNING: the file of tables that `tutti tune` wrote; "off" for none; empty for the usual
  /// place, if there is one. Rank 0's is what all ranks use.
  std::string tuning;
  /// TUTTI_TOPOLOGY: what plans are chosen by: a file with the text form of a topology, or NCCL's
  /// XML; "off" for assumed figures alone; empty probes the host. Device communicators: the lowest
  /// rank of each host reads the file, which describes this host, or all hosts and then is alike on
  /// each. Host communicators: rank 0 reads the file, which describes all hosts; without one, only
  /// the NUMA nodes of a single host are considered.
  std::string topology;
  /// TUTTI_TOPOLOGY_DUMP: a file into which rank TUTTI_TOPOLOGY_DUMP_RANK of each communicator of
  /// devices writes the topology of its host as NCCL's XML when ranks have joined; empty: none.
  std::string topology_dump;
  int topology_dump_rank = 0;
  std::string net_interfaces;  // TUTTI_NET_INTERFACES: "eth0,ib*", "^docker0"; empty chooses.
  std::string rdma_devices;    // TUTTI_RDMA_DEVICES: "mlx5_0,mlx5_1:2", "^mlx5_3"; empty chooses.
  /// TUTTI_RDMA_GID_INDEX: the index of the GID by which each RoCE port is used, at most 255; -1:
  /// the best one by its address.
  int rdma_gid_index = -1;
  /// TUTTI_RDMA_TRAFFIC_CLASS, TUTTI_RDMA_SERVICE_LEVEL: how switches treat what goes by RDMA, at
  /// most 255 and 15: RoCE networks look at the first, InfiniBand at the second. -1: 0.
  int rdma_traffic_class = -1, rdma_service_level = -1;
  /// TUTTI_GPUDIRECT: whether slots between devices of different hosts lie in the devices' memory,
  /// which RDMA cards then read and write: "on", "off", or "auto", where card and device are close.
  std::string gpudirect = "auto";
  /// TUTTI_PEERS: by which links devices of a host read and write each other's memory: "auto", all
  /// that work; "nvlink", no PCI Express; or "off". Devices without one of these meet in the host's
  /// memory. For finding out whether such access is at fault.
  std::string peers = "auto";
  /// TUTTI_FLIGHT: a folder into which a rank writes its latest calls as JSON when it gets the
  /// error that ended its communicator; empty: none.
  std::string flight;
  /// TUTTI_TRACE: a file to which each rank adds its latest calls when its communicator or its
  /// process ends: a trace for Perfetto, of all ranks that see the file; empty: none.
  std::string trace;
  /// TUTTI_LOG: trace, debug, info, warn, error or off; parts may have levels of their own:
  /// "warn,net=debug". Parts: settings, join, net, calls, plans, devices, nccl.
  std::string log = "warn";

  /// Reads the environment. An unknown value is an error that names the variable and what it takes.
  static Result<Settings> from_environment();
  /// One "name = value" a line, with the source of each value.
  std::string to_string() const;
};

}  // namespace tutti
