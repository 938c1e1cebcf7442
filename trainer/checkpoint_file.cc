#include "trainer/checkpoint_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <vector>

#include "trainer/hash.h"

namespace tutti::trainer {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 2;  // 1 had no checksums.
constexpr std::size_t kMostHead = std::size_t{64} << 20;
constexpr const char* kRemedy = ": resume from another copy of the checkpoint, or begin anew";

/// The end of the line, behind what the checksum is of.
std::string ending_of(std::uint64_t checksum) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), R"(,"checksum":"%016llx"})",
                static_cast<unsigned long long>(checksum));
  return text.data();
}

Error refused(const fs::path& path, const std::string& what) {
  return checkpoint_error(Code::kInvalidArgument, path.string() + " " + what + kRemedy);
}

Error not_read(const fs::path& path, int number) {
  return checkpoint_error(Code::kInvalidArgument, "can't read " + path.string(), number);
}

/// The first line, without its end.
Result<std::string> read_line(const fs::path& path, std::ifstream& file) {
  std::string line;
  char c = 0;
  while (line.size() <= kMostHead && file.get(c) && c != '\n') line += c;
  if (file.bad()) return not_read(path, errno);
  if (line.empty() && !file) return refused(path, "is empty");
  if (!file) return refused(path, "is not whole");
  return line;
}

/// Adds the values, which are all that is left of the file; how many there are.
Result<std::uint64_t> hash_values(const fs::path& path, std::ifstream& file, WordHash& hash) {
  std::vector<float> block(std::size_t{64} << 10);
  std::uint64_t count = 0;
  while (file) {
    file.read(reinterpret_cast<char*>(block.data()),
              static_cast<std::streamsize>(block.size() * sizeof(float)));
    if (file.bad()) return not_read(path, errno);
    const auto bytes = static_cast<std::size_t>(file.gcount());
    if (bytes % sizeof(float) != 0) return refused(path, "is not whole");
    hash.add(std::span(block).first(bytes / sizeof(float)));
    count += bytes / sizeof(float);
  }
  file.clear();
  return count;
}

/// The number of values that the head announces. Sums wrap: then the checksum is wrong too.
std::uint64_t announced(const Json& head) {
  std::uint64_t count = 0;
  const auto parts = head.find("parts");
  if (parts == head.end() || !parts->is_array()) return count;
  for (const Json& part : *parts) {
    const auto own = part.find("count");
    if (own != part.end() && own->is_number_unsigned()) count += own->get<std::uint64_t>();
  }
  return count;
}

}  // namespace

Error checkpoint_error(Code code, const std::string& what, int number) {
  return {code, "checkpoint: " + what +
                    (number == 0 ? "" : ": " + std::generic_category().message(number))};
}

Status write_checked(const fs::path& path, const Json& head, std::span<const Piece> pieces) {
  Json all = Json::object();
  all["format"] = kFormat;
  all.update(head);
  std::string line = all.dump();
  line.pop_back();  // The brace.
  WordHash hash;
  hash.add(line);
  for (const Piece& piece : pieces) hash.add(piece.values);
  const fs::path draft = path.string() + ".draft";
  errno = 0;
  std::ofstream file(draft, std::ios::binary);
  if (file) file << line << ending_of(hash.value()) << '\n';
  for (const Piece& piece : pieces) {
    if (!file) break;  // With the error that says why.
    file.write(reinterpret_cast<const char*>(piece.values.data()),
               static_cast<std::streamsize>(piece.values.size_bytes()));
  }
  if (file) file.close();
  std::error_code refused(file ? 0 : errno, std::generic_category());
  if (file) fs::rename(draft, path, refused);
  if (file && !refused) return ok();
  std::error_code ignored;
  fs::remove(draft, ignored);
  return checkpoint_error(Code::kSystem, "can't write " + path.string(), refused.value());
}

Result<CheckedFile> open_checked(const fs::path& path) {
  errno = 0;
  CheckedFile opened{.head = {}, .stream = std::ifstream(path, std::ios::binary)};
  if (!opened.stream) return not_read(path, errno);
  TUTTI_TRY(const std::string line, read_line(path, opened.stream));
  opened.head = Json::parse(line, nullptr, false);
  if (line == "{" || opened.head.is_array())
    return refused(path, "is of an older version, without a checksum");
  WordHash hash;
  const std::size_t checked = line.size() - std::min(line.size(), ending_of(0).size());
  hash.add(std::string_view(line).substr(0, checked));
  opened.values = static_cast<std::streamoff>(line.size() + 1);
  TUTTI_TRY(const std::uint64_t count, hash_values(path, opened.stream, hash));
  if (opened.head.is_object() && count < announced(opened.head))
    return refused(path, "is not whole");
  if (!opened.head.is_object() || line.substr(checked) != ending_of(hash.value()))
    return refused(path, "is damaged: its checksum is of other bytes");
  if (opened.head.value("format", 0) != kFormat)
    return refused(path, "is of another version: it is not of format " + std::to_string(kFormat));
  return opened;
}

}  // namespace tutti::trainer
