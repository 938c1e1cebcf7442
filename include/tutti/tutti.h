/* File: tutti/tutti.h: the C API, usable from C99, C++ and every language that can call C.
 *
 *   tutti_comm_t comm;
 *   if (tutti_comm_init_env(&comm) != TUTTI_OK) { puts(tutti_last_error()); exit(1); }
 *   tutti_all_reduce(comm, in, out, count, TUTTI_FLOAT32, TUTTI_SUM);
 *   tutti_comm_destroy(comm);
 *
 * It is the C++ API (communicator.h) with handles instead of objects; what that header says of
 * buffers, in place, order and threads holds here too. What is different:
 *
 * Errors      Every function that can fail returns a tutti_result_t. The text is the thread's own:
 *             see tutti_last_error. Bad arguments are an error, never a crash; a handle that was
 *             freed, or was never one, is undefined.
 * Shapes      Counts are in elements, sizes in bytes, times in milliseconds. A count of 0 is legal
 *             (buffers may then be null) and synchronises nothing.
 * Deadlines   No call waits for ever: TUTTI_TIMEOUT_MS (60000) bounds each one.
 * Settings    Communicators made here read the environment variables of settings.h.
 * Versions    The ABI changes only with TUTTI_VERSION_MAJOR (before 1.0: with the minor version).
 */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

/* C has neither `using` nor <cstddef>. NOLINTBEGIN(modernize-*) */
#include <stddef.h>

#include "tutti/export.h"

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0
/* 10000 * major + 100 * minor + patch. */
#define TUTTI_VERSION_NUMBER \
  (10000 * TUTTI_VERSION_MAJOR + 100 * TUTTI_VERSION_MINOR + TUTTI_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Vocabulary ------------------------------------------------------------------------------
 * The types are int rather than the enumerations, so that a number from outside stays a number
 * until it has been checked, and the ABI does not depend on how a compiler sizes an enumeration. */

/* TUTTI_OK and its like, from codes.def. */
typedef int tutti_result_t;
enum {
#define TUTTI_CODE(enumerator, text, value, name) name = value,
#include "tutti/codes.def"
#undef TUTTI_CODE
};

/* TUTTI_FLOAT32 and its like, from data_types.def. */
typedef int tutti_data_type_t;
enum {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, kind, accumulator, name) name = value,
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
};

/* TUTTI_SUM and its like, from reduce_ops.def. TUTTI_AVG is the sum divided by the rank count. The
 * bitwise ones take integers only. TUTTI_PRE_MUL_SUM goes through the functions called
 * ..._pre_mul_sum only. */
typedef int tutti_op_t;
enum {
#define TUTTI_REDUCE_OP(enumerator, text, value, name) name = value,
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
};

/* A communicator as one rank sees it. */
typedef struct tutti_comm* tutti_comm_t;
/* A collective that was started. */
typedef struct tutti_work* tutti_work_t;
/* Names a job to be joined. Made by one rank, carried to the others by any means; it holds an
 * address and a secret. Plain bytes. */
typedef struct tutti_unique_id {
  unsigned char bytes[128];
} tutti_unique_id_t;

/* TUTTI_VERSION_NUMBER of the library that is loaded. Any thread. */
TUTTI_API int tutti_get_version(void);

/* "rank 1: timeout: all_reduce: ...": what the last failed call of this thread said, in one line;
 * "" if none failed. Valid until this thread's next failed call. */
TUTTI_API const char* tutti_last_error(void);

/* "ok", "timeout", ...; "unknown" for a number that is no result. Static text, any thread. */
TUTTI_API const char* tutti_result_name(tutti_result_t result);

/* Bytes of one element; 0 for a number that is no type. Any thread. */
TUTTI_API size_t tutti_data_type_size(tutti_data_type_t type);

/* ---- Communicators ---------------------------------------------------------------------------
 * On success *comm is a handle that is given back with tutti_comm_destroy; on failure it is NULL.
 */

