/* File: tutti/tutti_user_op.h: the C API's reductions of a program's own elements by its own
 * function: MPI's derived types and user-defined operations. tutti.h includes it. It is user_op.h
 * in C, which says how such a call works.
 *
 *   void multiply(const void* lower, void* higher, size_t count, void* context) {
 *     const double complex* a = lower;
 *     double complex* b = higher;
 *     for (size_t i = 0; i < count; ++i) b[i] = a[i] * b[i];
 *   }
 *   tutti_user_op_t op = {.element_bytes = sizeof(double complex), .combine = multiply};
 *   tutti_all_reduce_by(comm, in, out, count, &op);
 */
#ifndef TUTTI_TUTTI_USER_OP_H
#define TUTTI_TUTTI_USER_OP_H

/* C has neither `using` nor <cstddef>. NOLINTBEGIN(modernize-*) */
#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An associative operation on elements that the library only moves. It need not be commutative:
 * rank r is always to the left of rank r + 1. Elements are combined in the canonical order
 * (docs/bitwise-contract.md), so that one which rounds gives the same bits on all ranks and in
 * every run. */
typedef struct {
  size_t element_bytes;
  /* higher[i] = lower[i] op higher[i] for `count` elements. `lower` is of lower ranks and stays as
   * it is. Both lie in an array of such elements that is aligned to 64 bytes. It makes no calls on
   * the communicator but tutti_comm_abort, and returns: it neither jumps nor throws. */
  void (*combine)(const void* lower, void* higher, size_t count, void* context);
  void* context; /* For `combine`. */
} tutti_user_op_t;

/* The collectives with these names, by such an operation. `count`, buffers and in place: as there.
 * Each is one or two collectives, with the operation on the calling thread in between, and
 * allocates memory. Not in a group. TUTTI_INVALID_ARGUMENT for an operation that is NULL or without
 * a function or a size, TUTTI_MISMATCH if ranks give other sizes, else as there. Memory that runs
 * out ends the communicator. That ranks give other operations is not noticed. */
TUTTI_API tutti_result_t tutti_all_reduce_by(tutti_comm_t comm, const void* input, void* output,
                                             size_t count, const tutti_user_op_t* op);
TUTTI_API tutti_result_t tutti_reduce_scatter_by(tutti_comm_t comm, const void* input, void* output,
                                                 size_t count, const tutti_user_op_t* op);
TUTTI_API tutti_result_t tutti_reduce_by(tutti_comm_t comm, const void* input, void* output,
                                         size_t count, const tutti_user_op_t* op, int root);
TUTTI_API tutti_result_t tutti_scan_by(tutti_comm_t comm, const void* input, void* output,
                                       size_t count, const tutti_user_op_t* op);
TUTTI_API tutti_result_t tutti_exclusive_scan_by(tutti_comm_t comm, const void* input, void* output,
                                                 size_t count, const tutti_user_op_t* op);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*) */
#endif
