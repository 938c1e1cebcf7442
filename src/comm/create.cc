// How a communicator comes to be: from a rendezvous, a unique id, the environment, threads, a
// split.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <thread>

#include <fmt/format.h>

#include "base/cpus.h"
#include "base/log.h"
#include "base/settings/settings_table.h"
#include "base/threads.h"
#include "comm/meet.h"
#include "comm/nic_paths.h"
#include "comm/watching.h"
#include "planner/planner.h"
#include "transport/transport.h"

namespace tutti {
namespace {

// Images and connections have not been tried with more.
constexpr int kMostCommunicatorRanks = 4096;

/// The plans that users wrote. A part of a communicator has those of the whole.
Result<PlanSelector::Plans> plans_for(int rank_count, const Settings& settings,
                                      const Communicator::State* parent) {
  const std::size_t weights = settings.weights.size();
  if (weights != 0 && weights != static_cast<std::size_t>(rank_count)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("TUTTI_WEIGHTS has {} weights for {} ranks; give one for each rank",
                             weights, rank_count)};
  }
  if (parent != nullptr) return parent->selector->plans();
  TUTTI_TRY(auto loaded, planner::PlanFiles::load(settings.plan, settings.contract));
  return PlanSelector::Plans(std::make_shared<const planner::PlanFiles>(std::move(loaded)));
}

/// By rank, its process and host, for messages.
std::vector<std::string> places_of(std::span<const Peer> peers) {
  std::vector<std::string> places;
  for (const Peer& peer : peers) {
    const std::string_view host(peer.host_name, strnlen(peer.host_name, sizeof(peer.host_name)));
    places.push_back(fmt::format("pid {} on {}", peer.pid, host.empty() ? "?" : host));
  }
  return places;
}

/// What the flight record tells of this rank. The random number of rank 0's process, and how many
/// communicators that has begun, are the communicator's name.
exec::flight::About flight_of(const Communicator::State& state, std::span<const Peer> peers,
                              std::uint64_t serial) {
  const Peer& first = peers.front();
  const Peer& mine = peers[static_cast<std::size_t>(state.me.value)];
  const auto launch = detect_launch();
  const auto local = std::count_if(peers.begin(), peers.end(),
                                   [&](const Peer& peer) { return on_one_machine(mine, peer); });
  return {.communicator = {first.process[0], first.process[1] + serial},
          .rank = state.me.value,
          .ranks = state.rank_count,
          .local_ranks = static_cast<int>(local),
          .devices = state.devices,
          .transport = state.transport,
          .host = std::string(mine.host_name, strnlen(mine.host_name, sizeof(mine.host_name))),
          .job = launch ? launch->job : std::string(),
          .folder = state.settings.flight,
          .trace = state.settings.trace};
}

std::vector<Peer> of_my_machine(std::span<const Peer> peers, Rank me) {
  std::vector<Peer> here;
  const Peer& mine = peers[static_cast<std::size_t>(me.value)];
  std::copy_if(peers.begin(), peers.end(), std::back_inserter(here),
               [&](const Peer& peer) { return on_one_machine(mine, peer); });
  return here;
}

Result<RegionConfig> region_config(int rank_count, const Settings& settings,
                                   std::span<const Peer> peers, const Transport& transport,
                                   const PlanSelector& selector) {
  const bool one_host = selector.inputs().hosts.of.empty();
  RegionConfig config = one_host ? Region::default_config(rank_count)
                                 : Region::network_config(rank_count, transport.longest_slot);
  if (one_host && rank_count <= shared_cpus(peers)) config.calls = kCallsIfCpuEach;
  if (settings.slot_bytes != 0)
    config.slot_bytes = (settings.slot_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  if (settings.slot_count > 0) {
    config.slot_count = static_cast<std::uint32_t>(settings.slot_count);
    config.multicast_slots = config.slot_count;
  }
  TUTTI_TRY(config.lanes,
            planner::lanes_needed(rank_count, selector.settings(), selector.inputs()));
  const auto written = static_cast<std::uint32_t>(selector.plans()->lanes(rank_count));
  const auto repeated = static_cast<std::uint32_t>(std::max(settings.lanes, 1));
  if (written * repeated > planner::kMostLanes) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("TUTTI_LANES={}: a plan of TUTTI_PLAN has {} lanes, and a communicator "
                    "at most {}",
                    repeated, written, planner::kMostLanes)};
  }
  config.lanes = std::max(config.lanes, written * repeated);
  for (const Peer& peer : peers) {
    if (peer.heavy_barrier == 0) config.fence = 1;
  }
  return config;
}

