#include "cuda/comm/gpudirect.h"

#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cuda/comm/tell.h"
#include "topology/probe/same_root.h"

namespace tutti {
namespace {

using Cards = std::vector<std::string>;

const topology::FileTree* used_files = nullptr;

Result<Cards> near_cards(std::string_view bus, const Cards& cards) {
  if (used_files != nullptr) return topology::cards_below_root_of(*used_files, bus, cards);
  return topology::cards_below_root_of(*topology::disk_tree("/"), bus, cards);
}

struct Offer {
  Trouble trouble;
  Trouble without;  // Why this rank's slots are not to be apart, where that is no trouble.
};

/// Before anything is made: which cards are to be used, those near the device if there are any.
Status choose_cards(DeviceCommunicator::State& state, const Transport& transport,
                    const Opening& opening) {
  TUTTI_CHECK_OK(exec::CudaApart::check(state.device));
  TUTTI_TRY(Cards cards, transport.cards(opening));
  char bus[20] = {};
  TUTTI_CHECK_OK(exec::cuda_status(cudaDeviceGetPCIBusId(bus, sizeof bus - 1, state.device),
                                   "asking a device where it is"));
  auto near = near_cards(bus, cards);
  if (near) {
    cards = *std::move(near);
  } else if (state.settings.gpudirect == "auto") {
    return Error{near.error().code, near.error().what +
                                        ", so the way between them may be slow "
                                        "(TUTTI_GPUDIRECT=on takes it)"};
  }
  state.cards = fmt::format("{}", fmt::join(cards, ","));
  return ok();
}

/// Makes the memory, and tries whether the cards take it.
Status make(DeviceCommunicator::State& state, const Transport& transport, Opening& opening) {
  const std::vector<int>& hosts = state.machine.hosts.of;
  TUTTI_TRY(state.apart, exec::CudaApart::allocate(
                             state.device, apart_bytes(opening.config, hosts, state.me.value)));
  opening.apart = state.apart.description(hosts);
  opening.rdma_devices = state.cards;
  TUTTI_TRY(const Cards cards, transport.cards(opening));
  state.slots_away = fmt::format("in device memory (GPUDirect over {})", fmt::join(cards, ", "));
  return ok();
}

/// Whether all ranks can; if not, the words say which can't. An error where one has to.
Result<bool> all_can(DeviceCommunicator::State& state, const Status& mine) {
  Status trouble = ok();
  Offer offer;
  if (!mine && state.settings.gpudirect == "on") {
    trouble = Error{mine.error().code, "TUTTI_GPUDIRECT=on: " + mine.error().what, state.me};
    offer.trouble = Trouble(trouble);
  } else {
    offer.without = Trouble(mine);
  }
  TUTTI_TRY(auto offers, tell(state.control, offer, trouble));
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    Trouble& without = offers[rank].without;
    if (without.code == 0) continue;
    without.text[sizeof without.text - 1] = 0;
    state.slots_away = fmt::format("in pinned memory: rank {}: {}", rank, without.text);
    return false;
  }
  return true;
}

}  // namespace

void use_files(const topology::FileTree* files) { used_files = files; }

Status choose_apart(DeviceCommunicator::State& state, const Transport& transport,
                    Opening& opening) {
  if (state.settings.gpudirect == "off") {
    state.slots_away = "in pinned memory: TUTTI_GPUDIRECT=off";
    return ok();
  }
  if (transport.cards == nullptr) {
    const std::string why = fmt::format("{} gives no card access to devices", transport.name);
    state.slots_away = "in pinned memory: " + why;
    if (state.settings.gpudirect == "auto") return ok();
    return Error{Code::kUnsupported, "TUTTI_GPUDIRECT=on: " + why + ", verbs does", state.me};
  }
  TUTTI_TRY(bool all, all_can(state, choose_cards(state, transport, opening)));
  if (!all) return ok();
  TUTTI_TRY(all, all_can(state, make(state, transport, opening)));
  // What was made is kept: to free it would wait for all that the device does.
  if (all) return ok();
  opening.apart = {};
  opening.rdma_devices = state.settings.rdma_devices;
  return ok();
}

}  // namespace tutti
