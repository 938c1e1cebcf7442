/* File: tutti/tutti.h: the C API, usable from C99, C++ and every language that can call C.
 *
 *   tutti_comm_t comm;
 *   if (tutti_comm_init_env(&comm) != TUTTI_OK) { puts(tutti_last_error()); exit(1); }
 *   tutti_all_reduce(comm, in, out, count, TUTTI_FLOAT32, TUTTI_SUM);
 *   tutti_comm_destroy(comm);
 *
 * It is the C++ API (communicator.h) with handles instead of objects; whatever that header says of
 * buffers, order and threads holds here too. In short:
 *
 * Errors      Every function that can fail returns a tutti_result_t. The text is the thread's own:
 *             see tutti_last_error. Bad arguments are an error, never a crash; a handle that was
 *             freed, or was never one, is undefined.
 * Shapes      Counts are in elements, sizes in bytes, times in milliseconds. A count of 0 is legal
 *             (buffers may then be null) and synchronises nothing.
 * Buffers     Host memory, any alignment. In place means: all-reduce, broadcast, reduce,
 *             all-to-all and scans, output == input; all-gather and gather, input == output + rank
 *             * count elements; reduce-scatter and scatter, output == input + rank * count
 *             elements. Any other overlap is undefined.
 * Threads     Different communicators: any threads at once. One communicator: any thread, one call
 *             at a time, in the same order on every rank. tutti_comm_abort: any thread, any time.
 * Deadlines   No call waits for ever: TUTTI_TIMEOUT_MS (60000) bounds each one.
 * Settings    Communicators made here read the environment variables of settings.h;
 *             tutti_comm_init_config (tutti_options.h) takes others.
 * Versions    The ABI changes only with TUTTI_VERSION_MAJOR (before 1.0: with the minor version).
 */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

/* C has neither `using` nor <cstddef>. NOLINTBEGIN(modernize-*) */
#include <stddef.h>
#include <stdint.h>

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

typedef int tutti_result_t;
enum {
  TUTTI_OK = 0,
  TUTTI_INVALID_ARGUMENT = 1, /* The caller's mistake; nothing was started. */
  TUTTI_MISMATCH = 2,         /* Ranks disagree: rank count, operation, version. */
  TUTTI_TIMEOUT = 3,          /* The deadline passed; the text names the missing ranks. */
  TUTTI_PEER_FAILED = 4,      /* A peer ended, or left too early. */
  TUTTI_ABORTED = 5,          /* This communicator was aborted. */
  TUTTI_SYSTEM = 6,           /* The operating system refused something. */
  TUTTI_UNSUPPORTED = 7,      /* Legal, but this build or machine can't do it. */
  TUTTI_INVALID_PLAN = 8,     /* A plan that the verifier rejects. */
  TUTTI_INTERNAL = 9,         /* A bug in the library. */
  TUTTI_REVOKED = 10          /* It was revoked: tutti_comm_shrink makes one of those left. */
};

typedef int tutti_data_type_t;
enum {
  TUTTI_INT8 = 0,
  TUTTI_UINT8 = 1,
  TUTTI_INT32 = 2,
  TUTTI_UINT32 = 3,
  TUTTI_INT64 = 4,
  TUTTI_UINT64 = 5,
  TUTTI_FLOAT16 = 6,
  TUTTI_FLOAT32 = 7,
  TUTTI_FLOAT64 = 8,
  TUTTI_BFLOAT16 = 9,
  TUTTI_FLOAT8E4M3 = 10,
  TUTTI_FLOAT8E5M2 = 11,
  TUTTI_INT16 = 12,
  TUTTI_UINT16 = 13
};