/* Makes the id of a new job and serves its meeting point from this process, which has to live until
 * all ranks have joined. TUTTI_SYSTEM if no socket can be had. Any thread. */
TUTTI_API tutti_result_t tutti_get_unique_id(tutti_unique_id_t* id);

/* Joins the job `id` as `rank` (0 <= rank < rank_count). Collective. TUTTI_TIMEOUT names the ranks
 * that never came; TUTTI_MISMATCH: ranks disagree on the count, the version or the settings. */
TUTTI_API tutti_result_t tutti_comm_init_rank(tutti_comm_t* comm, const tutti_unique_id_t* id,
                                              int rank, int rank_count);

/* Joins the job that the launcher (torchrun, mpirun, srun, tutti run) describes in the environment.
 * A process that was started alone is rank 0 of 1. Collective. */
TUTTI_API tutti_result_t tutti_comm_init_env(tutti_comm_t* comm);

/* Makes `rank_count` communicators in this process, for ranks that are threads: comms[r] is rank
 * r's. `comms` has room for rank_count handles. */
TUTTI_API tutti_result_t tutti_comm_init_all(tutti_comm_t* comms, int rank_count);

/* As Communicator::split, but that a rank with a negative color gets NULL and no error. */
TUTTI_API tutti_result_t tutti_comm_split(tutti_comm_t comm, int color, int key,
                                          tutti_comm_t* part);

/* Waits for what was started on it (bounded by the deadlines), then frees it. NULL is legal. */
TUTTI_API tutti_result_t tutti_comm_destroy(tutti_comm_t comm);

/* Ends every call on this communicator, on every rank, with TUTTI_ABORTED. `reason` is one line, or
 * NULL. Any thread, any time, twice too. */
TUTTI_API tutti_result_t tutti_comm_abort(tutti_comm_t comm, const char* reason);

/* This rank, and how many there are. */
TUTTI_API tutti_result_t tutti_comm_rank(tutti_comm_t comm, int* rank);
TUTTI_API tutti_result_t tutti_comm_count(tutti_comm_t comm, int* rank_count);

/* Writes what this communicator is (ranks, transport, memory, waiting, plans) into `text`, at most
 * `size` bytes with the closing 0. *needed (may be NULL) becomes the size that holds all of it;
 * size 0 with text NULL only asks for that. */
TUTTI_API tutti_result_t tutti_comm_describe(tutti_comm_t comm, char* text, size_t size,
                                             size_t* needed);

/* Writes which way a call would go, why not the others, and what would be faster, into `text`, as
 * tutti_comm_describe does. `collective` is its name: "all_reduce". Nothing is called; `input` and
 * `output` only say whether peers can map them, and may be NULL. Reductions are sums. */
TUTTI_API tutti_result_t tutti_comm_explain(tutti_comm_t comm, const char* collective,
                                            const void* input, void* output, size_t count,
                                            tutti_data_type_t type, int root, char* text,
                                            size_t size, size_t* needed);

/* Collectives on this communicator that are called from now on go by this algorithm: its name,
 * "name:2" to repeat its lanes twice, "packet", or "^name" for any but that; before
 * TUTTI_ALGORITHM. NULL or "" ends it. Alike on all ranks, or calls fail with TUTTI_MISMATCH. A
 * name that there is not is told by the next call (TUTTI_INVALID_ARGUMENT), which knows the
 * collective. Any thread; calls of other threads that overlap go the old way or the new one. */
TUTTI_API tutti_result_t tutti_comm_use_algorithm(tutti_comm_t comm, const char* name);

/* ---- Collectives -----------------------------------------------------------------------------
 * calls.def lists them. Each has a blocking form, tutti_NAME, and an asynchronous one,
 * tutti_start_NAME. The blocking one returns once this rank's output is complete and its buffers
 * are free again; within a group it returns at once, and tutti_group_end waits. The other is
 * carried on by the process's progress thread, and the buffers are the library's until the work is
 * done: on success *work is a handle that is given back with tutti_work_free; on failure it is
 * NULL. Errors: TUTTI_INVALID_ARGUMENT for null buffers, unknown types and operations, and counts
 * that memory can't hold; TUTTI_MISMATCH if ranks call different things; TUTTI_TIMEOUT,
 * TUTTI_PEER_FAILED, TUTTI_ABORTED. */
