// How a communicator of devices comes to be. After a communicator of host memory has joined the
// ranks, they exchange set-up data several times. Each rank says which device it has, and where;
// how it reaches the others'; whose writes have come; where its memory is; and whether that could
// be mapped. Then ranks of several hosts agree on where slots are, and open a network; they learn
// the graph of their hosts, and make multicast memory where the graph says that they can. Each time
// every rank also says whether it failed, so that all give up together, with the reason of the
// first that failed.
#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "base/hash.h"
#include "base/settings/settings_table.h"
#include "base/threads.h"
#include "comm/exchange_over.h"
#include "cuda/comm/exchange_status.h"
#include "cuda/comm/gpudirect.h"
#include "cuda/comm/host_graph.h"
#include "cuda/comm/links.h"
#include "cuda/comm/reach.h"
#include "cuda/comm/state.h"
#include "cuda/comm/topology_dump.h"
#include "kernels/cuda/messages.h"
#include "planner/kernel_phases.h"
#include "planner/kernel_shape.h"
#include "transport/net/endpoint.h"
#include "tutti/rendezvous.h"

namespace tutti {
namespace {

constexpr std::size_t kMostDeviceRanks = cuda::kMostDeviceRanks;
// Kernels have these as constants of their own.
constexpr planner::KernelShape kShape = planner::kKernelShape;
static_assert(cuda::kMostThreads == kShape.block_threads &&
              cuda::kMostQueues == kShape.most_queues);
static_assert(exec::CopyEngines::kStreams == planner::kKernelPhases.copy_streams);

std::uint64_t hash_of(const Settings& settings) {
  return Hash()
      .add(settings.algorithm)
      .add(static_cast<std::uint64_t>(settings.contract))
      .add(settings.lanes)
      .add(settings.least_lanes)
      .add(settings.most_lanes)
      .add(settings.slot_bytes)
      .add(settings.slot_count)
      .add(settings.gpudirect)
      .add(to_string(settings.wire))
      .value();
}

Status fill_device_info(int device, DeviceInfo& mine) {
  mine.peer = this_process();
  int devices = 0;
  TUTTI_RETURN_IF_ERROR(exec::cuda_status(cudaGetDeviceCount(&devices), "counting CUDA devices"));
  if (device < 0 || device >= devices) {
    return Error{Code::kInvalidArgument,
                 fmt::format("there is no device {}; this process sees {}", device, devices)};
  }
  TUTTI_TRY([[maybe_unused]] const CUcontext context, exec::context_of(device));
  mine.capability = exec::capability_of(device);
  const std::string what = fmt::format("asking device {} for its identity", device);
  TUTTI_RETURN_IF_ERROR(
      exec::cuda_status(cudaDeviceGetPCIBusId(mine.bus, sizeof mine.bus - 1, device), what));
  if (exec::cuda_driver().uuid != nullptr)
    TUTTI_RETURN_IF_ERROR(exec::driver_status(exec::cuda_driver().uuid(&mine.uuid, device), what));
  return exec::cuda_status(
      cudaDeviceGetAttribute(&mine.multiprocessors, cudaDevAttrMultiProcessorCount, device), what);
}

/// The mesh's shape, alike on all ranks.
exec::CudaMeshOptions shape_of(const Settings& settings, const std::vector<int>& device_of,
                               int multiprocessors) {
  planner::CommunicatorDevices devices{multiprocessors, device_of.size()};
  for (const int device : device_of) {
    const auto ranks = std::count(device_of.begin(), device_of.end(), device);
    devices.most_on_one = std::max(devices.most_on_one, static_cast<std::size_t>(ranks));
  }
  const planner::CommunicatorShape shape = planner::communicator_shape(devices, settings);
  exec::CudaMeshOptions options;
  options.lanes = shape.lanes;
  options.slot_count = shape.slot_count;
  options.slot_bytes = shape.slot_bytes;
  options.queues = shape.queues;
  options.message_blocks = shape.message_blocks;
  options.area_bytes = kShape.eager_area_bytes;
  options.threads = kShape.block_threads;
  options.timeout = settings.timeout;
  return options;
}

struct Memory {
  ExchangedStatus status;
  exec::CudaMeshHandle handle;
};

/// The control communicator's: what users set is for devices, and only small things go by it.
Settings control_settings(const Settings& settings) {
  Settings own;
  own.timeout = settings.timeout;
  own.spin = settings.spin;
  own.log = settings.log;
  own.transport = settings.transport;
  own.groups = settings.groups;
  own.weights = settings.weights;
  own.net_interfaces = settings.net_interfaces;
  own.rdma_devices = settings.rdma_devices;
  own.rdma_gid_index = settings.rdma_gid_index;
  own.rdma_traffic_class = settings.rdma_traffic_class;
  own.rdma_service_level = settings.rdma_service_level;
  own.tuning = "off";
  own.slot_bytes = 4096;
  own.slot_count = 2;
  return own;
}

/// The control communicator of ranks that meet at a rendezvous. Collective.
Result<Communicator> make_control(Rank me, int rank_count, const Settings& settings,
                                  Rendezvous& rendezvous, std::string_view name) {
  const Settings own = control_settings(settings);
  TUTTI_TRY(auto state, make_state({me, rank_count, own, true}, rendezvous, name));
  return Insides::made_of(std::move(state));
}

/// Which devices are the same, from 0 on; `hosts` as planner::Hosts::of.
std::vector<int> devices_of(const std::vector<DeviceInfo>& all, const std::vector<int>& hosts) {
  std::vector<int> device_of;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::size_t first = 0;
    while (!same_device(all[first], all[rank]) || (!hosts.empty() && hosts[first] != hosts[rank]))
      ++first;
    device_of.push_back(first < rank        ? device_of[first]
                        : device_of.empty() ? 0
                                            : *std::ranges::max_element(device_of) + 1);
  }
  return device_of;
}

/// That of all devices; 0: they differ.
int capability_of(const std::vector<DeviceInfo>& all) {
  const int first = all.front().capability;
  const bool alike =
      std::ranges::all_of(all, [first](const DeviceInfo& one) { return one.capability == first; });
  return alike ? first : 0;
}

/// The mesh's options, for this rank.
exec::CudaMeshOptions mesh_options(DeviceRank& self, int multiprocessors,
                                   std::size_t longest_slot) {
  planner::DeviceMachine& machine = self.machine;
  exec::CudaMeshOptions options = shape_of(self.settings, machine.device_of, multiprocessors);
  if (longest_slot != 0)
    options.slot_bytes =
        std::min(options.slot_bytes, longest_slot / planner::kSlotGrain * planner::kSlotGrain);
  machine.lanes = options.lanes;
  machine.slot_bytes = options.slot_bytes;
  machine.slots = static_cast<int>(options.slot_count);
  machine.eager_bytes = options.lanes * options.area_bytes / 2;  // Half of an area are flags.
  // The mesh knows other devices only by being other ones.
  const auto me = self.index();
  const int own = machine.device_of[me];
  for (std::size_t rank = 0; rank < machine.device_of.size(); ++rank) {
    const int other = machine.device_of[rank];
    options.devices.push_back(other == own ? self.device : -1 - other);
    options.staged.push_back(machine.link(me, rank) == planner::DeviceLink::kHost);
    options.remote.push_back(machine.link(me, rank) == planner::DeviceLink::kNetwork);
  }
  machine.flagged = options.more = planner::flagged_rings(machine);
  return options;
}

/// Joins hosts, by the transport that joins them in the control communicator. Collective.
Status open_network(DeviceRank& self, const Transport& transport, std::span<const Peer> peers,
                    const std::vector<DeviceInfo>& all, exec::CudaMeshOptions& options) {
  exec::CudaNetworkOptions asked;
  asked.transport = &transport;
  asked.remote = options.remote;
  asked.device = self.device;
  asked.opening = {
      .me = self.me.value,
      .peers = peers,
      .rank = self.me.value,
      .config = exec::CudaNetwork::config(peers.size(), options.lanes, options.slot_count,
                                          options.slot_bytes),
      .net_interfaces = self.settings.net_interfaces,
      .rdma_devices = self.settings.rdma_devices,
      .rdma_gid_index = self.settings.rdma_gid_index,
      .rdma_marks = {self.settings.rdma_traffic_class, self.settings.rdma_service_level},
      .nic_paths = nic_paths_of(self.settings, all),
      .exchange = exchange_over(self.control),
      .deadline = Deadline::after(self.settings.timeout),
      .near_waits = false};
  TUTTI_RETURN_IF_ERROR(choose_gpudirect(self, transport, asked.opening));
  TUTTI_TRY(self.between_hosts.network, exec::CudaNetwork::open(std::move(asked)));
  self.between_hosts.gpudirect.close();
  options.network = self.between_hosts.network->region();
  return ok();
}

/// Makes this rank's part of the mesh.
Status make_mesh(DeviceRank& self, exec::CudaMeshOptions options, Memory& mine) {
  TUTTI_TRY(self.mesh, exec::CudaMesh::create(std::move(options), self.me.value));
  TUTTI_TRY(mine.handle, self.mesh->rings().handle());
  return ok();
}

/// This rank's device, and whether ranks and settings can go together.
Status check_in(DeviceRank& self, DeviceInfo& mine) {
  TUTTI_RETURN_IF_ERROR(check_settings(self.settings));
  TUTTI_RETURN_IF_ERROR(fill_device_info(self.device, mine));
  TUTTI_TRY(self.sample.memory, exec::CudaMemory::allocate_for_peers(self.device, kSampleBytes));
  TUTTI_TRY(self.sample.exported,
            exec::CudaExport::of(self.device, self.sample.memory.data(), kSampleBytes));
  mine.sample = self.sample.exported.name();
  if (static_cast<std::size_t>(self.rank_count) > kMostDeviceRanks) {
    return Error{Code::kUnsupported, fmt::format("{} ranks; devices of up to {} can be joined",
                                                 self.rank_count, kMostDeviceRanks)};
  }
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    TUTTI_TRY(const bool allowed, planner::eager_allowed(collective, self.machine));
    if (collective == Collective::kAllReduce) self.eager = allowed;
  }
  return ok();
}

