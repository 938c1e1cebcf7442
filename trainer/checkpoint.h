// File: trainer/checkpoint.h: the state of training on disk.
//
// Each rank writes what it holds, so no rank ever has the whole state, and any number of ranks may
// go on from it: a rank reads those parts of all files that it holds from then on. A checkpoint of
// one strategy also fits another. Where each rank has weights of its own (local, gossip), as many
// ranks go on, by the same strategy.
//
//   FOLDER/latest          which one is the latest, and what it is of
//   FOLDER/turn-N/rank-R   what this rank held: a list of stretches, then their values
//
// Each file has a checksum (checkpoint_file.h).
#pragma once
#include <string>

#include "trainer/worker.h"

namespace tutti::trainer {

/// Whether checkpoints can be written, before the work is done: makes the folder, which all ranks
/// see. Like all functions here it is collective, and an error of one rank is one on all.
Status may_checkpoint(Communicator& comm, const std::string& folder);

/// Writes a checkpoint between two epochs. The one before stays until this one is whole.
Status save_checkpoint(Worker& worker, Communicator& comm, const std::string& folder);

/// Goes on from the latest checkpoint in that folder. After Worker::use.
/// kInvalidArgument if it is of another network, optimiser, seed or batch, not whole, damaged,
/// lacks values of this strategy, or has values of each rank and there are other ranks.
Status resume(Worker& worker, Communicator& comm, const std::string& folder);

}  // namespace tutti::trainer
