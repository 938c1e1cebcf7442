// File: plan/verify/symbols.h: symbolic values: reduction trees over ranks, each kept once.
//
// A tree is a number; equal trees have equal numbers, so comparing with the canonical tree is
// comparing two numbers. Leaves are the ranks themselves, 0..rank_count-1. The chunk that a value
// is about is kept beside the tree (all contributions to a value are about the same chunk), so that
// 512 chunks share the trees of one.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/flat_map.h"

namespace tutti::plan {

using Tree = std::uint32_t;
inline constexpr Tree kNoTree = ~Tree{0};

class Trees {
 public:
  /// With `counts`, keeps for each tree the set of ranks in it and refuses to add one twice. With
  /// `prefixes`, there are results of the first ranks, however many; else only those of all.
  Trees(std::uint32_t rank_count, bool counts, bool prefixes)
      : rank_count_(rank_count), words_(counts ? (rank_count + 63) / 64 : 0) {
    sets_.resize(words_ * rank_count);
    for (std::uint32_t rank = 0; words_ > 0 && rank < rank_count; ++rank)
      sets_[rank * words_ + rank / 64] = std::uint64_t{1} << (rank % 64);
    std::vector<Tree> ranks(rank_count);
    std::iota(ranks.begin(), ranks.end(), 0);
    canonical_.resize(rank_count + 1, kNoTree);
    for (std::uint32_t first = prefixes ? 1 : rank_count; first <= rank_count; ++first) {
      canonical_[first] = reduce(std::span(ranks).first(first));
      results_.emplace_back(canonical_[first], first);
    }
    std::ranges::sort(results_);
  }

  /// left + right. kNoTree if a rank is in both (only when counting); `overlap` then says which.
  Tree join(Tree left, Tree right) {
    const auto fresh = static_cast<Tree>(rank_count_ + nodes_.size());
    const Tree found = index_.find_or_insert((std::uint64_t{left} << 32) | right, fresh);
    if (found != fresh) return found;
    nodes_.push_back({left, right});
    for (std::size_t word = 0; word < words_; ++word) {
      const std::uint64_t a = sets_[left * words_ + word], b = sets_[right * words_ + word];
      if ((a & b) != 0) {
        overlap_ = static_cast<std::uint32_t>(word * 64) +
                   static_cast<std::uint32_t>(std::countr_zero(a & b));
        return kNoTree;
      }
      sets_.push_back(a | b);
    }
    return found;
  }

  /// The balanced tree of `trees`, in order: what one step computes.
  Tree reduce(std::span<const Tree> trees) {
    if (trees.size() == 1) return trees[0];
    const std::size_t split = std::bit_floor(trees.size() - 1);
    const Tree left = reduce(trees.first(split));
    if (left == kNoTree) return kNoTree;
    const Tree right = reduce(trees.subspan(split));
    return right == kNoTree ? kNoTree : join(left, right);
  }

  /// The canonical tree of the first `ranks`; when counting, any other finished one is as good.
  Tree canonical(std::uint32_t ranks) const { return canonical_[ranks]; }
  /// How many ranks, the first ones, a value is the result of: it is their canonical tree, or when
  /// counting has them all, and each once. 0: it is no result.
  std::uint32_t result_of(Tree tree) const {
    if (words_ == 0) {
      const auto found = std::ranges::lower_bound(results_, std::pair(tree, std::uint32_t{0}));
      return found != results_.end() && found->first == tree ? found->second : 0;
    }
    std::uint32_t ranks = 0, last = 0;
    for (std::uint32_t word = 0; word < words_; ++word) {
      const std::uint64_t set = sets_[tree * words_ + word];
      if (set == 0) continue;
      ranks += static_cast<std::uint32_t>(std::popcount(set));
      last = word * 64 + 63 - static_cast<std::uint32_t>(std::countl_zero(set));
    }
    return ranks == last + 1 && canonical_[ranks] != kNoTree ? ranks : 0;
  }
  std::uint32_t overlap() const { return overlap_; }
  /// "(1+0) is where (0+1) should be": the smallest part in which `tree` is not the canonical one
  /// of the first `ranks`.
  std::string difference(Tree tree, std::uint32_t ranks) const {
    Tree canonical = canonical_[ranks];
    while (tree >= rank_count_ && canonical >= rank_count_) {
      const Node &is = nodes_[tree - rank_count_], &should = nodes_[canonical - rank_count_];
      if (is.left != should.left && is.right != should.right) break;
      const bool left = is.left != should.left;
      tree = left ? is.left : is.right;
      canonical = left ? should.left : should.right;
    }
    return to_text(tree) + " is where " + to_text(canonical) + " should be";
  }

  /// "((0+1)+2)", cut short where it gets long.
  std::string to_text(Tree tree) const {
    constexpr std::size_t kLongest = 60;
    std::string text;
    // Depth first with an explicit stack: trees of loaded plans may be deep. Marks above all trees
    // are punctuation.
    constexpr Tree kPlus = kNoTree - 1, kClose = kNoTree - 2;
    std::vector<Tree> todo{tree};
    while (!todo.empty()) {
      const Tree next = todo.back();
      todo.pop_back();
      if (text.size() > kLongest) return text + "...";
      if (next == kPlus) {
        text += '+';
      } else if (next == kClose) {
        text += ')';
      } else if (next < rank_count_) {
        text += std::to_string(next);
      } else {
        text += '(';
        const Node& node = nodes_[next - rank_count_];
        todo.insert(todo.end(), {kClose, node.right, kPlus, node.left});
      }
    }
    return text;
  }

 private:
  struct Node {
    Tree left, right;
  };
  std::uint32_t rank_count_;
  std::size_t words_;  // In a set of ranks; 0 when not counting.
  std::uint32_t overlap_ = 0;
  std::vector<Node> nodes_;  // Tree rank_count_ + i is nodes_[i].
  std::vector<std::uint64_t> sets_;
  FlatMap index_;
  std::vector<Tree> canonical_;  // By ranks; kNoTree: there is no result of so many.
  std::vector<std::pair<Tree, std::uint32_t>> results_;  // The same by tree, in order.
};

}  // namespace tutti::plan
