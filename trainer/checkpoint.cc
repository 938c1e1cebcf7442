#include "trainer/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <nlohmann/json.hpp>

namespace tutti::trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Error failed(Code code, const std::string& what) { return {code, "checkpoint: " + what}; }

/// The same outcome on all ranks: an own error, or that of the lowest rank that has one.
Status agree(Communicator& comm, const Status& own) {
  const auto none = static_cast<std::int32_t>(comm.rank_count());
  std::int32_t first = own ? none : comm.rank().value;
  TUTTI_RETURN_IF_ERROR(comm.all_reduce(&first, &first, 1, DataType::kInt32, ReduceOp::kMin));
  if (!own) return own.error();
  if (first == none) return ok();
  return Error{Code::kSystem,
               "checkpoint: rank " + std::to_string(first) + " could not do its part", comm.rank(),
               Rank{first}};
}

Status make_folder(const fs::path& folder) {
  std::error_code refused;
  fs::create_directories(folder, refused);
  if (refused) return failed(Code::kSystem, "can't make " + folder.string());
  return ok();
}

/// A file is there as a whole or not at all.
Status write_whole(const fs::path& path, const std::string& head, std::span<const Piece> pieces) {
  const fs::path draft = path.string() + ".draft";
  std::ofstream file(draft, std::ios::binary);
  file << head << '\n';
  for (const Piece& piece : pieces) {
    file.write(reinterpret_cast<const char*>(piece.values.data()),
               static_cast<std::streamsize>(piece.values.size_bytes()));
  }
  file.close();
  std::error_code refused;
  if (file) fs::rename(draft, path, refused);
  if (!file || refused) return failed(Code::kSystem, "can't write " + path.string());
  return ok();
}

std::string text_of(const std::vector<Piece>& pieces) {
  Json list = Json::array();
  for (const Piece& piece : pieces) {
    list.push_back({{"what", piece.what},
                    {"begin", piece.begin},
                    {"count", piece.values.size()},
                    {"by_rank", piece.held == Held::kByRank}});
  }
  return list.dump();
}

fs::path turn_folder(const fs::path& folder, std::uint64_t turn) {
  return folder / ("turn-" + std::to_string(turn));
}

Json manifest_of(const Worker& worker, const Communicator& comm) {
  const State position = worker.position();
  Json epochs = Json::array();
  for (const Epoch& epoch : position.epochs)
    epochs.push_back({epoch.loss, epoch.accuracy, epoch.bytes});
  return {{"turn", position.turn},
          {"ranks", comm.rank_count()},
          {"task", worker.task()},
          {"epochs", epochs},
          {"buffers", position.buffers}};
}

/// Removes checkpoints other than the latest.
void remove_others(const fs::path& folder, std::uint64_t latest) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool other = entry.path() != turn_folder(folder, latest);
    if (name.starts_with("turn-") && entry.is_directory(ignored) && other)
      fs::remove_all(entry.path(), ignored);
  }
}

/// Copies what lies in a rank's file into the pieces; counts the values that were filled, without
/// optional ones. `own`: the file is of this rank, or of the one in whose place it is.
Result<std::size_t> read_parts(const fs::path& path, bool own, std::span<const Piece> pieces) {
  std::ifstream file(path, std::ios::binary);
  std::string head;
  std::getline(file, head);
  const Json list = Json::parse(head, nullptr, false);
  if (!file || !list.is_array())
    return failed(Code::kInvalidArgument, "can't read " + path.string());
  auto at = static_cast<std::streamoff>(head.size() + 1);
  std::size_t filled = 0;
  for (const Json& part : list) {
    const std::size_t begin = part.value("begin", std::size_t{0});
    const std::size_t count = part.value("count", std::size_t{0});
    const bool by_rank = part.value("by_rank", false);
    for (const Piece& piece : pieces) {
      if (part.value("what", "") != piece.what) continue;
      if (by_rank != (piece.held == Held::kByRank) || (by_rank && !own)) continue;
      const std::size_t from = std::max(begin, piece.begin);
      const std::size_t to = std::min(begin + count, piece.begin + piece.values.size());
      if (from >= to) continue;
      file.seekg(at + static_cast<std::streamoff>((from - begin) * sizeof(float)));
      file.read(reinterpret_cast<char*>(piece.values.data() + (from - piece.begin)),
                static_cast<std::streamsize>((to - from) * sizeof(float)));
      if (!file) return failed(Code::kInvalidArgument, path.string() + " is not whole");
      filled += piece.optional ? 0 : to - from;
    }
    at += static_cast<std::streamoff>(count * sizeof(float));
  }
  return filled;
}