/// The devices of all ranks, once all have agreed on the settings.
Result<std::vector<DeviceInfo>> meet(DeviceRank& self) {
  DeviceInfo mine;
  const Status status = check_in(self, mine);
  mine.settings = hash_of(self.settings);
  std::random_device random;
  mine.token = std::uint64_t{random()} << 32 | random();
  TUTTI_TRY(auto all, exchange_status(self.control, mine, status));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].settings == mine.settings) continue;
    return Error{Code::kMismatch,
                 fmt::format("rank {} has other settings; TUTTI_ALGORITHM, TUTTI_CONTRACT, "
                             "TUTTI_LANES, TUTTI_SLOT_BYTES, TUTTI_SLOT_COUNT, TUTTI_GPUDIRECT and "
                             "TUTTI_WIRE must be alike on all ranks",
                             rank),
                 self.me, Rank{static_cast<int>(rank)}};
  }
  return all;
}

/// Which ranks are on which hosts, as the control communicator joins them. Where somebody wants to
/// see a network though there is one host, each rank is a host of its own, or each group.
void learn_hosts(DeviceRank& self, std::span<const Peer> peers) {
  const PlanSelector& selector = *self.host().selector;
  planner::DeviceMachine& machine = self.machine;
  machine.hosts = selector.inputs().hosts;
  machine.groups.sizes = selector.settings().groups;
  machine.weights = selector.settings().weights;
  const auto& groups = self.settings.groups;
  if (machine.hosts.of.empty() || groups.empty() || !net::on_one_host(peers)) return;
  for (std::size_t rank = 0; rank < peers.size(); ++rank)
    machine.hosts.of[rank] = static_cast<int>(rank) / groups.front();
}

}  // namespace

