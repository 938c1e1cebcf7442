#include "planner/plan_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/hash.h"
#include "plan/hash.h"
#include "plan/names.h"
#include "plan/structure.h"
#include "plan/text/text.h"
#include "plan/verify/verify.h"
#include "planner/planner.h"

namespace tutti::planner {
namespace {

constexpr std::size_t kMostBytes = std::size_t{256} << 20;

Error bad(Code code, std::string_view file, std::string_view what) {
  return {code, fmt::format("plan file '{}': {}", file, what)};
}

Result<std::string> contents(const std::string& file) {
  std::error_code failure;
  const auto bytes = std::filesystem::file_size(file, failure);
  if (failure) return bad(Code::kInvalidArgument, file, failure.message());
  if (bytes > kMostBytes)
    return bad(Code::kInvalidArgument, file,
               fmt::format("{} bytes; at most {} are read", bytes, kMostBytes));
  std::string text(bytes, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(text.data(), static_cast<std::streamsize>(bytes));
  if (!stream) return bad(Code::kInvalidArgument, file, std::strerror(errno));
  return text;
}

/// Proves the plan, under the stricter contract if that holds.
Status prove(plan::Plan& plan) {
  const Contract claimed = plan.contract;
  plan.contract = Contract::kDeterministic;
  auto proved = plan::verify(plan);
  if (proved || claimed == Contract::kDeterministic) return proved;
  plan.contract = claimed;
  return plan::verify(plan);
}

}  // namespace

Result<WrittenPlan> read_plan(const std::string& file) {
  TUTTI_TRY(const std::string text, contents(file));
  auto parsed = plan::parse(text);
  if (!parsed) return bad(parsed.error().code, file, parsed.error().what);
  WrittenPlan written{.file = file, .plan = *std::move(parsed), .mapped_only = false};
  plan::Plan& plan = written.plan;
  if (auto proved = prove(plan); !proved)
    return bad(proved.error().code, file, proved.error().what);
  for (const plan::RankPlan& rank : plan.ranks) {
    if (rank.lanes.size() > kMostLanes)
      return bad(Code::kInvalidPlan, file,
                 fmt::format("{} lanes; at most {} can be run", rank.lanes.size(), kMostLanes));
  }
  written.mapped_only = plan::touches_peers(plan);
  // In place, an all-to-all never goes by mapped buffers; all other calls may be in place.
  if (plan.apart && !(written.mapped_only && plan.shape.collective == Collective::kAllToAll))
    return bad(Code::kInvalidPlan, file,
               "it is marked 'apart', but calls may be in place; without the mark the verifier "
               "says where that does harm");
  return written;
}

Result<PlanFiles> PlanFiles::load(std::string_view files, Contract contract) {
  PlanFiles all;
  while (!files.empty()) {
    const std::string file(files.substr(0, files.find(',')));
    files.remove_prefix(std::min(files.size(), file.size() + 1));
    TUTTI_TRY(auto written, read_plan(file));
    const plan::Shape& shape = written.plan.shape;
    if (contract == Contract::kDeterministic && written.plan.contract == Contract::kRelaxed)
      return bad(Code::kInvalidArgument, file,
                 fmt::format("plan {} does not reduce in canonical order; set "
                             "TUTTI_CONTRACT=relaxed to allow it",
                             written.plan.name));
    for (const WrittenPlan& other : all.plans_) {
      const plan::Shape& taken = other.plan.shape;
      if (taken.collective == shape.collective && taken.rank_count == shape.rank_count &&
          taken.root == shape.root && other.mapped_only == written.mapped_only)
        return bad(Code::kInvalidArgument, file,
                   fmt::format("'{}' has a plan for {} of {} ranks too", other.file,
                               to_string(shape.collective), shape.rank_count));
    }
    all.plans_.push_back(std::move(written));
  }
  return all;
}

const plan::Plan* PlanFiles::find(Collective collective, int rank_count, int root,
                                  bool mapped) const {
  const plan::Plan* found = nullptr;
  for (const WrittenPlan& written : plans_) {
    const plan::Shape& shape = written.plan.shape;
    if (shape.collective != collective || shape.rank_count != rank_count) continue;
    if (has_root(collective) && shape.root != root) continue;
    if (written.mapped_only && !mapped) continue;
    // One that was written for mapped buffers comes before one that would only be lowered to them.
    if (found == nullptr || written.mapped_only) found = &written.plan;
  }
  return found;
}

bool PlanFiles::has(Collective collective, int rank_count) const {
  return std::ranges::any_of(plans_, [&](const WrittenPlan& written) {
    return written.plan.shape.collective == collective &&
           written.plan.shape.rank_count == rank_count;
  });
}

std::size_t PlanFiles::lanes(int rank_count) const {
  std::size_t most = 1;
  for (const WrittenPlan& written : plans_) {
    if (written.plan.shape.rank_count != rank_count) continue;
    for (const plan::RankPlan& rank : written.plan.ranks) most = std::max(most, rank.lanes.size());
  }
  return most;
}

std::uint64_t PlanFiles::hash() const {
  Hash hash;
  for (const WrittenPlan& written : plans_) hash.add(plan::hash_of(written.plan));
  return hash.value();
}

std::string PlanFiles::describe(int rank_count) const {
  std::string text;
  for (const WrittenPlan& written : plans_) {
    const plan::Shape& shape = written.plan.shape;
    text += fmt::format("plan file {}: {} {}, {} ranks{}, {}{}{}\n", written.file,
                        to_string(shape.collective), written.plan.name, shape.rank_count,
                        has_root(shape.collective) ? fmt::format(", root {}", shape.root) : "",
                        plan::to_string(written.plan.contract),
                        written.mapped_only ? ", for mapped buffers" : "",
                        shape.rank_count == rank_count ? "" : "; not used by this communicator");
  }
  return text;
}

}  // namespace tutti::planner