/// If a table may hold for these hosts, all ranks exchange what their hosts are. They all decide
/// alike, as their tables are alike.
Result<std::shared_ptr<PlanSelector>> make_selector(const Settings& settings,
                                                    const PlanSelector::Plans& plans,
                                                    std::span<const Peer> peers,
                                                    const Transport& transport,
                                                    const std::shared_ptr<const Tuning>& tuning,
                                                    const Exchange& exchange) {
  planner::Hosts hosts{hosts_of(peers, transport), transport.network};
  TunedHosts tuned;
  const auto may_hold = [&](const planner::TuningTable& table) {
    return table.key.hosts == hosts.of && table.key.transport == transport.name;
  };
  if (!hosts.of.empty() && std::any_of(tuning->tables.begin(), tuning->tables.end(), may_hold)) {
    TUTTI_TRY(tuned, meet_hosts(hosts.of, exchange));
  }
  return std::make_shared<PlanSelector>(settings, plans, static_cast<int>(peers.size()),
                                        shared_cpus(peers), tuning, std::string(transport.name),
                                        std::move(hosts), tuned);
}

Status check_place(Rank me, int rank_count) {
  if (rank_count >= 1 && rank_count <= kMostCommunicatorRanks && me.value >= 0 &&
      me.value < rank_count)
    return ok();
  return Error{Code::kInvalidArgument,
               fmt::format("rank {} of {} ranks: a rank is in 0 .. count - 1, a count in 1 .. {}",
                           me.value, rank_count, kMostCommunicatorRanks)};
}

/// What the graph of the hosts says; a part of a communicator has that of the whole.
Status learn_topology(const CommunicatorConfig& comm_config, std::span<const Peer> peers,
                      TopologySource source, const Exchange& exchange, PlanSelector& selector) {
  HostTopology topology;
  if (comm_config.parent != nullptr) {
    topology = comm_config.parent->selector->topology();
  } else if (source == TopologySource::kProbed && !selector.inputs().hosts.of.empty()) {
    topology.why_not = "ranks are on several hosts; TUTTI_TOPOLOGY=FILE says what joins them";
  } else if (source != TopologySource::kNone) {
    TUTTI_TRY(topology, meet_topology(source, comm_config.settings, comm_config.me, exchange));
  }
  selector.set(std::move(topology), peers);
  return ok();
}

/// Warns of devices that were chosen for a transport that is not used.
void warn_of_vain(const Settings& settings, const Transport& used) {
  if (settings.rdma_devices.empty() || used.name == std::string_view("verbs")) return;
  log::warn(
      log::Part::kNet, "TUTTI_RDMA_DEVICES={} is not used: {} joins the hosts{}",
      settings.rdma_devices, used.name,
      settings.transport.empty() ? ", as not all ranks have such devices" : ", by TUTTI_TRANSPORT");
}

/// What a newcomer needs to know, in one line.
void say_joined(const Communicator::State& state, std::span<const Peer> peers) {
  if (!log::enabled(log::Part::kJoin, log::Level::kInfo)) return;
  std::size_t hosts = 0;  // Ranks that are the first of their host.
  for (std::size_t i = 0; i < peers.size(); ++i) {
    hosts += std::none_of(peers.begin(), peers.begin() + static_cast<std::ptrdiff_t>(i),
                          [&](const Peer& peer) { return on_one_machine(peer, peers[i]); });
  }
  log::info(log::Part::kJoin,
            "version {}: rank {} of {} on {} host{} by {}, {} ranks on {} CPUs here, {:.2f} MiB "
            "shared, joined in {:.1f} ms",
            TUTTI_VERSION, state.me.value, state.rank_count, hosts, hosts == 1 ? "" : "s",
            state.transport, state.node_ranks, state.cpus,
            static_cast<double>(state.executor->endpoint().shared_bytes()) / (1 << 20),
            state.created_ms);
}

/// What a transport is given; it looks at `peers`.
Opening opening_of(const CommunicatorConfig& comm_config, std::span<const Peer> peers,
                   const RegionConfig& config, const Exchange& exchange) {
  const Settings& settings = comm_config.settings;
  return {.me = comm_config.me.value,
          .peers = peers,
          .rank = comm_config.me.value,
          .config = config,
          .net_interfaces = settings.net_interfaces,
          .rdma_devices = settings.rdma_devices,
          .rdma_gid_index = settings.rdma_gid_index,
          .rdma_marks = {settings.rdma_traffic_class, settings.rdma_service_level},
          .nic_paths = nic_paths_of(peers),
          .exchange = exchange,
          .deadline = Deadline::after(settings.timeout),
          .look = comm_config.look};
}

