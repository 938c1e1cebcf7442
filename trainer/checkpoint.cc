#include "trainer/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "trainer/checkpoint_file.h"

namespace tutti::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostReason = 1024;  // Bytes of an error that other ranks get.

/// Success on all ranks or on none: an own error, or that of the lowest rank that has one.
Status agree(Communicator& comm, const Status& own) {
  const auto none = static_cast<std::int32_t>(comm.rank_count());
  std::int32_t first = own ? none : comm.rank().value;
  TUTTI_RETURN_IF_ERROR(comm.all_reduce(&first, &first, 1, DataType::kInt32, ReduceOp::kMin));
  if (first == none) return ok();
  std::array<char, kMostReason> reason{};  // Its code, then its text.
  if (first == comm.rank().value) {
    reason[0] = static_cast<char>(own.error().code);
    own.error().what.copy(&reason[1], reason.size() - 2);
  }
  TUTTI_RETURN_IF_ERROR(
      comm.broadcast(reason.data(), reason.data(), reason.size(), DataType::kUint8, Rank{first}));
  // A rank that fails ends the communicator, perhaps before others have the reason. So each waits
  // until all have it. What becomes of this barrier does not matter.
  static_cast<void>(comm.barrier());
  if (!own) return own.error();
  return Error{static_cast<Code>(reason[0]), &reason[1], comm.rank(), Rank{first}};
}

Status make_folder(const fs::path& folder) {
  std::error_code refused;
  fs::create_directories(folder, refused);
  if (!refused) return ok();
  return checkpoint_error(Code::kSystem, "can't make " + folder.string(), refused.value());
}

Json parts_of(const std::vector<Piece>& pieces) {
  Json list = Json::array();
  for (const Piece& piece : pieces) {
    list.push_back({{"what", piece.what},
                    {"begin", piece.begin},
                    {"count", piece.values.size()},
                    {"by_rank", piece.held == Held::kByRank}});
  }
  return {{"parts", list}};
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
  TUTTI_TRY(CheckedFile file, open_checked(path));
  std::streamoff at = file.values;
  std::size_t filled = 0;
  for (const Json& part : file.head.at("parts")) {
    const std::size_t begin = part.value("begin", std::size_t{0});
    const std::size_t count = part.value("count", std::size_t{0});
    const bool by_rank = part.value("by_rank", false);
    for (const Piece& piece : pieces) {
      if (part.value("what", "") != piece.what) continue;
      if (by_rank != (piece.held == Held::kByRank) || (by_rank && !own)) continue;
      const std::size_t from = std::max(begin, piece.begin);
      const std::size_t to = std::min(begin + count, piece.begin + piece.values.size());
      if (from >= to) continue;
      file.stream.seekg(at + static_cast<std::streamoff>((from - begin) * sizeof(float)));
      file.stream.read(reinterpret_cast<char*>(piece.values.data() + (from - piece.begin)),
                       static_cast<std::streamsize>((to - from) * sizeof(float)));
      if (!file.stream)
        return checkpoint_error(Code::kInvalidArgument, "can't read " + path.string(), errno);
      filled += piece.optional ? 0 : to - from;
    }
    at += static_cast<std::streamoff>(count * sizeof(float));
  }
  return filled;
}

/// Fills this rank's pieces; returns the rest.
Result<State> read_all(Worker& worker, Communicator& comm, const fs::path& folder) {
  const fs::path latest = folder / "latest";
  std::error_code unknown;
  if (!fs::exists(latest, unknown) && !unknown)
    return checkpoint_error(Code::kInvalidArgument, "there is none in " + folder.string());
  TUTTI_TRY(const CheckedFile opened, open_checked(latest));
  const Json& manifest = opened.head;
  if (manifest.value("task", "") != worker.task()) {
    return checkpoint_error(Code::kInvalidArgument, folder.string() + " has one of '" +
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
    return checkpoint_error(Code::kInvalidArgument, "each rank has weights of its own in " +
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
    return checkpoint_error(Code::kInvalidArgument,
                            folder.string() + " lacks values of this strategy");
  return position;
}

}  // namespace

Status may_checkpoint(Communicator& comm, const std::string& folder) {
  const auto look = [&]() -> Status {
    TUTTI_RETURN_IF_ERROR(make_folder(folder));
    if (access(folder.c_str(), W_OK) == 0) return ok();
    return checkpoint_error(Code::kSystem, "can't write into " + folder, errno);
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
    return write_checked(into / ("rank-" + std::to_string(comm.rank().value)), parts_of(pieces),
                         pieces);
  };
  TUTTI_RETURN_IF_ERROR(agree(comm, write()));
  Status named = comm.rank().value != 0
                     ? ok()
                     : write_checked(fs::path(folder) / "latest", manifest_of(worker, comm), {});
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
      return checkpoint_error(Code::kInvalidArgument, "can't read " + folder + ": " + wrong.what());
    }
  };
  TUTTI_RETURN_IF_ERROR(agree(comm, read()));
  return worker.go_on(position);
}

}  // namespace tutti::trainer
