// The word that was probably meant, and what an error says of it.
#include "base/nearest.h"

#include <array>
#include <string>

#include "support/catch.h"

namespace tutti {
namespace {

constexpr std::array<std::string_view, 9> kWords{
    "run", "train", "info", "topo", "explain", "simulate", "float32", "ring", "reduce_scatter"};

TEST_CASE("an insertion, deletion, replacement or swap is one edit, a capital is none") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("inf", "info") == 1);
  CHECK(edit_distance("infoo", "info") == 1);
  CHECK(edit_distance("unfo", "info") == 1);
  CHECK(edit_distance("shwo", "show") == 1);
  CHECK(edit_distance("SHOW", "show") == 0);
  CHECK(edit_distance("abcd", "badc") == 2);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("a typo finds its word") {
  CHECK(nearest("inf", kWords) == "info");
  CHECK(nearest("trian", kWords) == "train");
  CHECK(nearest("flot32", kWords) == "float32");
  CHECK(nearest("Float32", kWords) == "float32");
  CHECK(nearest("rng", kWords) == "ring");
  CHECK(nearest("reduce-scater", kWords) == "reduce_scatter");
}

TEST_CASE("the only word that begins like it is near, one of several is not") {
  CHECK(nearest("sim", kWords) == "simulate");
  CHECK(nearest("reduce", kWords) == "reduce_scatter");
  constexpr std::array<std::string_view, 2> kTwo{"all_reduce", "all_gather"};
  CHECK(nearest("all", kTwo).empty());
  CHECK(nearest("si", kWords).empty());  // Too short to mean a word.
}

TEST_CASE("nothing is offered if nothing is near") {
  for (const std::string_view word : {"", "x", "up", "frobnicate", "reducing_all", "--"}) {
    INFO(word);
    CHECK(nearest(word, kWords).empty());
  }
  CHECK(nearest("info", {}).empty());
  CHECK(nearest(std::string(100'000, 'x'), kWords).empty());
}

TEST_CASE("an error asks for the word that was meant, and goes on as a sentence") {
  CHECK(unknown_word("command", "inf", kWords) == "unknown command 'inf'; did you mean 'info'?");
  CHECK(unknown_word("command", "frob", kWords) == "unknown command 'frob'");
  CHECK(unknown_word("word", "a\nb", kWords) == "unknown word 'a?b'");
  CHECK(unknown_word("word", std::string(65, 'y'), kWords) ==
        "unknown word '" + std::string(64, 'y') + "...'");
  CHECK(followed_by("which?", "see --help") == "which? See --help");
  CHECK(followed_by("which?", "--help lists all") == "which? --help lists all");
  CHECK(followed_by("none", "see --help") == "none; see --help");
  CHECK(unknown_collective("all_redcue")
            .starts_with("unknown collective 'all_redcue'; did you mean 'all_reduce'? There are "
                         "all_reduce, "));
}

}  // namespace
}  // namespace tutti