Result<std::unique_ptr<Communicator::State>> make_parts(const CommunicatorConfig& comm_config,
                                                        const Exchange& exchange) {
  const Rank me = comm_config.me;
  const int rank_count = comm_config.rank_count;
  const Settings& settings = comm_config.settings;
  const Communicator::State* const parent = comm_config.parent;
  const auto start = std::chrono::steady_clock::now();
  TUTTI_RETURN_IF_ERROR(check_place(me, rank_count));
  // If only this rank can't read something, the others must not wait: they have to hear of it.
  const Status usable = parent != nullptr ? ok() : check_settings(settings);
  auto plans = plans_for(rank_count, settings, parent);
  auto tuning = parent != nullptr ? parent->selector->tuning() : nullptr;
  const auto met = meet(comm_config, plans && usable ? (*plans)->hash() : ~0ULL, exchange, tuning);
  if (!usable) return usable.error();
  if (!plans) return std::move(plans.error());
  if (!met) return met.error();
  const auto& [peers, origins, source, serial] = *met;
  TUTTI_TRY(const Transport* transport, choose_transport(peers, settings.transport));
  if (parent == nullptr && rank_count > 1)
    log::set_rank(transport->name == std::string_view("in_process") ? -1 : me.value);
  TUTTI_TRY(const auto selector,
            make_selector(settings, *plans, peers, *transport, tuning, exchange));
  TUTTI_RETURN_IF_ERROR(learn_topology(comm_config, peers, source, exchange, *selector));
  TUTTI_TRY(const auto config, region_config(rank_count, settings, peers, *transport, *selector));
  if (me.value == 0 && !selector->inputs().hosts.of.empty()) warn_of_vain(settings, *transport);
  selector->set(config);
  TUTTI_TRY(auto endpoint, transport->open(opening_of(comm_config, peers, config, exchange)));
  selector->set(endpoint->network_cost());
  auto state = std::make_unique<Communicator::State>();
  state->me = me;
  state->rank_count = rank_count;
  state->settings = settings;
  state->transport = transport->name;
  state->devices = comm_config.devices;
  for (std::size_t rank = 0; rank < peers.size(); ++rank)
    state->identities.push_back({std::to_array(peers[rank].process), origins[rank]});
  const std::vector<Peer> here = of_my_machine(peers, me);
  state->node_ranks =
      std::max(parent != nullptr ? parent->node_ranks : 0, static_cast<int>(here.size()));
  state->selector = selector;
  state->cpus = shared_cpus(here);
  exec::HostExecutor::Options options;
  options.wait = wait_policy(state->node_ranks, state->cpus, settings.spin);
  options.timeout = settings.timeout;
  options.adapt = settings.adapt;
  TUTTI_RETURN_IF_ERROR(selector->set_limits(options));
  options.plans = selector;
  // Once the ranks' buffers no longer fit the cache: decision 0026.
  options.stream_from_bytes = last_level_cache_bytes() / 8 * 5;
  options.most_unexpected = settings.unexpected_bytes;
  options.machine_ranks = static_cast<int>(here.size());
  options.places = places_of(peers);
  state->flight = options.flight = flight_of(*state, peers, serial);
  state->executor =
      std::make_unique<exec::HostExecutor>(std::move(endpoint), me.value, std::move(options));
  state->queue = std::make_unique<CallQueue>(*state->executor);
  state->created_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  say_joined(*state, peers);
  return state;
}

}  // namespace

Result<std::unique_ptr<Communicator::State>> make_state(const CommunicatorConfig& comm_config,
                                                        const Exchange& exchange) {
  // Mostly no memory or no thread: an error like any other, of which the other ranks must learn.
  return walled("joining", [&] { return make_parts(comm_config, exchange); });
}

Result<std::unique_ptr<Communicator::State>> make_state(const CommunicatorConfig& comm_config,
                                                        Rendezvous& rendezvous,
                                                        std::string_view name) try {
  // With one deadline for all steps, the steps after a late rank would have no time, and blame a
  // rank that is not late.
  const Exchange through = [&, prefix = std::string(name)](std::string_view phase,
                                                           std::span<const std::byte> mine) {
    return exchange(rendezvous, comm_config.me, comm_config.rank_count,
                    prefix + "/" + std::string(phase), mine,
                    Deadline::after(comm_config.settings.timeout));
  };
  const Entered entered(rendezvous, comm_config.me);
  auto state = make_state(watching(comm_config, rendezvous, name), through);
  if (state) return state;
  if (state.error().code == Code::kPeerFailed) {
    // A peer ends, too, when it has heard of another rank's error, which says more.
    const auto told =
        rendezvous.get(std::string(name) + "/why", Deadline::after(std::chrono::milliseconds(1)));
    const bool says_more =
        !told && told.error().code != Code::kTimeout && told.error().code != Code::kPeerFailed;
    if (says_more) state = told.error();
  }
  if (state.error().rank.value < 0) state.error().rank = comm_config.me;
  state.error().peer = known_rank(state.error().peer, comm_config.rank_count);
  // Other ranks may have no error and wait for this one, so tell them. The first error told counts.
  // If telling fails, they wait until their deadlines.
  (void)rendezvous.fail(state.error());
  return state;
} catch (const std::exception& thrown) {
  Error error = thrown_error("joining", thrown);
  error.rank = error.peer = comm_config.me;
  (void)walled("joining", [&] { return rendezvous.fail(error); });
  return error;
}

