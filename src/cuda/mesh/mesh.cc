#include "cuda/mesh/mesh.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cuda/driver/kernels.h"
#include "cuda/mesh/pages.h"
#include "cuda/mesh/suits.h"
#include "exec/lane.h"
#include "kernels/cuda/messages.h"
#include "plan/partition.h"

namespace tutti::exec {
namespace {

using cuda::LanePage;

Error invalid(const std::string& what) { return {Code::kInvalidArgument, "a CUDA mesh: " + what}; }

Status check_options(const CudaMeshOptions& options) {
  const std::size_t ranks = options.devices.size();
  if (ranks == 0 || ranks > cuda::kMostDeviceRanks) {
    return invalid(fmt::format("{} ranks; it has 1 to {}", ranks, cuda::kMostDeviceRanks));
  }
  if (options.lanes == 0 || options.slot_count == 0) return invalid("no lanes, or no slots");
  if (options.threads % cuda::kWarpLanes != 0 || options.threads == 0 ||
      options.threads > cuda::kMostThreads) {
    return invalid(std::to_string(options.threads) + " threads a block; a multiple of 32 up to " +
                   std::to_string(cuda::kMostThreads) + " is possible");
  }
  if (cuda::units_in_slot(options.format, options.slot_bytes, 32) == 0 ||
      options.slot_bytes % kCudaMeshLine != 0) {
    return invalid("slots of " + std::to_string(options.slot_bytes) +
                   " bytes; a multiple of 1024 is possible");
  }
  for (const cuda::RingSet& set : options.more) {
    if (set.format != cuda::SlotFormat::kSimple && set.lanes > 0 && set.lanes <= options.lanes &&
        cuda::units_in_slot(set.format, set.slot_bytes, 32) > 0 &&
        set.slot_bytes % kCudaMeshLine == 0)
      continue;
    return invalid(
        fmt::format("{} lanes of {} slots of {} bytes; packed slots and lines, up to {} lanes, and "
                    "a multiple of 1024 are possible",
                    set.lanes, cuda::to_string(set.format), set.slot_bytes, options.lanes));
  }
  if (options.area_bytes == 0 || options.area_bytes % kCudaMeshLine != 0) {
    return invalid("areas of " + std::to_string(options.area_bytes) +
                   " bytes; a multiple of 128 is possible");
  }
  return ok();
}

/// Whether all blocks of all ranks on a device can run at a time; of one device, or of all (-1).
/// What of that a mesh of one rank, or of all, takes.
Result<std::vector<CudaResidency>> find_residency(const CudaMeshOptions& options, int only) {
  std::map<int, std::size_t> blocks;
  for (const int device : options.devices) blocks[device] += options.blocks();
  std::vector<CudaResidency> taken;
  for (const auto& [device, wanted] : blocks) {
    if (only >= 0 && device != only) continue;
    TUTTI_TRY(const std::size_t room, blocks_of_device(device));
    if (wanted <= room) {
      taken.emplace_back(device, only >= 0 ? options.blocks() : wanted, room);
      continue;
    }
    return Error{Code::kUnsupported, fmt::format("a CUDA mesh: ranks on device {} need {} blocks "
                                                 "at a time, it has room for {}; use fewer lanes",
                                                 device, wanted, room)};
  }
  return taken;
}

bool has_place(const plan::Plan& plan, plan::Place place) {
  return any_location(plan, [place](const plan::Location& at) { return at.place == place; });
}

}  // namespace

std::size_t CudaPlan::bytes() const {
  std::size_t sum = 0;
  for (const OfRank& rank : ranks_) sum += rank.memory.size();
  return sum;
}

Result<std::unique_ptr<CudaMesh>> CudaMesh::create(CudaMeshOptions options) {
  TUTTI_RETURN_IF_ERROR(check_options(options));
  TUTTI_TRY(auto room, find_residency(options, -1));
  // Calls name peers' buffers, which may be of the runtime.
  const std::set<int> devices(options.devices.begin(), options.devices.end());
  for (const int device : devices) {
    TUTTI_RETURN_IF_ERROR(load_kernels(device));
    for (const int peer : devices) TUTTI_RETURN_IF_ERROR(enable_peer_access(device, peer));
  }
  std::unique_ptr<CudaMesh> mesh(new CudaMesh(std::move(options), -1));
  mesh->residency_ = std::move(room);
  TUTTI_RETURN_IF_ERROR(mesh->rings_.allocate());
  TUTTI_RETURN_IF_ERROR(mesh->rings_.open_to_all());
  return mesh;
}

Result<std::unique_ptr<CudaMesh>> CudaMesh::create(CudaMeshOptions options, int rank) {
  TUTTI_RETURN_IF_ERROR(check_options(options));
  if (rank < 0 || static_cast<std::size_t>(rank) >= options.devices.size()) {
    return invalid("there is no rank " + std::to_string(rank));
  }
  TUTTI_TRY(auto room, find_residency(options, options.devices[static_cast<std::size_t>(rank)]));
  TUTTI_RETURN_IF_ERROR(load_kernels(options.devices[static_cast<std::size_t>(rank)]));
  std::unique_ptr<CudaMesh> mesh(new CudaMesh(std::move(options), rank));
  mesh->residency_ = std::move(room);
  TUTTI_RETURN_IF_ERROR(mesh->rings_.allocate());
  return mesh;
}

Result<std::optional<std::size_t>> CudaMesh::set_of(std::optional<cuda::SlotFormat> format) const {
  if (!format || *format == options().format) return std::optional<std::size_t>();
  const std::vector<cuda::RingSet>& all = options().more;
  for (std::size_t set = 0; set < all.size(); ++set) {
    if (all[set].format == *format) return std::optional(set);
  }
  return Error{Code::kUnsupported,
               fmt::format("the mesh has no {} slots", cuda::to_string(*format))};
}

Status CudaMesh::suits(const plan::Plan& plan, std::optional<cuda::SlotFormat> format) const {
  const std::string name = "plan " + plan.name;
  if (const std::string why = unsuited(plan); !why.empty()) {
    return Error{Code::kUnsupported, name + " can't run on devices: it " + why};
  }
  const std::size_t lanes = plan.ranks[0].lanes.size();
  TUTTI_TRY(const auto set, set_of(format));
  const std::uint32_t most = set ? options().more[*set].lanes : options().lanes;
  if (lanes <= most) return ok();
  return Error{
      Code::kUnsupported,
      fmt::format(
          "{} has {} lanes, the mesh {}{}", name, lanes, most,
          set ? fmt::format(" of {} slots", cuda::to_string(options().more[*set].format)) : "")};
}

Result<CudaPlan> CudaMesh::load(const plan::Plan& plan,
                                std::optional<cuda::SlotFormat> format) const {
  const std::string name = "plan " + plan.name;
  const std::size_t ranks = options().devices.size();
  if (plan.ranks.size() != ranks) {
    return Error{Code::kInvalidArgument, name + " is for " + std::to_string(plan.ranks.size()) +
                                             " ranks, the mesh has " + std::to_string(ranks)};
  }
  TUTTI_RETURN_IF_ERROR(suits(plan, format));
  CudaPlan loaded;
  TUTTI_TRY(loaded.set_, set_of(format));
  loaded.shape_ = plan.shape;
  loaded.pieces_ = plan.pieces;
  loaded.lanes_ = static_cast<std::uint32_t>(plan.ranks[0].lanes.size());
  loaded.entry_barrier_ = plan.entry_barrier;
  loaded.tiled_ = is_tiled(plan);
  loaded.partials_ = has_partials(plan);
  loaded.scratch_ = has_place(plan, plan::Place::kScratch);
  loaded.reads_peers_ = has_place(plan, plan::Place::kPeerInput);
  loaded.writes_peers_ = has_place(plan, plan::Place::kPeerOutput);
  loaded.ranks_.resize(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (!rings_.is_here(rank)) continue;
    CudaPlan::OfRank& own = loaded.ranks_[rank];
    const std::size_t slot_bytes =
        loaded.set_ ? options().more[*loaded.set_].slot_bytes : options().slot_bytes;
    const std::size_t scratch = plan.ranks[rank].scratch_chunks * slot_bytes;
    const std::vector<LanePage> pages = pages_of(plan.ranks[rank], plan.apart);
    const std::size_t bytes = pages.size() * sizeof(LanePage);
    own.page_count = static_cast<std::uint32_t>(pages.size()) / loaded.lanes_;
    own.scratch_at = whole_lines(bytes);
    TUTTI_TRY(own.memory,
              CudaMemory::allocate_private(options().devices[rank], own.scratch_at + scratch));
    TUTTI_RETURN_IF_ERROR(own.memory.write(0, pages.data(), bytes));
  }
  return loaded;
}

}  // namespace tutti::exec
