/* File: tutti/tutti_options.h: the C API's functions that take a structure of options: joining with
 * settings and a meeting point of the program's own, any collective by one function, also prepared
 * once and made often, and waiting for several works. tutti.h includes it, and describes what all
 * functions have in common.
 *
 *   const char* settings[] = {"TUTTI_TIMEOUT_MS=5000", "TUTTI_CONTRACT=relaxed", NULL};
 *   tutti_config_t config = {.size = sizeof config};
 *   config.settings = settings;
 *   if (tutti_comm_init_config(&comm, &config) != TUTTI_OK) ...
 *
 * A structure begins with its size, so that a program built with this header runs with later
 * libraries. What is 0 or NULL is as if it was not there.
 */
#ifndef TUTTI_TUTTI_OPTIONS_H
#define TUTTI_TUTTI_OPTIONS_H

/* C has neither `using` nor <cstddef>. NOLINTBEGIN(modernize-*) */
#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A meeting point of the program's own: a store that all ranks of the job see (etcd, MPI, a
 * key-value server). Keys are texts of at most 256 bytes, values at most 16 MiB. Threads may call
 * both functions at the same time. A key is put once, but for "tutti/failed". */
typedef struct {
  void* user; /* The functions' first argument. */
  /* Stores a value under a key; one that is there is replaced. 0, or it failed. */
  int (*put)(void* user, const char* key, const void* value, size_t bytes);
  /* Waits until a rank has put the key, at most `timeout_ms`: then calls take(into, value, bytes)
   * and returns 0. 1: no rank has put it in that time. Negative: it failed. */
  int (*get)(void* user, const char* key, int timeout_ms,
             void (*take)(void* into, const void* value, size_t bytes), void* into);
} tutti_store_t;

/* How to join. */
typedef struct {
  size_t size; /* sizeof(tutti_config_t) */
  /* This communicator's settings, as "NAME=VALUE" by the names of environment variables
   * (settings.h), and NULL behind the last. They go before the environment's. */
  const char* const* settings;
  /* Where the ranks meet: at an id (tutti_comm_init_rank), at a place (tutti_comm_init_at, which
   * also describes `job`), or at a store; at most one of these. Without them: where the launcher
   * says. */
  const tutti_unique_id_t* id;
  const char* rendezvous;
  const tutti_store_t* store; /* Used until the ranks have joined, and not kept. */
  const char* job;
  int rank, rank_count; /* rank_count 0: both as the launcher says. */
} tutti_config_t;

/* Joins as `config` says. Collective. Errors as with tutti_comm_init_rank; TUTTI_INVALID_ARGUMENT
 * names the setting that there is not, or what it takes. */
TUTTI_API tutti_result_t tutti_comm_init_config(tutti_comm_t* comm, const tutti_config_t* config);

typedef int tutti_collective_t;
enum {
  TUTTI_ALL_REDUCE = 0,
  TUTTI_REDUCE_SCATTER = 1,
  TUTTI_ALL_GATHER = 2,
  TUTTI_BROADCAST = 3,
  TUTTI_REDUCE = 4,
  TUTTI_GATHER = 5,
  TUTTI_SCATTER = 6,
  TUTTI_ALL_TO_ALL = 7,
  TUTTI_SCAN = 8,
  TUTTI_EXCLUSIVE_SCAN = 9
};

/* A collective; tutti.h has a function for each that says what the members mean. */
typedef struct {
  size_t size; /* sizeof(tutti_call_t) */
  tutti_collective_t collective;
  const void* input;
  void* output;
  size_t count;
  tutti_data_type_t type;
  tutti_op_t op;
  const double* scale; /* For a sum: this rank's factor, see tutti_all_reduce_pre_mul_sum. */
  int root;
  /* Not 0: blocks of different sizes. Lists with a number for each rank, see tutti_gather_v and the
   * like. */
  int vector_variant;
  const size_t *input_counts, *input_offsets, *output_counts, *output_offsets;
  /* For this call alone, alike on all ranks: see tutti_comm_use_algorithm, tutti_comm_use_wire. */
  const char* algorithm;
  const char* wire;
} tutti_call_t;

TUTTI_API tutti_result_t tutti_call(tutti_comm_t comm, const tutti_call_t* call);
TUTTI_API tutti_result_t tutti_start_call(tutti_comm_t comm, const tutti_call_t* call,
                                          tutti_work_t* work);

/* A call that is checked once and made many times, on the same buffers, whose contents change:
 * MPI's persistent collectives, and the shortest way to a small call. Not collective, and nothing
 * is sent; ranks need not prepare alike. What `call` points to is copied, but for the buffers. The
 * algorithm and wire are those of `call`, or what tutti_comm_use_algorithm and tutti_comm_use_wire
 * named last before. */
typedef struct tutti_prepared* tutti_prepared_t;
TUTTI_API tutti_result_t tutti_prepare(tutti_comm_t comm, const tutti_call_t* call,
                                       tutti_prepared_t* prepared);

/* Makes the call, as tutti_call and tutti_start_call. TUTTI_INVALID_ARGUMENT once its communicator
 * is destroyed. */
TUTTI_API tutti_result_t tutti_prepared_run(tutti_prepared_t prepared);
TUTTI_API tutti_result_t tutti_prepared_start(tutti_prepared_t prepared, tutti_work_t* work);

/* What was started goes on. NULL is legal. */
TUTTI_API tutti_result_t tutti_prepared_free(tutti_prepared_t prepared);

/* Waits as tutti_work_wait does, until all of `count` works are done, or `timeout_ms` in all have
 * passed. The first error of any, by their order. */
TUTTI_API tutti_result_t tutti_work_wait_all(const tutti_work_t* works, size_t count,
                                             int timeout_ms);

/* Waits until one of them is done: *index is its place, and the result how it ended. NULLs are
 * passed over. *index is `count` on TUTTI_TIMEOUT after `timeout_ms`, and with
 * TUTTI_INVALID_ARGUMENT: all are NULL, or this thread has a group open. */
TUTTI_API tutti_result_t tutti_work_wait_any(const tutti_work_t* works, size_t count,
                                             int timeout_ms, size_t* index);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*) */
#endif