Result<Communicator> Communicator::create(Rendezvous& rendezvous, Rank me, int rank_count,
                                          const Settings& settings, std::string_view name) {
  return walled("create", [&]() -> Result<Communicator> {
    TUTTI_TRY(auto state, make_state({me, rank_count, settings}, rendezvous, name));
    return Communicator(std::move(state));
  });
}

Result<Communicator> Communicator::create(const UniqueId& id, Rank me, int rank_count,
                                          const Settings& settings) {
  return walled("create", [&]() -> Result<Communicator> {
    TUTTI_TRY(const auto rendezvous, unique_id_rendezvous(id, Deadline::after(settings.timeout)));
    return create(*rendezvous, me, rank_count, settings);
  });
}

Result<Communicator> Communicator::from_environment() {
  return walled("from_environment", []() -> Result<Communicator> {
    TUTTI_TRY(const auto settings, Settings::from_environment());
    TUTTI_TRY(const auto launch, detect_launch());
    if (launch.launcher.empty()) return create(*memory_rendezvous(), Rank{0}, 1, settings);
    TUTTI_TRY(const auto rendezvous, launch_rendezvous(launch, Deadline::after(settings.timeout)));
    return create(*rendezvous, launch.rank, launch.rank_count, settings);
  });
}

namespace {

Result<std::vector<Communicator>> make_in_process(int rank_count, const Settings& settings) {
  if (rank_count < 1 || rank_count > kMostCommunicatorRanks) {
    return Error{Code::kInvalidArgument,
                 "in_process: a rank count is in 1 .. " + std::to_string(kMostCommunicatorRanks)};
  }
  const auto rendezvous = memory_rendezvous();
  std::vector<std::optional<Result<Communicator>>> made(static_cast<std::size_t>(rank_count));
  Status threads_run;
  {
    std::vector<std::jthread> threads(made.size());
    for (int rank = 0; rank < rank_count; ++rank) {
      auto thread = start_thread<std::jthread>("in_process: a rank's thread", [&, rank] {
        made[static_cast<std::size_t>(rank)].emplace(
            Communicator::create(*rendezvous, Rank{rank}, rank_count, settings));
      });
      if (!thread) {
        (void)rendezvous->fail(thread.error());  // The other ranks wait for this one.
        threads_run = std::move(thread.error());
        break;
      }
      threads[static_cast<std::size_t>(rank)] = *std::move(thread);
    }
  }
  if (!threads_run) return std::move(threads_run.error());
  std::vector<Communicator> communicators;
  for (auto& result : made) {
    if (!*result) return std::move(result->error());
    communicators.push_back(*std::move(*result));
  }
  return communicators;
}

}  // namespace

Result<std::vector<Communicator>> Communicator::in_process(int rank_count,
                                                           const Settings& settings) {
  return walled("in_process", [&] { return make_in_process(rank_count, settings); });
}

namespace {

/// A part that a split makes. Errors of the part name its own ranks; the caller knows the ranks of
/// the whole.
struct Part {
  int color;
  const std::vector<int>& ranks;  // By rank of the part, the rank in the whole.
  Rank me;                        // This rank in the whole.

