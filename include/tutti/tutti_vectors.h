/* File: tutti/tutti_vectors.h: the rest of the C API: collectives whose blocks differ in size.
 * tutti.h includes it.
 */
#ifndef TUTTI_TUTTI_VECTORS_H
#define TUTTI_TUTTI_VECTORS_H

#include "tutti/tutti.h"

/* C has no `using`. NOLINTBEGIN(modernize-*) */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Blocks of different sizes ----------------------------------------------------------------
 * Counts and offsets have a number for each rank, in elements; offsets count from the start of the
 * buffer and may be NULL: then the blocks follow one another. Both ends of a block have to give it
 * the same count, else all ranks get TUTTI_MISMATCH. The lists are read before the call returns. */

/* Rank r gives counts[r] elements, which become output[offsets[r] ...]. The same counts on every
 * rank. In place: input == output + offsets[rank]. */
TUTTI_API tutti_result_t tutti_all_gather_v(tutti_comm_t comm, const void* input, void* output,
                                            const size_t* counts, const size_t* offsets,
                                            tutti_data_type_t type);
TUTTI_API tutti_result_t tutti_start_all_gather_v(tutti_comm_t comm, const void* input,
                                                  void* output, const size_t* counts,
                                                  const size_t* offsets, tutti_data_type_t type,
                                                  tutti_work_t* work);

/* output[i] = op over all ranks of input[offsets[rank] + i], i < counts[rank]. The same counts on
 * every rank. In place: output == input + offsets[rank]. */
TUTTI_API tutti_result_t tutti_reduce_scatter_v(tutti_comm_t comm, const void* input, void* output,
                                                const size_t* counts, const size_t* offsets,
                                                tutti_data_type_t type, tutti_op_t op);
TUTTI_API tutti_result_t tutti_start_reduce_scatter_v(tutti_comm_t comm, const void* input,
                                                      void* output, const size_t* counts,
                                                      const size_t* offsets, tutti_data_type_t type,
                                                      tutti_op_t op, tutti_work_t* work);

/* Sends input[input_offsets[r] ...] to every rank r, input_counts[r] elements, and puts what comes
 * from it at output[output_offsets[r]], output_counts[r] elements. Never in place. */
TUTTI_API tutti_result_t tutti_all_to_all_v(tutti_comm_t comm, const void* input,
                                            const size_t* input_counts, const size_t* input_offsets,
                                            void* output, const size_t* output_counts,
                                            const size_t* output_offsets, tutti_data_type_t type);
TUTTI_API tutti_result_t tutti_start_all_to_all_v(tutti_comm_t comm, const void* input,
                                                  const size_t* input_counts,
                                                  const size_t* input_offsets, void* output,
                                                  const size_t* output_counts,
                                                  const size_t* output_offsets,
                                                  tutti_data_type_t type, tutti_work_t* work);

/* Every rank gives `count` elements; at the root, those of rank r are counts[r] and become
 * output[offsets[r] ...]. The others may pass NULL for output, counts and offsets. */
TUTTI_API tutti_result_t tutti_gather_v(tutti_comm_t comm, const void* input, size_t count,
                                        void* output, const size_t* counts, const size_t* offsets,
                                        tutti_data_type_t type, int root);
TUTTI_API tutti_result_t tutti_start_gather_v(tutti_comm_t comm, const void* input, size_t count,
                                              void* output, const size_t* counts,
                                              const size_t* offsets, tutti_data_type_t type,
                                              int root, tutti_work_t* work);

/* Every rank gets `count` elements; at the root, those of rank r are counts[r], from
 * input[offsets[r]] on. The others may pass NULL for input, counts and offsets. */
TUTTI_API tutti_result_t tutti_scatter_v(tutti_comm_t comm, const void* input, const size_t* counts,
                                         const size_t* offsets, void* output, size_t count,
                                         tutti_data_type_t type, int root);
TUTTI_API tutti_result_t tutti_start_scatter_v(tutti_comm_t comm, const void* input,
                                               const size_t* counts, const size_t* offsets,
                                               void* output, size_t count, tutti_data_type_t type,
                                               int root, tutti_work_t* work);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*) */
#endif
