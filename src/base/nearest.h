// File: base/nearest.h: what to say about a mistyped word: the word that was probably meant.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

/// Characters to insert, delete or replace, and neighbours to swap, that turn one text into the
/// other. Capitals count as small letters.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The one of `words` that `word` was probably meant to be: one that differs in at most a third of
/// its characters, or the only one that begins with it. Empty: none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> words);

/// "unknown model 'hgx-h10'; did you mean 'hgx-h100'?", or less if none is near.
std::string unknown_word(std::string_view what, std::string_view word,
                         std::span<const std::string_view> words);

/// The same, then what there is: "...? There are dgx2, hgx-h100".
std::string unknown_of(std::string_view what, std::string_view word,
                       std::span<const std::string_view> words);
/// As unknown_of, of all collectives.
std::string unknown_collective(std::string_view name);

/// `text`, then `rest`, which begins with a small letter: a clause after "; ", or a sentence if
/// `text` ends with a question mark.
std::string followed_by(std::string text, std::string_view rest);

}  // namespace tutti