  /// Why a member has given nothing.
  Error failed_at(std::size_t member, const SetUp& theirs) const {
    constexpr std::string_view kFailed = "the set-up failed at rank ";
    Error error = theirs.error.value_or(Error{Code::kPeerFailed, "it does not say why"});
    if (error.what.starts_with(kFailed)) return error;  // It passes on another rank's failure.
    error.what =
        fmt::format("{}{} of the parent communicator: {}", kFailed, ranks[member], error.what);
    if (error.peer.value < 0) error.peer = Rank{static_cast<int>(member)};
    return error;
  }
  /// `of_whole`: the whole has failed, and ranks in `error` are its own.
  Error error(Error error, bool of_whole) const {
    constexpr std::size_t kMostNamed = 8;
    const std::size_t named = std::min(ranks.size(), kMostNamed);
    error.what = fmt::format(
        "split: color {}, whose {} ranks are {}{} of the parent communicator: {}", color,
        ranks.size(),
        fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(named), ", "),
        named < ranks.size() ? ", ..." : "", error.what);
    const int peer = error.peer.value;
    if (!of_whole && peer >= 0 && static_cast<std::size_t>(peer) < ranks.size()) {
      error.peer = Rank{ranks[static_cast<std::size_t>(peer)]};
      error.what +=
          fmt::format(" (rank {} of the part is rank {} of the parent)", peer, error.peer.value);
    }
    error.rank = me;
    return error;
  }
};

}  // namespace

Settings settings_of_part(const Settings& whole, const std::vector<int>& ranks) {
  Settings settings = whole;
  settings.weights.clear();
  for (const int rank : ranks) {
    if (!whole.weights.empty())
      settings.weights.push_back(whole.weights[static_cast<std::size_t>(rank)]);
  }
  return settings;
}

Communicator::State& Insides::of(const Communicator& comm) { return *comm.state_; }

Communicator Insides::made_of(std::unique_ptr<Communicator::State> state) {
  return Communicator(std::move(state));
}

Result<Communicator> Communicator::split(int color, int key) try {
  TUTTI_RETURN_IF_ERROR(usable("split"));
  if (in_group())  // Its exchanges would only be noted, and end after their memory.
    return Error{Code::kInvalidArgument, "split: this thread has a group open; end it", rank()};
  struct Choice {
    int color, key;
  };
  const Choice mine{color, key};
  std::vector<Choice> all(static_cast<std::size_t>(rank_count()));
  TUTTI_RETURN_IF_ERROR(all_gather(&mine, all.data(), sizeof(Choice), DataType::kUint8));
  const auto key_of = [&](int member) { return all[static_cast<std::size_t>(member)].key; };
  std::vector<int> ranks;  // By rank of the part, the rank in the whole.
  for (int member = 0; member < rank_count(); ++member) {
    if (all[static_cast<std::size_t>(member)].color == color) ranks.push_back(member);
  }
  std::ranges::stable_sort(ranks, {}, key_of);
  const Rank me{static_cast<int>(std::ranges::find(ranks, rank().value) - ranks.begin())};
  const Part part{color, ranks, rank()};
  bool of_whole = false;  // The whole has failed: ranks in the error are its own.
  // Set-up runs over the parent, all colors at once: every rank takes part in every exchange.
  const Exchange through = [&](std::string_view,
                               std::span<const std::byte> bytes) -> Result<std::vector<Bytes>> {
    auto told = exchange_over(*this, bytes);
    if (!told) return of_whole = true, std::move(told.error());
    std::vector<Bytes> members;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      SetUp& theirs = (*told)[static_cast<std::size_t>(ranks[i])];
      if (!theirs.bytes) return part.failed_at(i, theirs);
      members.push_back(*std::move(theirs.bytes));
    }
    return members;
  };
  const Settings settings = settings_of_part(state_->settings, ranks);
  // If a rank has gone, the ranks of its part find out and tell all.
  const auto look = [&]() -> Status {
    // acquire: as in State::run. A rank in a call looks at its peers there.
    const bool is_free = state_->queue->pending.load(std::memory_order_acquire) == 0;
    Status found = is_free ? state_->executor->look_at(ranks, "split") : ok();
    if (!found) of_whole = true;
    return found;
  };
  auto state = walled("split", [&] {
    return make_state(
        {me, static_cast<int>(ranks.size()), settings, state_->devices, state_.get(), look},
        through);
  });
  // Colors that go by another transport may have more to exchange: all end together.
  for (bool all_done = false; !all_done;) {
    auto told = end_exchange_over(*this, state ? nullptr : &state.error());
    if (!told)
      return part.error(std::move(state ? told.error() : state.error()), state || of_whole);
    all_done = std::none_of(told->begin(), told->end(),
                            [](const SetUp& one) { return one.bytes.has_value(); });
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const SetUp& theirs = (*told)[static_cast<std::size_t>(ranks[i])];
      if (state && theirs.error) state = part.failed_at(i, theirs);
    }
  }
  if (color < 0)
    return Error{Code::kInvalidArgument, "split: a negative color belongs to no communicator",
                 rank()};
  if (!state) return part.error(std::move(state.error()), of_whole);
  return Communicator(*std::move(state));
} catch (const std::exception& thrown) {
  return state_->ended_by("split", thrown);
}

}  // namespace tutti