Result<std::unique_ptr<DeviceCommunicator::State>> join_devices(Communicator control,
                                                                const DeviceJoin& how) {
  // In a group what ranks tell each other would only be noted, and come after its memory is gone.
  if (in_group())
    return Error{Code::kInvalidArgument,
                 "making a communicator of devices: this thread has a group open; end it first",
                 control.rank()};
  const auto start = std::chrono::steady_clock::now();
  const RelaxedCapture relaxed;
  const exec::OnDevice on(how.device);
  sweep_departed();
  auto state = std::make_unique<DeviceCommunicator::State>(std::move(control));
  DeviceRank& self = state->rank;
  const std::stop_callback on_stop(how.stop, [&joined = self.control] {
    joined.abort("rank " + std::to_string(joined.rank().value) + " gave the communicator up");
  });
  self.device = how.device;
  self.settings = how.settings;
  self.machine.overrides = self.settings.algorithm;

  TUTTI_TRY(const auto all, meet(self));
  self.token = all[0].token;
  std::vector<Peer> peers;
  for (const DeviceInfo& one : all) peers.push_back(one.peer);
  learn_hosts(self, peers);
  self.machine.device_of = devices_of(all, self.machine.hosts.of);
  TUTTI_RETURN_IF_ERROR(learn_links(self, all));
  int multiprocessors = all[0].multiprocessors;
  for (const DeviceInfo& one : all)
    multiprocessors = std::min(multiprocessors, one.multiprocessors);
  TUTTI_TRY(const Transport* transport, choose_transport(peers, self.host().transport));
  self.machine.capability = capability_of(all);
  exec::CudaMeshOptions options = mesh_options(self, multiprocessors, transport->longest_slot);
  self.machine.by_nics = transport->cards != nullptr;
  const bool any_remote = std::ranges::find(options.remote, true) != options.remote.end();
  Memory memory;
  Status status = any_remote ? open_network(self, *transport, peers, all, options) : ok();
  if (status) status = make_mesh(self, std::move(options), memory);
  TUTTI_TRY(const auto memories, exchange_status(self.control, memory, status));
  TUTTI_RETURN_IF_ERROR(learn_graph(self, all, how.known));
  std::vector<exec::CudaMeshHandle> handles;
  for (const Memory& one : memories) handles.push_back(one.handle);
  status = self.mesh->rings().join(handles);
  if (status && self.network() != nullptr)
    status = self.network()->start(
        [mesh = self.mesh.get(), me = self.me.value] { mesh->rings().abort(me); });
  if (status) status = state->order.make();
  if (status) status = state->record.make();
  if (status) status = state->signals.make(self.mesh->rings(), self.me.value);
  if (status && self.settings.algorithm.find(planner::kCopyEnginesName) != std::string::npos)
    status = state->copies.make(state->signals, self.me.value, self.rank_count);
  if (status) status = Watcher::instance().add(state->health);
  TUTTI_RETURN_IF_ERROR(exchange_status(self.control, status));
  make_multicast(self, state->memory);
  // Whether ranks can go on: what is in the way of multicast memory alone is no error.
  TUTTI_RETURN_IF_ERROR(exchange_status(self.control, ok()));
  self.machine.no_multicast = state->memory.multicast().why_not;
  self.created_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  arrive(self.token);
  dump_topology(self, all);
  return state;
}

