// File: perf/cuda_nccl.cc: NCCL's all-reduce next to ours, on the devices that there are.
//
//   cuda_nccl LIBRARY: a libnccl.so.2 of NVIDIA's, which is loaded when this runs: nothing links to
//   it
//
// With several devices each has a rank; on one alone several ranks share it, which NCCL takes from
// 2.30.3 on, if NCCL_MULTI_RANK_GPU_ENABLE is 1. Where NCCL can't run the table says why, and that
// is no failure. Calls take turns, ours and NCCL's; figures are medians. GB/s: a rank's message, by
// time.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "cuda/mesh/mesh.h"
#include "perf/command_line/command_line.h"
#include "perf/cuda_table.h"
#include "perf/cuda_timing.h"

// The declarations of NCCL's header that this needs; none of them has changed since 2.10.
struct ncclUniqueId {
  char internal[128];
};
struct ncclComm;

namespace tutti {
namespace {

using exec::CudaMemory;
using timing::median;
using timing::Options;
using timing::Row;
using timing::Streams;
using timing::Table;

using NcclId = ncclUniqueId;
using NcclComm = ncclComm*;
constexpr int kNcclSum = 0;
constexpr int kSharedDevice = 23003;  // The first version that lets ranks share a device.

struct Nccl {
  int (*version)(int*) = nullptr;
  int (*unique_id)(NcclId*) = nullptr;
  int (*init)(NcclComm*, int, NcclId, int) = nullptr;
  int (*destroy)(NcclComm) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int, int, NcclComm, cudaStream_t) = nullptr;
  int (*start)() = nullptr;
  int (*end)() = nullptr;
  const char* (*text)(int) = nullptr;
  int number = 0;

