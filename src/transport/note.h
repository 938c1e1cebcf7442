// File: transport/note.h: a note, memory that a rank writes for one peer and that arrives as a
// whole. A rank's board is a note for all others (exec/recovery_board.h).
//
// The writer, which may be a device, stores words and then a version that differs from the one
// before. The link (remote_link.h) looks for a new version before it looks for anything else that
// the rank wrote, and sends a copy of the words behind all of that. So a peer that sees the note
// sees what the rank wrote before it. Versions may be skipped: only the latest words arrive.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr std::size_t kNoteWords = 96;

struct alignas(64) Note {
  std::atomic<std::uint64_t> version{0};
  alignas(64) std::array<std::atomic<std::uint64_t>, kNoteWords> words{};
};

/// A copy of a note, as it travels. Its words may be of several versions, the first of which is
/// `version`; a reader has to be able to tell.
struct NoteImage {
  std::uint64_t version = 0;
  std::array<std::uint64_t, kNoteWords> words{};

  /// Copies a note. False: its version is `known`.
  bool copy(const Note& note, std::uint64_t known) {
    // acquire: pairs with the writer's release; the words are not older than the version.
    version = note.version.load(std::memory_order_acquire);
    if (version == known) return false;
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = note.words[i].load(std::memory_order_relaxed);  // relaxed: see the fence.
    // acquire: what is looked at next is not older than the words.
    std::atomic_thread_fence(std::memory_order_acquire);
    return true;
  }
  void put(Note& note) const {
    for (std::size_t i = 0; i < words.size(); ++i)
      note.words[i].store(words[i], std::memory_order_relaxed);  // relaxed: the version follows.
    // release: a reader that sees the version sees the words.
    note.version.store(version, std::memory_order_release);
  }
};

}  // namespace tutti