Result<DeviceCommunicator> DeviceCommunicator::create(Rendezvous& rendezvous, Rank me,
                                                      int rank_count, int device,
                                                      const Settings& settings,
                                                      std::string_view name) {
  TUTTI_TRY(auto control, make_control(me, rank_count, settings, rendezvous, name));
  TUTTI_TRY(auto state, join_devices(std::move(control), {device, settings}));
  return DeviceCommunicator(std::move(state));
}

Result<DeviceCommunicator> DeviceCommunicator::create(const UniqueId& id, Rank me, int rank_count,
                                                      int device, const Settings& settings) {
  TUTTI_TRY(const auto rendezvous, unique_id_rendezvous(id, Deadline::after(settings.timeout)));
  return create(*rendezvous, me, rank_count, device, settings);
}

Result<DeviceCommunicator> DeviceCommunicator::from_environment() {
  TUTTI_TRY(const auto settings, Settings::from_environment());
  TUTTI_TRY(const auto launch, detect_launch());
  int devices = 0;
  TUTTI_RETURN_IF_ERROR(exec::cuda_status(cudaGetDeviceCount(&devices), "counting CUDA devices"));
  if (launch.launcher.empty()) return create(*memory_rendezvous(), Rank{0}, 1, 0, settings);
  TUTTI_TRY(const auto rendezvous, launch_rendezvous(launch, Deadline::after(settings.timeout)));
  return create(*rendezvous, launch.rank, launch.rank_count,
                launch.local_rank % std::max(devices, 1), settings);
}

Result<std::vector<DeviceCommunicator>> DeviceCommunicator::in_process(std::span<const int> devices,
                                                                       const Settings& settings) {
  if (devices.empty() || devices.size() > kMostDeviceRanks) {
    return Error{Code::kInvalidArgument, fmt::format("in_process: {} devices; 1 to {} are possible",
                                                     devices.size(), kMostDeviceRanks)};
  }
  const auto rendezvous = memory_rendezvous();
  const int ranks = static_cast<int>(devices.size());
  std::vector<std::optional<Result<DeviceCommunicator>>> made(devices.size());
  Status threads_run;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      auto thread = start_thread<std::jthread>("in_process: a rank's thread", [&, rank] {
        const auto at = static_cast<std::size_t>(rank);
        made[at].emplace(create(*rendezvous, Rank{rank}, ranks, devices[at], settings));
      });
      if (!thread) {
        (void)rendezvous->fail(thread.error());  // The other ranks wait for this one.
        threads_run = std::move(thread.error());
        break;
      }
      threads.push_back(*std::move(thread));
    }
  }
  if (!threads_run) return std::move(threads_run.error());
  std::vector<DeviceCommunicator> communicators;
  for (auto& result : made) {
    if (!*result) return std::move(result->error());
    communicators.push_back(*std::move(*result));
  }
  return communicators;
}

Result<DeviceCommunicator> DeviceCommunicator::split(int color, int key) {
  TUTTI_TRY(auto part, state_->rank.control.split(color, key));
  const DeviceRank& self = state_->rank;
  TUTTI_TRY(auto state, join_devices(std::move(part), {self.device, self.settings, self.topology}));
  return DeviceCommunicator(std::move(state));
}

}  // namespace tutti
