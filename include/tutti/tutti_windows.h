/* File: tutti/tutti_windows.h: the C API's one-sided windows: memory of each rank that the others
 * read and write without its help. tutti.h includes it. It is window.h in C.
 *
 *   tutti_window_t window;
 *   tutti_window_create(comm, bytes, &window);    every rank
 *   tutti_put(window, data, size, 1, 0);          rank 0
 *   tutti_signal(window, 1, 0);
 *   tutti_wait_signal(window, 0, 0, 1);           rank 1: the data is in its memory
 *   tutti_window_close(window);                   every rank
 *
 * Ranks of one host copy to and from each other's memory. Between hosts, the progress thread of the
 * rank that has the memory carries out what the others ask for.
 *
 * Calls on one window may come from any thread, one at a time, and never in a group.
 */
#ifndef TUTTI_TUTTI_WINDOWS_H
#define TUTTI_TUTTI_WINDOWS_H

/* C has neither `using` nor <cstddef>. NOLINTBEGIN(modernize-*) */
#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Windows ----------------------------------------------------------------------------------
 * On success *window is a handle that is given back with tutti_window_close or
 * tutti_window_destroy; on failure it is NULL. */

/* A window as one rank sees it. */
typedef struct tutti_window* tutti_window_t;

/* `bytes` of memory of this rank, zeroed and aligned to a page; ranks may give different numbers,
 * and 0. Collective. The window may outlive `comm`, and has its timeout. To abort or revoke `comm`
 * ends its windows. If one rank can't have its memory, all get an error. */
TUTTI_API tutti_result_t tutti_window_create(tutti_comm_t comm, size_t bytes,
                                             tutti_window_t* window);

/* Ends the window, whose memory goes: returns once all ranks have called it, and all that they have
 * put has come. Collective. Frees the handle, also on an error. */
TUTTI_API tutti_result_t tutti_window_close(tutti_window_t window);

/* Leaves, and frees the handle. Ranks that still need this one get TUTTI_PEER_FAILED, or
 * TUTTI_ABORTED. NULL is legal. */
TUTTI_API tutti_result_t tutti_window_destroy(tutti_window_t window);

/* *data becomes this rank's memory; NULL if it has 0 bytes. */
TUTTI_API tutti_result_t tutti_window_data(tutti_window_t window, void** data);

/* *bytes becomes how much `rank` has; 0 if there is no such rank. */
TUTTI_API tutti_result_t tutti_window_bytes(tutti_window_t window, int rank, size_t* bytes);

/* *address becomes where this process finds the memory of `rank`, to load and store itself; NULL if
 * that is on another host, or has 0 bytes. Valid until this window is closed. */
TUTTI_API tutti_result_t tutti_window_address_of(tutti_window_t window, int rank, void** address);

/* ---- One-sided operations ---------------------------------------------------------------------
 * `offset`: bytes from the start of that rank's memory. A rank may name itself. Two ranks must not
 * access the same place at a time, but by tutti_accumulate, tutti_fetch_add and tutti_compare_swap:
 * what is read then is any mix. `data` and the place must not overlap. Errors other than
 * TUTTI_INVALID_ARGUMENT are the window's end on all ranks, but for a wait that is late. */

/* Copies `bytes` from `data` to rank `to`. `data` may be changed once this returns. The bytes are
 * there behind a signal, or after tutti_flush. */
TUTTI_API tutti_result_t tutti_put(tutti_window_t window, const void* data, size_t bytes, int to,
                                   size_t offset);

/* Copies `bytes` of rank `from` to `data`, where they are once this returns. Sees what this rank
 * has put there before. */
TUTTI_API tutti_result_t tutti_get(tutti_window_t window, void* data, size_t bytes, int from,
                                   size_t offset);

/* Each of `count` elements there becomes `op` of it and of this rank's; each at once, also if
 * several ranks do that, in any order: sums of floats may differ from run to run. `offset` is a
 * multiple of the element's size. No TUTTI_AVG and no TUTTI_PRE_MUL_SUM. */
TUTTI_API tutti_result_t tutti_accumulate(tutti_window_t window, const void* data, size_t count,
                                          tutti_data_type_t type, tutti_op_t op, int to,
                                          size_t offset);

/* Adds to the number there, at once also if several ranks do that; *before becomes what it was. The
 * sum wraps; with 0 it reads. `offset` is a multiple of 8. All that this rank has put to `to`
 * before is there, and what other ranks had put there before their call that made the number is
 * seen: a counter or a lock can hand on memory of that rank. A loop that waits for a number has no
 * deadline, and nothing ends it when the rank that is to change the number dies: give the loop a
 * limit of its own. */
TUTTI_API tutti_result_t tutti_fetch_add(tutti_window_t window, int64_t value, int to,
                                         size_t offset, int64_t* before);

/* The number there becomes `value` if it is `expected`; *before becomes what it was: `expected` if
 * it was exchanged. Otherwise as tutti_fetch_add. */
TUTTI_API tutti_result_t tutti_compare_swap(tutti_window_t window, int64_t expected, int64_t value,
                                            int to, size_t offset, int64_t* before);

/* Returns once all that this rank has put to `to`, or accumulated there, is there. */
TUTTI_API tutti_result_t tutti_flush(tutti_window_t window, int to);

/* Adds one to the signals of this number (0 to 63) that this rank has sent rank `to`, which sees
 * behind a wait for it what this rank has put and accumulated there before. */
TUTTI_API tutti_result_t tutti_signal(tutti_window_t window, int to, int number);

/* Waits until rank `from` has sent `count` signals of this number more than were waited for before.
 * TUTTI_TIMEOUT: nothing is taken, the window goes on, and one may wait again. TUTTI_PEER_FAILED if
 * that rank has died or left; if one of another host has left, TUTTI_ABORTED. Only a wait notices
 * the death of a rank of this host: put, get and signal to it return TUTTI_OK. */
TUTTI_API tutti_result_t tutti_wait_signal(tutti_window_t window, int from, int number,
                                           uint64_t count);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*) */
#endif