  static Result<Nccl> load(const std::string& file) {
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return Error{Code::kUnsupported, dlerror()};
    Nccl nccl;
    bool all = true;
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      all = all && function != nullptr;
    };
    find(nccl.version, "ncclGetVersion");
    find(nccl.unique_id, "ncclGetUniqueId");
    find(nccl.init, "ncclCommInitRank");
    find(nccl.destroy, "ncclCommDestroy");
    find(nccl.all_reduce, "ncclAllReduce");
    find(nccl.start, "ncclGroupStart");
    find(nccl.end, "ncclGroupEnd");
    find(nccl.text, "ncclGetErrorString");
    if (!all) return Error{Code::kUnsupported, file + " lacks some of NCCL's functions"};
    TUTTI_RETURN_IF_ERROR(nccl.said(nccl.version(&nccl.number), "ncclGetVersion"));
    return nccl;
  }
  Status said(int result, const char* what) const {
    if (result == 0) return ok();
    return Error{Code::kSystem, std::string(what) + ": " + text(result)};
  }
  std::string name() const {
    return fmt::format("NCCL {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  }
};
int nccl_type(DataType type) { return type == DataType::kFloat32 ? 7 : 9; }

/// NCCL's ranks, all of this thread.
class Ranks {
 public:
  static Result<std::unique_ptr<Ranks>> join(const Nccl& nccl, const std::vector<int>& devices) {
    std::unique_ptr<Ranks> ranks(new Ranks(nccl, devices.size()));
    NcclId id;
    TUTTI_RETURN_IF_ERROR(nccl.said(nccl.unique_id(&id), "ncclGetUniqueId"));
    TUTTI_RETURN_IF_ERROR(nccl.said(nccl.start(), "ncclGroupStart"));
    int first = 0;
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
      const exec::OnDevice on(devices[rank]);
      const int result = nccl.init(&ranks->comms_[rank], static_cast<int>(devices.size()), id,
                                   static_cast<int>(rank));
      if (first == 0) first = result;
    }
    const int ended = nccl.end();
    TUTTI_RETURN_IF_ERROR(nccl.said(first != 0 ? first : ended, "ncclCommInitRank"));
    return ranks;
  }
  ~Ranks() {
    for (NcclComm comm : comms_) {
      if (comm != nullptr) nccl_.destroy(comm);
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Status all_reduce(const std::vector<exec::CudaCall>& calls, const Streams& streams) const {
    TUTTI_RETURN_IF_ERROR(nccl_.said(nccl_.start(), "ncclGroupStart"));
    int first = 0;
    for (std::size_t rank = 0; rank < comms_.size(); ++rank) {
      const int result =
          nccl_.all_reduce(calls[rank].input, calls[rank].output, calls[rank].count,
                           nccl_type(calls[rank].type), kNcclSum, comms_[rank], streams[rank]);
      if (first == 0) first = result;
    }
    const int ended = nccl_.end();
    return nccl_.said(first != 0 ? first : ended, "ncclAllReduce");
  }

 private:
  Ranks(const Nccl& nccl, std::size_t count) : nccl_(nccl), comms_(count, nullptr) {}
  const Nccl& nccl_;
  std::vector<NcclComm> comms_;
};

/// Ours and NCCL's, on the same buffers.
class Comparison {
 public:
  Comparison(const Options& options, Table& table, const std::vector<int>& devices)
      : options_(options), table_(table), devices_(devices) {
    on_ = fmt::format("{} ranks, {} device{}", devices_.size(), shared() ? 1 : devices_.size(),
                      shared() ? "" : "s");
  }

  void run(const std::optional<Nccl>& nccl, const std::string& why) {
    why_ = nccl ? join(*nccl) : why;
    table_.measure("all-reduces, " + on_, [this] { return run(); });
  }

 private:
  bool shared() const { return devices_.size() > 1 && devices_[0] == devices_[1]; }

  /// Empty, or why NCCL is left out.
  std::string join(const Nccl& nccl) {
    if (shared() && nccl.number < kSharedDevice)
      return nccl.name() + " has one rank per device; from 2.30.3 on several can share one";
    auto joined = Ranks::join(nccl, devices_);
    if (joined) {
      ranks_ = std::move(*joined);
      return "";
    }
    return joined.error().what +
           (shared() ? " (several ranks on a device take NCCL_MULTI_RANK_GPU_ENABLE=1)" : "");
  }

  Status run() {
    exec::CudaMeshOptions mesh_options = timing::mesh_of(devices_);
    TUTTI_TRY(const std::size_t multiprocessors, timing::multiprocessors_of(devices_[0]));
    const std::size_t sharing = shared() ? devices_.size() : 1;
    mesh_options.lanes =
        static_cast<std::uint32_t>(std::max<std::size_t>(1, multiprocessors / sharing));
    TUTTI_TRY(mesh_, exec::CudaMesh::create(mesh_options));
    for (const int device : devices_) {
      TUTTI_TRY(CudaMemory input, CudaMemory::allocate(device, options_.bytes));
      TUTTI_TRY(CudaMemory output, CudaMemory::allocate(device, options_.bytes));
      inputs_.push_back(std::move(input));
      outputs_.push_back(std::move(output));
    }
    const Streams streams(devices_);
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
      const std::vector<exec::CudaCall> calls = calls_of(type, options_.bytes / size_of(type));
      TUTTI_RETURN_IF_ERROR(compare("all-reduce, " + std::string(to_string(type)), calls, streams));
    }
    return latency(streams);
  }

  /// NCCL's time, unless it can't run; why it can't is said instead.
  template <class Time>
  std::optional<Time> of_nccl(Result<Time> time) {
    if (time) return *std::move(time);
    if (why_.empty()) why_ = time.error().what;
    return std::nullopt;
  }

  std::vector<exec::CudaCall> calls_of(DataType type, std::size_t count) const {
    const auto input = [&](std::size_t rank) { return inputs_[rank].data(); };
    const auto output = [&](std::size_t rank) { return outputs_[rank].data(); };
    return timing::calls_of(devices_.size(), type, count, input, output);
  }

  /// Adds a row: our times, and NCCL's, if it runs.
  void add(const std::string& what, const std::string& ours_is, std::size_t bytes,
           const std::vector<double>& ours, const std::vector<double>& theirs) {
    Row row{"Tutti's " + ours_is + what + ", " + on_, median(ours),
            timing::rate(bytes, median(ours))};
    Row other{.what = "NCCL's " + what + ", " + on_, .note = why_};
    if (why_.empty()) {
      other.microseconds = median(theirs);
      other.gigabytes = timing::rate(bytes, other.microseconds);
      if (row.microseconds > 0) row.share = other.microseconds / row.microseconds;
    }
    table_.add(row);
    table_.add(other);
  }

  Status compare(const std::string& what, const std::vector<exec::CudaCall>& calls,
                 const Streams& streams) {
    std::vector<double> ours, theirs;
    for (int round = 0; round <= options_.rounds; ++round) {  // The first is not counted.
      TUTTI_TRY(const double time, streams.microseconds([&](std::size_t rank) {
        return mesh_->launch_two_shot(static_cast<int>(rank), calls[rank], streams[rank]);
      }));
      TUTTI_RETURN_IF_ERROR(timing::check(*mesh_, devices_.size()));
      if (round > 0) ours.push_back(time);
      if (!why_.empty()) continue;
      const auto their_time =
          of_nccl(streams.microseconds_of_all([&] { return ranks_->all_reduce(calls, streams); }));
      if (round > 0 && their_time) theirs.push_back(*their_time);
    }
    add(what, "two-shot ", options_.bytes, ours, theirs);
    return ok();
  }

  Status latency(const Streams& streams) {
    const std::vector<exec::CudaCall> calls = calls_of(DataType::kFloat32, 2);
    const auto launch = [&] { return timing::launch_one_shots(*mesh_, calls, streams); };
    TUTTI_TRY(const auto ours, streams.replayed(launch, options_.replays, options_.rounds));
    TUTTI_RETURN_IF_ERROR(timing::check(*mesh_, devices_.size()));
    std::vector<double> theirs;
    if (why_.empty()) {
      theirs = of_nccl(streams.replayed([&] { return ranks_->all_reduce(calls, streams); },
                                        options_.replays, options_.rounds))
                   .value_or(std::vector<double>{});
    }
    add("all-reduce of 8 bytes in a graph", "one-shot ", 0, ours, theirs);
    return ok();
  }

  const Options& options_;
  Table& table_;
  const std::vector<int> devices_;
  std::string on_;
  std::string why_;  // NCCL is left out; empty: it is not.
  std::unique_ptr<Ranks> ranks_;
  std::unique_ptr<exec::CudaMesh> mesh_;
  std::vector<CudaMemory> inputs_, outputs_;
};

/// One rank to each of up to eight devices; on a single one, as many as cuda_bench has.
std::vector<std::vector<int>> placements(int devices) {
  if (devices == 1) return {{0, 0}, std::vector<int>(8, 0)};
  std::vector<int> all;
  for (int device = 0; device < std::min(devices, 8); ++device) all.push_back(device);
  return {all};
}

void run(const Options& options, const std::string& library, Table& table) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  std::optional<Nccl> nccl;
  std::string why;
  if (auto loaded = Nccl::load(library)) {
    nccl = *loaded;
    Dl_info from{};
    dladdr(reinterpret_cast<void*>(nccl->version), &from);
    table.add({.what = nccl->name(), .note = from.dli_fname});
  } else {
    why = "no NCCL: " + loaded.error().what;
  }
  if (devices == 0) return table.add({.what = "all-reduces", .note = "there is no GPU"});
  for (const std::vector<int>& placement : placements(devices))
    Comparison(options, table, placement).run(nccl, why);
}

}  // namespace
}  // namespace tutti

int main(int count, char** words) {
  tutti::perf::CommandLine app("NCCL's all-reduce next to Tutti's, on the devices that there are");
  std::string library;
  app.add_option("library", library, "NVIDIA's libnccl.so.2").required();
  return tutti::timing::run_program(
      app, count, words, {"of NCCL", "share_of_nccl"},
      [&](const tutti::timing::Options& options, tutti::timing::Table& table) {
        tutti::run(options, library, table);
      });
}
