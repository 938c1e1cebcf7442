// File: plan/verify/symbols.h: symbolic values: reduction trees over ranks, each kept once.
//
// A tree is a number; equal trees have equal numbers, so comparing with the canonical tree is
// comparing two numbers. Leaves are the ranks themselves, 0..rank_count-1. The chunk that a value
// is about is kept beside the tree (all contributions to a value are about the same chunk), so that
// 512 chunks share the trees of one.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/flat_map.h"

namespace tutti::plan {

using Tree = std::uint32_t;
inline constexpr Tree kNoTree = ~Tree{0};

class Trees {
 public:
  /// With `counts`, keeps for each tree the set of ranks in it and refuses to add one twice.
  Trees(std::uint32_t rank_count, bool counts);

  /// left + right. kNoTree if a rank is in both (only when counting); `overlap` then says which.
  Tree join(Tree left, Tree right);
  /// The balanced tree of `trees`, in order: what one step computes.
  Tree reduce(std::span<const Tree> trees);
  /// The canonical tree of all ranks; when counting, any finished tree is as good.
  Tree canonical() const { return canonical_; }
  /// True if a value is finished: canonical, or with every rank in it when counting.
  bool is_finished(Tree tree) const;
  std::uint32_t overlap() const { return overlap_; }
  /// "(1+0) is where (0+1) should be": the smallest part in which `tree` is not the canonical one.
  std::string difference(Tree tree) const;
  /// "((0+1)+2)", cut short where it gets long.
  std::string to_text(Tree tree) const;

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
  Tree canonical_ = kNoTree;
};

}  // namespace tutti::plan