typedef int tutti_op_t;
enum {
  TUTTI_SUM = 0,
  TUTTI_PROD = 1,
  TUTTI_MAX = 2,
  TUTTI_MIN = 3,
  TUTTI_AVG = 4,         /* The sum divided by the rank count. */
  TUTTI_PRE_MUL_SUM = 5, /* Only through the functions called ..._pre_mul_sum. */
  TUTTI_AND = 6,         /* The bitwise ones take integers only. */
  TUTTI_OR = 7,
  TUTTI_XOR = 8
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

/* The rank to blame for the last failed call of this thread, whichever rank noticed: it has died,
 * came too late, or called something else. A rank of the communicator that was called; -1 if no
 * rank is to blame. */
TUTTI_API int tutti_last_error_peer(void);

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

/* Joins at `rendezvous`, as `rank` of `rank_count`, whatever a launcher says: "host:port" on rank
 * 0's host, or a directory that all ranks see. `job` keeps apart the jobs that meet there, and
 * differs from run to run in a directory; NULL: the launcher's job. Over TCP the secret is
 * TUTTI_SECRET. Each process joins in the same order where it joins more than once. Collective. */
TUTTI_API tutti_result_t tutti_comm_init_at(tutti_comm_t* comm, const char* rendezvous,
                                            const char* job, int rank, int rank_count);

/* Makes `rank_count` communicators in this process, for ranks that are threads: comms[r] is rank
 * r's. `comms` has room for rank_count handles. */
TUTTI_API tutti_result_t tutti_comm_init_all(tutti_comm_t* comms, int rank_count);

/* A communicator of the ranks that gave the same color, ordered by key, then by rank. Collective
 * over `comm`, and never in a group. A rank with a negative color takes part, belongs to none, and
 * gets NULL. */
TUTTI_API tutti_result_t tutti_comm_split(tutti_comm_t comm, int color, int key,
                                          tutti_comm_t* part);

/* A communicator of the same ranks, whose calls do not mix with those of `comm`. Collective over
 * `comm`, and never in a group. */
TUTTI_API tutti_result_t tutti_comm_duplicate(tutti_comm_t comm, tutti_comm_t* copy);

/* ranks[r] becomes the rank in `other` of rank r of `comm`; -1: it is not in it. `ranks` has room
 * for all ranks of `comm`. Both come from one communicator, by any number of splits, duplicates,
 * shrinks and grows. Not collective. */
TUTTI_API tutti_result_t tutti_comm_ranks_in(tutti_comm_t comm, tutti_comm_t other, int* ranks);

/* Waits for what was started on it (bounded by the deadlines), then frees it. NULL is legal. */
TUTTI_API tutti_result_t tutti_comm_destroy(tutti_comm_t comm);

/* Ends every call on this communicator, on every rank, with TUTTI_ABORTED. `reason` is one line, or
 * NULL. Any thread, any time, twice too. */
TUTTI_API tutti_result_t tutti_comm_abort(tutti_comm_t comm, const char* reason);

/* After a failure. An error of any call ends a communicator on all ranks; the ranks that are left
 * may go on with tutti_comm_shrink. These functions are calls as far as threads are concerned, but
 * for tutti_comm_revoke, and not to be made in a group. */

/* Whether calls can still work: TUTTI_OK, or the error that ended this communicator, or
 * TUTTI_PEER_FAILED with the first rank that has died or left. Waits for nobody; not collective,
 * and tells nobody. */
TUTTI_API tutti_result_t tutti_comm_health(tutti_comm_t comm);

/* As tutti_comm_abort, with TUTTI_REVOKED: all ranks are to call tutti_comm_shrink. */
TUTTI_API tutti_result_t tutti_comm_revoke(tutti_comm_t comm, const char* reason);

/* A communicator of the ranks that are left, in their order. All of them call it, after a failure
 * or on a communicator that works. The others have died or left, don't call it within
 * TUTTI_TIMEOUT_MS, or are among the `excluded_count` ranks `excluded`, alike on all that call it;
 * these do not call it. `comm` stays what it is. members[r] becomes the rank in `comm` of the new
 * rank r; it has room for all ranks of `comm`, or is NULL. *completed, unless NULL, becomes how
 * many collectives all of the members completed on `comm`. Takes at most twice TUTTI_TIMEOUT_MS.
 * TUTTI_PEER_FAILED on a rank that the others have left out; TUTTI_MISMATCH if ranks exclude
 * different ranks. */
TUTTI_API tutti_result_t tutti_comm_shrink(tutti_comm_t comm, const int* excluded,
                                           int excluded_count, tutti_comm_t* shrunk, int* members,
                                           uint64_t* completed);

/* Makes *flags the bitwise and of the *flags of all ranks that are left: the same on all of them,
 * also if ranks die meanwhile. Ranks, limit and errors as with tutti_comm_shrink. */
TUTTI_API tutti_result_t tutti_comm_agree(tutti_comm_t comm, uint64_t* flags);

/* A communicator of `rank_count` ranks: those of `comm`, which keep their numbers, and new ones
 * behind them, which call tutti_comm_init_rank with the same id and count. All ranks call it. */
TUTTI_API tutti_result_t tutti_comm_grow(tutti_comm_t comm, const tutti_unique_id_t* id,
                                         int rank_count, tutti_comm_t* grown);

/* This rank, and how many there are. */
TUTTI_API tutti_result_t tutti_comm_rank(tutti_comm_t comm, int* rank);
TUTTI_API tutti_result_t tutti_comm_count(tutti_comm_t comm, int* rank_count);

/* Writes what this communicator is (ranks, transport, memory, waiting, plans) into `text`, at most
 * `size` bytes with the closing 0. *needed (may be NULL) becomes the size that holds all of it;
 * size 0 with text NULL only asks for that. */
TUTTI_API tutti_result_t tutti_comm_describe(tutti_comm_t comm, char* text, size_t size,
                                             size_t* needed);

/* What this rank has done on a communicator since that was made, and for which ranks it waited.
 * Bytes of a call are the larger of a rank's input and output. Times are in milliseconds: since the
 * communicator was made; in calls by a plan and in small ones that waited long; waited for ranks
 * that came late. */
typedef struct {
  unsigned long long all_reduces, reduce_scatters, all_gathers, broadcasts, reduces, gathers,
      scatters, all_to_alls, scans, exclusive_scans, barriers, messages;
  unsigned long long collective_bytes, message_bytes;
  double age_ms, calls_ms, waits_ms;
  int slowest_rank;                 /* For which this rank waited longest; -1: for none. */
  unsigned long long slowest_calls; /* To which that rank came last, */
  double slowest_ms;                /* and how long this rank waited for it. */
} tutti_counters_t;
/* Not collective; any thread. */
TUTTI_API tutti_result_t tutti_comm_counters(tutti_comm_t comm, tutti_counters_t* counters);

/* Writes this rank's latest 4,096 calls and messages as JSON into `text`, as tutti_comm_describe
 * does. They may change between two calls: give it room. */
TUTTI_API tutti_result_t tutti_comm_flight_record(tutti_comm_t comm, char* text, size_t size,
                                                  size_t* needed);

/* Writes which way a call would go, why not the others, and what would be faster, into `text`, as
 * tutti_comm_describe does. `collective` is its name: "all_reduce". Nothing is called; `input` and
 * `output` only say whether peers can map them, and may be NULL. Reductions are sums. */
TUTTI_API tutti_result_t tutti_comm_explain(tutti_comm_t comm, const char* collective,
                                            const void* input, void* output, size_t count,
                                            tutti_data_type_t type, int root, char* text,
                                            size_t size, size_t* needed);

/* Chooses the algorithm of collectives that are called on this communicator from now on, in place
 * of TUTTI_ALGORITHM: an algorithm's name, "name:2" for twice its lanes, "packet" for the path of
 * small messages, or "^name" for any but that. NULL or "" ends it. All ranks have to choose alike,
 * else calls fail with TUTTI_MISMATCH. Any thread; a call that another thread makes at the same
 * time goes by the old choice or by the new one. Whether there is such a name for a collective is
 * checked by the call that follows, which fails with TUTTI_INVALID_ARGUMENT if there is none. */
TUTTI_API tutti_result_t tutti_comm_use_algorithm(tutti_comm_t comm, const char* name);

/* Collectives of float32 with blocks of one size, called from now on, send their values as `name`
 * says: "float16", "bfloat16", "int8" or "float8", with ":nearest" or ":stochastic" behind it for
 * the rounding (wire.h). Their results are rounded. NULL, "" or "plain" ends it. Alike on all
 * ranks, or calls fail with TUTTI_MISMATCH. TUTTI_INVALID_ARGUMENT for another name. Any thread;
 * calls of other threads that overlap go the old way or the new one. */
TUTTI_API tutti_result_t tutti_comm_use_wire(tutti_comm_t comm, const char* name);

/* ---- Blocking collectives --------------------------------------------------------------------
 * They return once this rank's output is complete and its buffers are free again. Within a group
 * they return at once, and tutti_group_end waits. Errors: TUTTI_INVALID_ARGUMENT for null buffers,
 * unknown types and operations, and counts that memory can't hold; TUTTI_MISMATCH if ranks call
 * different things; TUTTI_TIMEOUT, TUTTI_PEER_FAILED, TUTTI_ABORTED. */

/* output[i] = op over all ranks of input[i], i < count. Every rank gets the same bits. */
TUTTI_API tutti_result_t tutti_all_reduce(tutti_comm_t comm, const void* input, void* output,
                                          size_t count, tutti_data_type_t type, tutti_op_t op);

/* The sum of scale * input[i]; each rank has its own scale (for integers it is cut to one). */
TUTTI_API tutti_result_t tutti_all_reduce_pre_mul_sum(tutti_comm_t comm, const void* input,
                                                      void* output, size_t count,
                                                      tutti_data_type_t type, double scale);

/* output[i] = op over all ranks of input[rank * count + i], i < count. The input holds
 * rank_count * count elements, the output count. */
TUTTI_API tutti_result_t tutti_reduce_scatter(tutti_comm_t comm, const void* input, void* output,
                                              size_t count, tutti_data_type_t type, tutti_op_t op);

/* The same with the sum of scale * input, each rank with its own scale. */
TUTTI_API tutti_result_t tutti_reduce_scatter_pre_mul_sum(tutti_comm_t comm, const void* input,
                                                          void* output, size_t count,
                                                          tutti_data_type_t type, double scale);

/* output[r * count + i] = input[i] of rank r, i < count. The input holds count elements, the output
 * rank_count * count. */
TUTTI_API tutti_result_t tutti_all_gather(tutti_comm_t comm, const void* input, void* output,
                                          size_t count, tutti_data_type_t type);

/* output[i] = input[i] of rank `root`, i < count. Only the root's input is read; the others may
 * pass NULL. */
TUTTI_API tutti_result_t tutti_broadcast(tutti_comm_t comm, const void* input, void* output,
                                         size_t count, tutti_data_type_t type, int root);

/* output[i] = op over all ranks of input[i], i < count, at rank `root`; the others may pass NULL
 * for the output. */
TUTTI_API tutti_result_t tutti_reduce(tutti_comm_t comm, const void* input, void* output,
                                      size_t count, tutti_data_type_t type, tutti_op_t op,
                                      int root);

/* The same with the sum of scale * input, each rank with its own scale. */
TUTTI_API tutti_result_t tutti_reduce_pre_mul_sum(tutti_comm_t comm, const void* input,
                                                  void* output, size_t count,
                                                  tutti_data_type_t type, double scale, int root);

/* output[r * count + i] = input[i] of rank r, i < count, at rank `root`, where the output holds
 * rank_count * count elements; the others may pass NULL for it. */
TUTTI_API tutti_result_t tutti_gather(tutti_comm_t comm, const void* input, void* output,
                                      size_t count, tutti_data_type_t type, int root);

/* output[i] = input[rank * count + i] of rank `root`, i < count. Only the root's input is read, and
 * holds rank_count * count elements; the others may pass NULL. */
TUTTI_API tutti_result_t tutti_scatter(tutti_comm_t comm, const void* input, void* output,
                                       size_t count, tutti_data_type_t type, int root);

/* output[r * count + i] = input[rank * count + i] of rank r, i < count. Input and output hold
 * rank_count * count elements. */
TUTTI_API tutti_result_t tutti_all_to_all(tutti_comm_t comm, const void* input, void* output,
                                          size_t count, tutti_data_type_t type);

/* output[i] = op over the ranks 0 ... rank of input[i], i < count: the last rank's is what an
 * all-reduce gives. TUTTI_AVG divides by the rank count on every rank. */
TUTTI_API tutti_result_t tutti_scan(tutti_comm_t comm, const void* input, void* output,
                                    size_t count, tutti_data_type_t type, tutti_op_t op);

/* The same over the ranks 0 ... rank - 1. Rank 0 gets nothing: its output is left as it is, and may
 * be NULL. */
TUTTI_API tutti_result_t tutti_exclusive_scan(tutti_comm_t comm, const void* input, void* output,
                                              size_t count, tutti_data_type_t type, tutti_op_t op);

/* Returns once every rank has called it. */
TUTTI_API tutti_result_t tutti_barrier(tutti_comm_t comm);

/* ---- Asynchronous collectives ----------------------------------------------------------------
 * The same, started at once and carried on by the process's progress thread. The buffers are the
 * library's until the work is done. On success *work is a handle that is given back with
 * tutti_work_free; on failure it is NULL. */

TUTTI_API tutti_result_t tutti_start_all_reduce(tutti_comm_t comm, const void* input, void* output,
                                                size_t count, tutti_data_type_t type, tutti_op_t op,
                                                tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_all_reduce_pre_mul_sum(tutti_comm_t comm, const void* input,
                                                            void* output, size_t count,
                                                            tutti_data_type_t type, double scale,
                                                            tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_reduce_scatter(tutti_comm_t comm, const void* input,
                                                    void* output, size_t count,
                                                    tutti_data_type_t type, tutti_op_t op,
                                                    tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_reduce_scatter_pre_mul_sum(tutti_comm_t comm,
                                                                const void* input, void* output,
                                                                size_t count,
                                                                tutti_data_type_t type,
                                                                double scale, tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_all_gather(tutti_comm_t comm, const void* input, void* output,
                                                size_t count, tutti_data_type_t type,
                                                tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_broadcast(tutti_comm_t comm, const void* input, void* output,
                                               size_t count, tutti_data_type_t type, int root,
                                               tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_reduce(tutti_comm_t comm, const void* input, void* output,
                                            size_t count, tutti_data_type_t type, tutti_op_t op,
                                            int root, tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_reduce_pre_mul_sum(tutti_comm_t comm, const void* input,
                                                        void* output, size_t count,
                                                        tutti_data_type_t type, double scale,
                                                        int root, tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_gather(tutti_comm_t comm, const void* input, void* output,
                                            size_t count, tutti_data_type_t type, int root,
                                            tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_scatter(tutti_comm_t comm, const void* input, void* output,
                                             size_t count, tutti_data_type_t type, int root,
                                             tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_all_to_all(tutti_comm_t comm, const void* input, void* output,
                                                size_t count, tutti_data_type_t type,
                                                tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_scan(tutti_comm_t comm, const void* input, void* output,
                                          size_t count, tutti_data_type_t type, tutti_op_t op,
                                          tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_exclusive_scan(tutti_comm_t comm, const void* input,
                                                    void* output, size_t count,
                                                    tutti_data_type_t type, tutti_op_t op,
                                                    tutti_work_t* work);

/* ---- Messages ---------------------------------------------------------------------------------
 * From one rank to another. Both ends name the same count and type, else TUTTI_MISMATCH on all
 * ranks. Those from one rank to another arrive in the order in which they were sent, those with a
 * tag (tutti_tags.h) in the order of that tag; beside that they order nothing. tutti_send may
 * return before the message was received, or not: two ranks that send to each other do so in a
 * group, or start their messages. */

TUTTI_API tutti_result_t tutti_send(tutti_comm_t comm, const void* data, size_t count,
                                    tutti_data_type_t type, int to);
TUTTI_API tutti_result_t tutti_recv(tutti_comm_t comm, void* data, size_t count,
                                    tutti_data_type_t type, int from);
TUTTI_API tutti_result_t tutti_start_send(tutti_comm_t comm, const void* data, size_t count,
                                          tutti_data_type_t type, int to, tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_recv(tutti_comm_t comm, void* data, size_t count,
                                          tutti_data_type_t type, int from, tutti_work_t* work);

/* Receives from whichever other rank sends first while no receive that names it waits.
 * *from becomes -1, and that rank before the call returns or the work is done; it has to live until
 * then, in a group until its end. Errors as of tutti_recv; TUTTI_INVALID_ARGUMENT also if `from` is
 * NULL or there is no other rank, TUTTI_PEER_FAILED once all other ranks have ended. */
TUTTI_API tutti_result_t tutti_recv_any(tutti_comm_t comm, void* data, size_t count,
                                        tutti_data_type_t type, int* from);
TUTTI_API tutti_result_t tutti_start_recv_any(tutti_comm_t comm, void* data, size_t count,
                                              tutti_data_type_t type, int* from,
                                              tutti_work_t* work);

/* ---- Work ----------------------------------------------------------------------------------- */

/* Sleeps until the work is done and returns how it ended. A negative timeout waits as long as the
 * call's own deadline allows. TUTTI_TIMEOUT after `timeout_ms`: it goes on and can be waited for
 * again. Any thread, also several. */
TUTTI_API tutti_result_t tutti_work_wait(tutti_work_t work, int timeout_ms);

/* *done becomes 1 once the work is done, also when it failed (tutti_work_wait says how), else 0. */
TUTTI_API tutti_result_t tutti_work_test(tutti_work_t work, int* done);

/* Calls callback(user, result, text) once: on the progress thread when the work is done (of a
 * group's messages maybe on the one that ends it), or at once if it is. `text` is "" or the error
 * in one line, valid during the call. Waiting for work on the progress thread is an error there. A
 * communicator destroyed there goes after its last call. Called even if the handle was freed. */
typedef void (*tutti_callback_t)(void* user, tutti_result_t result, const char* text);
TUTTI_API tutti_result_t tutti_work_then(tutti_work_t work, tutti_callback_t callback, void* user);

/* Gives the handle back; the work goes on. NULL is legal. */
TUTTI_API tutti_result_t tutti_work_free(tutti_work_t work);

/* ---- Groups ----------------------------------------------------------------------------------
 * Collectives and messages that this thread calls between start and end, on one or more
 * communicators, take place as one: none blocks before the end, so one thread can drive several
 * ranks, and messages may be named in any order. Messages to oneself need their other half in the
 * group. */

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

/* Makes memory of the caller's known: `data` has to be a shared mapping of the file `fd`, open for
 * writing, at `offset`, `bytes` long. The file must not shrink while it is registered. */
TUTTI_API tutti_result_t tutti_register(tutti_comm_t comm, void* data, size_t bytes, int fd,
                                        size_t offset);
TUTTI_API tutti_result_t tutti_deregister(tutti_comm_t comm, void* data);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*) */
#include "tutti/tutti_options.h" /* IWYU pragma: export */
#include "tutti/tutti_spans.h"   /* IWYU pragma: export */
#include "tutti/tutti_tags.h"    /* IWYU pragma: export */
#include "tutti/tutti_user_op.h" /* IWYU pragma: export */
#include "tutti/tutti_vectors.h" /* IWYU pragma: export */
#include "tutti/tutti_windows.h" /* IWYU pragma: export */
#endif
