// File: trainer/checkpoint_file.h: one file of a checkpoint, which is whole and undamaged or
// refused.
//
//   {"format":2, ...,"checksum":"0123456789abcdef"}   a line of JSON that says what follows
//   float32 in this machine's order                   may be none
//
// The checksum is of the line before it, then of the values, so no changed bit goes unnoticed. A
// resumed run has the bits of the whole run or does not begin.
#pragma once
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/strategies/strategy.h"

namespace tutti::trainer {

using Json = nlohmann::ordered_json;

/// An error of checkpoints. `number`: that of the system, with its reason; 0: none.
Error checkpoint_error(Code code, const std::string& what, int number = 0);

/// The file is there as a whole or not at all. `head`: an object.
Status write_checked(const std::filesystem::path& path, const Json& head,
                     std::span<const Piece> pieces);

struct CheckedFile {
  Json head;
  std::ifstream stream;
  std::streamoff values = 0;  // Where they begin.
};

/// A file whose every byte is as it was written. Reads it once, piece by piece.
/// kInvalidArgument if it is empty, cut short, damaged or of another format.
Result<CheckedFile> open_checked(const std::filesystem::path& path);

}  // namespace tutti::trainer