#define TUTTI_CALL(name, request, ...)                                   \
  TUTTI_API tutti_result_t tutti_##name(tutti_comm_t comm, __VA_ARGS__); \
  TUTTI_API tutti_result_t tutti_start_##name(tutti_comm_t comm, __VA_ARGS__, tutti_work_t* work);
#include "tutti/calls.def"

/* Returns once every rank has called it. */
TUTTI_API tutti_result_t tutti_barrier(tutti_comm_t comm);

/* ---- Messages ---------------------------------------------------------------------------------
 * From one rank to another, as in communicator.h. TUTTI_MISMATCH on all ranks: the two ends name
 * different counts or types. */

TUTTI_API tutti_result_t tutti_send(tutti_comm_t comm, const void* data, size_t count,
                                    tutti_data_type_t type, int to);
TUTTI_API tutti_result_t tutti_recv(tutti_comm_t comm, void* data, size_t count,
                                    tutti_data_type_t type, int from);
TUTTI_API tutti_result_t tutti_start_send(tutti_comm_t comm, const void* data, size_t count,
                                          tutti_data_type_t type, int to, tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_recv(tutti_comm_t comm, void* data, size_t count,
                                          tutti_data_type_t type, int from, tutti_work_t* work);

/* ---- Work ----------------------------------------------------------------------------------- */

/* Sleeps until the work is done and returns how it ended. A negative timeout waits as long as the
 * call's own deadline allows. TUTTI_TIMEOUT after `timeout_ms`: it goes on and can be waited for
 * again. Any thread, also several. */
TUTTI_API tutti_result_t tutti_work_wait(tutti_work_t work, int timeout_ms);

/* *done becomes 1 once the work is done, also when it failed (tutti_work_wait says how), else 0. */
TUTTI_API tutti_result_t tutti_work_test(tutti_work_t work, int* done);

/* Calls callback(user, result, text) once, as Work::then, also if the handle was freed. `text` is
 * "" or the error in one line, valid during the call. */
typedef void (*tutti_callback_t)(void* user, tutti_result_t result, const char* text);
TUTTI_API tutti_result_t tutti_work_then(tutti_work_t work, tutti_callback_t callback, void* user);

/* Gives the handle back; the work goes on. NULL is legal. */
TUTTI_API tutti_result_t tutti_work_free(tutti_work_t work);

/* ---- Groups ----------------------------------------------------------------------------------
 * What this thread calls between start and end takes place as one: see Group in communicator.h. */

/* TUTTI_INVALID_ARGUMENT if this thread has a group open: groups don't nest. */
TUTTI_API tutti_result_t tutti_group_start(void);
/* Waits for all; returns the first error of any. TUTTI_INVALID_ARGUMENT without a start. */
TUTTI_API tutti_result_t tutti_group_end(void);

/* ---- Memory ----------------------------------------------------------------------------------
 * Memory that peers on the same host can map: collectives on it need no copy. */

/* `bytes` > 0, aligned to a page, zeroed. Not tied to a communicator. Any thread. */
TUTTI_API tutti_result_t tutti_mem_alloc(void** data, size_t bytes);
/* Frees what tutti_mem_alloc returned; an error for anything else. NULL is legal. Any thread. */
TUTTI_API tutti_result_t tutti_mem_free(void* data);

/* As Communicator::register_memory. */
TUTTI_API tutti_result_t tutti_register(tutti_comm_t comm, void* data, size_t bytes, int fd,
                                        size_t offset);
TUTTI_API tutti_result_t tutti_deregister(tutti_comm_t comm, void* data);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*) */
#endif