/// Fills this rank's pieces; returns the rest.
Result<State> read_all(Worker& worker, Communicator& comm, const fs::path& folder) {
  std::ifstream file(folder / "latest");
  if (!file) return failed(Code::kInvalidArgument, "there is none in " + folder.string());
  const Json manifest = Json::parse(file, nullptr, false);
  if (manifest.is_discarded() || !manifest.is_object())
    return failed(Code::kInvalidArgument, "can't read " + (folder / "latest").string());
  if (manifest.value("task", "") != worker.task()) {
    return failed(Code::kInvalidArgument, folder.string() + " has one of '" +
                                              manifest.value("task", "") + "', not of '" +
                                              worker.task() + "'");
  }
  State position;
  position.turn = manifest.value("turn", std::uint64_t{0});
  position.buffers = manifest.value("buffers", std::vector<float>());
  for (const auto& epoch : manifest.value("epochs", std::vector<std::array<double, 3>>()))
    position.epochs.push_back({epoch[0], epoch[1], epoch[2]});
  const auto pieces = worker.strategy().pieces();
  std::size_t wanted = 0, filled = 0;
  bool by_rank = false;
  for (const Piece& piece : pieces) {
    wanted += piece.optional ? 0 : piece.values.size();
    by_rank = by_rank || piece.held == Held::kByRank;
  }
  const int ranks = manifest.value("ranks", 0);
  if (by_rank && ranks != comm.rank_count()) {
    return failed(Code::kInvalidArgument, "each rank has weights of its own in " +
                                              worker.strategy_name() + ": go on with " +
                                              std::to_string(ranks) + " ranks, as " +
                                              folder.string() + " has");
  }
  // What is optional is in the first file.
  for (int rank = 0; rank < ranks && (rank == 0 || filled < wanted); ++rank) {
    const fs::path path = turn_folder(folder, position.turn) / ("rank-" + std::to_string(rank));
    TUTTI_TRY(const std::size_t more, read_parts(path, rank == comm.rank().value, pieces));
    filled += more;
  }
  if (filled != wanted)
    return failed(Code::kInvalidArgument, folder.string() + " lacks values of this strategy");
  return position;
}

}  // namespace

Status may_checkpoint(Communicator& comm, const std::string& folder) {
  const auto look = [&]() -> Status {
    TUTTI_RETURN_IF_ERROR(make_folder(folder));
    if (access(folder.c_str(), W_OK) == 0) return ok();
    return failed(Code::kSystem, "can't write into " + folder);
  };
  return agree(comm, look());
}

Status save_checkpoint(Worker& worker, Communicator& comm, const std::string& folder) {
  const State position = worker.position();
  const fs::path into = turn_folder(folder, position.turn);
  auto pieces = worker.strategy().pieces();
  // One file is enough for what all ranks have.
  if (comm.rank().value != 0)
    std::erase_if(pieces, [](const Piece& piece) { return piece.held == Held::kEverywhere; });
  const auto write = [&]() -> Status {
    TUTTI_RETURN_IF_ERROR(make_folder(into));
    return write_whole(into / ("rank-" + std::to_string(comm.rank().value)), text_of(pieces),
                       pieces);
  };
  TUTTI_RETURN_IF_ERROR(agree(comm, write()));
  Status named = comm.rank().value != 0 ? ok()
                                        : write_whole(fs::path(folder) / "latest",
                                                      manifest_of(worker, comm).dump(1), {});
  TUTTI_RETURN_IF_ERROR(agree(comm, named));
  if (comm.rank().value == 0) remove_others(folder, position.turn);
  return ok();
}

Status resume(Worker& worker, Communicator& comm, const std::string& folder) {
  State position;
  const auto read = [&]() -> Status {
    try {
      TUTTI_TRY(position, read_all(worker, comm, folder));
      return ok();
    } catch (const Json::exception& wrong) {  // A value of another kind than it has to be.
      return failed(Code::kInvalidArgument, "can't read " + folder + ": " + wrong.what());
    }
  };
  TUTTI_RETURN_IF_ERROR(agree(comm, read()));
  return worker.go_on(position);
}

}  // namespace tutti::trainer
