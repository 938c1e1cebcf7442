/* File: tutti/cuda.h: the C API for memory of GPUs. `device_communicator.h` is the same in C++.
 *
 *   tutti_device_comm_t comm;
 *   if (tutti_device_comm_init_env(&comm) != TUTTI_OK) { puts(tutti_last_error()); exit(1); }
 *   tutti_all_reduce_on_stream(comm, in, out, count, TUTTI_FLOAT32, TUTTI_SUM, stream);
 *   cudaStreamSynchronize(stream);
 *   if (tutti_device_comm_check(comm) != TUTTI_OK) { puts(tutti_last_error()); exit(1); }
 *   tutti_device_comm_destroy(comm);
 *
 * Only in builds with CUDA, whose headers it does not need. What tutti.h says of errors, shapes, in
 * place and threads holds here too. What is different:
 *
 * Buffers     Memory that the rank's device can access.
 * Streams     `stream` is a cudaStream_t; NULL is the default stream of the rank's device. Calls
 *             return at once. Those of one communicator take place in the order in which they were
 *             made, on whatever streams.
 * Graphs      Calls may be captured. What a call needs is made when something like it is called
 *             first; call it once before, or tutti_device_comm_prepare it. Replays and other calls
 *             take place in the order in which they are launched, on whatever streams.
 * Groups      tutti_group_start and tutti_group_end: calls begin at the end, which does not wait.
 *             One thread that drives several ranks does so in a group.
 * Failures    A kernel ends when one of its waits for a peer lasts longer than TUTTI_TIMEOUT_MS,
 *             when ranks make calls that differ, once a peer has died, and after an abort.
 *             tutti_device_comm_check says so. Results are not complete then.
 */
#ifndef TUTTI_CUDA_H
#define TUTTI_CUDA_H

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A communicator of devices as one rank sees it. */
typedef struct tutti_device_comm* tutti_device_comm_t; /* NOLINT(modernize-use-using): this is C. */

/* ---- Communicators ---------------------------------------------------------------------------
 * On success *comm is a handle that is given back with tutti_device_comm_destroy; on failure NULL.
 */

/* Joins the job `id` as `rank`, with the device of that number in this process. Collective.
 * Ranks may be on several hosts. TUTTI_MISMATCH: some ranks make a communicator of host memory
 * there. TUTTI_UNSUPPORTED: devices without room for the blocks of all ranks that share them. */
TUTTI_API tutti_result_t tutti_device_comm_init_rank(tutti_device_comm_t* comm,
                                                     const tutti_unique_id_t* id, int rank,
                                                     int rank_count, int device);

/* The same with a time limit of its own instead of TUTTI_TIMEOUT_MS, alike on all ranks: more than
 * 0 ms. */
TUTTI_API tutti_result_t tutti_device_comm_init_rank_within(tutti_device_comm_t* comm,
                                                            const tutti_unique_id_t* id, int rank,
                                                            int rank_count, int device,
                                                            int timeout_ms);

/* Joins the job that the launcher describes in the environment, with the device of the local rank,
 * counted around where there are fewer. Collective. */
TUTTI_API tutti_result_t tutti_device_comm_init_env(tutti_device_comm_t* comm);

/* Makes a communicator for each device in this process: comms[r] is rank r's, on devices[r]; NULL:
 * devices 0, 1, ... */
TUTTI_API tutti_result_t tutti_device_comm_init_all(tutti_device_comm_t* comms, const int* devices,
                                                    int rank_count);

/* As tutti_comm_split. Waits for the other ranks. */
TUTTI_API tutti_result_t tutti_device_comm_split(tutti_device_comm_t comm, int color, int key,
                                                 tutti_device_comm_t* part);

/* Waits for what was called on it, and a little for the other ranks, then frees it. Ranks and
 * communicators may be destroyed in any order. NULL is legal. */
TUTTI_API tutti_result_t tutti_device_comm_destroy(tutti_device_comm_t comm);

/* Ends all calls on this rank at once, and on the others within about 100 ms. `reason` is one line,
 * or NULL. Any thread, any time, twice too. */
TUTTI_API tutti_result_t tutti_device_comm_abort(tutti_device_comm_t comm, const char* reason);

/* After a failure, as tutti_comm_health and so on. tutti_device_comm_health says what
 * tutti_device_comm_check does, and which rank has died though no call waits for it.
 * tutti_device_comm_shrink: `completed` counts neither replays of graphs nor the vector variants.
 * tutti_device_comm_grow: new ranks call tutti_device_comm_init_rank. */
TUTTI_API tutti_result_t tutti_device_comm_health(tutti_device_comm_t comm);
TUTTI_API tutti_result_t tutti_device_comm_revoke(tutti_device_comm_t comm, const char* reason);
TUTTI_API tutti_result_t tutti_device_comm_shrink(tutti_device_comm_t comm, const int* excluded,
                                                  int excluded_count, tutti_device_comm_t* shrunk,
                                                  int* members, uint64_t* completed);
TUTTI_API tutti_result_t tutti_device_comm_agree(tutti_device_comm_t comm, uint64_t* flags);
TUTTI_API tutti_result_t tutti_device_comm_grow(tutti_device_comm_t comm,
                                                const tutti_unique_id_t* id, int rank_count,
                                                tutti_device_comm_t* grown);

/* TUTTI_OK, or why calls have ended early: TUTTI_TIMEOUT, TUTTI_MISMATCH, TUTTI_PEER_FAILED,
 * TUTTI_ABORTED, TUTTI_REVOKED. Does not wait. Any thread, any time. */
TUTTI_API tutti_result_t tutti_device_comm_check(tutti_device_comm_t comm);

TUTTI_API tutti_result_t tutti_device_comm_rank(tutti_device_comm_t comm, int* rank);
TUTTI_API tutti_result_t tutti_device_comm_count(tutti_device_comm_t comm, int* rank_count);
TUTTI_API tutti_result_t tutti_device_comm_device(tutti_device_comm_t comm, int* device);
/* Bytes of its device's memory that this rank holds. */
TUTTI_API tutti_result_t tutti_device_comm_bytes(tutti_device_comm_t comm, size_t* bytes);
/* As tutti_comm_describe. */
TUTTI_API tutti_result_t tutti_device_comm_describe(tutti_device_comm_t comm, char* text,
                                                    size_t size, size_t* needed);

/* As tutti_comm_explain; times are estimates. */
TUTTI_API tutti_result_t tutti_device_comm_explain(tutti_device_comm_t comm, const char* collective,
                                                   size_t count, tutti_data_type_t type, int root,
                                                   char* text, size_t size, size_t* needed);

/* Calls body(data) while this thread's capture mode (cudaThreadExchangeStreamCaptureMode) is
 * relaxed, and restores the mode. Within `body` the thread may query or wait for an event, or
 * allocate, while other threads capture streams: without this such a call fails and invalidates
 * their captures. Not for events that were last recorded within a capture. `body` must not throw.
 * Any thread, any time. */
TUTTI_API tutti_result_t tutti_cuda_relaxed_capture(void (*body)(void* data), void* data);

/* *capturing: whether calls on the stream, a cudaStream_t, are being captured now. Any thread, any
 * time. */
TUTTI_API tutti_result_t tutti_cuda_is_capturing(void* stream, int* capturing);

/* Makes what calls of this collective ("all_reduce"), size, type and operation will need. `op` and
 * `root` count where the collective has them. Not collective. */
TUTTI_API tutti_result_t tutti_device_comm_prepare(tutti_device_comm_t comm, const char* collective,
                                                   size_t count, tutti_data_type_t type,
                                                   tutti_op_t op, int root);

/* As tutti_comm_use_wire: float32 then goes over slots, also in registered memory. */
TUTTI_API tutti_result_t tutti_device_comm_use_wire(tutti_device_comm_t comm, const char* name);

/* ---- Collectives -----------------------------------------------------------------------------
 * As those of tutti.h without _on_stream, on devices. */

TUTTI_API tutti_result_t tutti_all_reduce_on_stream(tutti_device_comm_t comm, const void* input,
                                                    void* output, size_t count,
                                                    tutti_data_type_t type, tutti_op_t op,
                                                    void* stream);
TUTTI_API tutti_result_t tutti_all_reduce_pre_mul_sum_on_stream(tutti_device_comm_t comm,
                                                                const void* input, void* output,
                                                                size_t count,
                                                                tutti_data_type_t type,
                                                                double scale, void* stream);
TUTTI_API tutti_result_t tutti_reduce_scatter_on_stream(tutti_device_comm_t comm, const void* input,
                                                        void* output, size_t count,
                                                        tutti_data_type_t type, tutti_op_t op,
                                                        void* stream);
TUTTI_API tutti_result_t tutti_reduce_scatter_pre_mul_sum_on_stream(tutti_device_comm_t comm,
                                                                    const void* input, void* output,
                                                                    size_t count,
                                                                    tutti_data_type_t type,
                                                                    double scale, void* stream);
TUTTI_API tutti_result_t tutti_all_gather_on_stream(tutti_device_comm_t comm, const void* input,
                                                    void* output, size_t count,
                                                    tutti_data_type_t type, void* stream);
TUTTI_API tutti_result_t tutti_broadcast_on_stream(tutti_device_comm_t comm, const void* input,
                                                   void* output, size_t count,
                                                   tutti_data_type_t type, int root, void* stream);
TUTTI_API tutti_result_t tutti_reduce_on_stream(tutti_device_comm_t comm, const void* input,
                                                void* output, size_t count, tutti_data_type_t type,
                                                tutti_op_t op, int root, void* stream);
TUTTI_API tutti_result_t tutti_reduce_pre_mul_sum_on_stream(tutti_device_comm_t comm,
                                                            const void* input, void* output,
                                                            size_t count, tutti_data_type_t type,
                                                            double scale, int root, void* stream);
TUTTI_API tutti_result_t tutti_gather_on_stream(tutti_device_comm_t comm, const void* input,
                                                void* output, size_t count, tutti_data_type_t type,
                                                int root, void* stream);
TUTTI_API tutti_result_t tutti_scatter_on_stream(tutti_device_comm_t comm, const void* input,
                                                 void* output, size_t count, tutti_data_type_t type,
                                                 int root, void* stream);
TUTTI_API tutti_result_t tutti_all_to_all_on_stream(tutti_device_comm_t comm, const void* input,
                                                    void* output, size_t count,
                                                    tutti_data_type_t type, void* stream);
TUTTI_API tutti_result_t tutti_scan_on_stream(tutti_device_comm_t comm, const void* input,
                                              void* output, size_t count, tutti_data_type_t type,
                                              tutti_op_t op, void* stream);
TUTTI_API tutti_result_t tutti_exclusive_scan_on_stream(tutti_device_comm_t comm, const void* input,
                                                        void* output, size_t count,
                                                        tutti_data_type_t type, tutti_op_t op,
                                                        void* stream);

/* As tutti_all_gather_v and tutti_all_to_all_v; counts that ranks of a host don't agree on
 * end in TUTTI_MISMATCH, between hosts perhaps only in TUTTI_TIMEOUT. The lists are of the host,
 * and are read before the call returns. */
TUTTI_API tutti_result_t tutti_all_gather_v_on_stream(tutti_device_comm_t comm, const void* input,
                                                      void* output, const size_t* counts,
                                                      const size_t* offsets, tutti_data_type_t type,
                                                      void* stream);
TUTTI_API tutti_result_t tutti_all_to_all_v_on_stream(tutti_device_comm_t comm, const void* input,
                                                      const size_t* input_counts,
                                                      const size_t* input_offsets, void* output,
                                                      const size_t* output_counts,
                                                      const size_t* output_offsets,
                                                      tutti_data_type_t type, void* stream);

/* ---- Registered memory -----------------------------------------------------------------------
 * Calls on it need no copies. */

/* Lets the devices of all ranks of the host access this memory of the rank's device, of whatever
 * allocator. Collective, all with as many bytes. A call's buffer is then in the same place of the
 * same memory on all ranks, or on none; where it is not, the call ends with TUTTI_MISMATCH,
 * between hosts perhaps only at its deadline. It stays the communicator's until it is deregistered,
 * collectively, in any order that all have alike. TUTTI_UNSUPPORTED: devices of a host that don't
 * reach each other's memory, or memory that can't be exported. */
TUTTI_API tutti_result_t tutti_device_register_memory(tutti_device_comm_t comm, void* data,
                                                      size_t bytes);
TUTTI_API tutti_result_t tutti_device_deregister_memory(tutti_device_comm_t comm, void* data);

/* The same, but that each rank closes its window for itself, when none of its calls uses it any
 * more: other ranks may have it open still, so only memory of the driver will do
 * (tutti_device_mem_alloc, cuMemCreate), which stays while somebody maps it. Else
 * TUTTI_UNSUPPORTED.
 */
TUTTI_API tutti_result_t tutti_device_open_window(tutti_device_comm_t comm, void* data,
                                                  size_t bytes);
TUTTI_API tutti_result_t tutti_device_close_window(tutti_device_comm_t comm, void* data);

/* Memory of a device that peers can map, of the driver where that makes such memory; zeroed. Any
 * thread. */
TUTTI_API tutti_result_t tutti_device_mem_alloc(int device, void** data, size_t bytes);
/* Frees what tutti_device_mem_alloc returned; an error for anything else. NULL is legal. Any
 * thread.
 */
TUTTI_API tutti_result_t tutti_device_mem_free(void* data);

/* ---- What follows a sum ----------------------------------------------------------------------
 * In one kernel with it, for up to eight ranks of one host. For TUTTI_FLOAT32, TUTTI_FLOAT16 and
 * TUTTI_BFLOAT16; not within a group. */

/* All-reduce of rows x columns of `input`; then residual += the sum, and
 * output = residual / sqrt(mean(residual^2) + epsilon) * weight, row by row. Rows are of whole
 * units of 16 bytes, and buffers aligned to that; the residual is alike on all ranks; output may be
 * the input. In a kernel of its own if input, residual and output are registered, and else as an
 * all-reduce and what follows, with the same bits. */
TUTTI_API tutti_result_t tutti_all_reduce_rms_norm_on_stream(
    tutti_device_comm_t comm, const void* input, void* residual, void* output, const void* weight,
    size_t rows, size_t columns, tutti_data_type_t type, float epsilon, void* stream);

/* A step of SGD on the average of all ranks' gradients, in float32; then all ranks have the
 * parameters. Both are registered memory. Each rank keeps, in float32, aligned to 16 bytes, master
 * and momentum of its piece alone, which tutti_device_sgd_piece tells. */
TUTTI_API tutti_result_t tutti_sgd_step_on_stream(tutti_device_comm_t comm, const void* gradients,
                                                  void* parameters, size_t count,
                                                  tutti_data_type_t type, float* master,
                                                  float* momentum, float learning_rate,
                                                  float momentum_factor, float weight_decay,
                                                  void* stream);
TUTTI_API tutti_result_t tutti_device_sgd_piece(tutti_device_comm_t comm, size_t count,
                                                tutti_data_type_t type, size_t* piece_first,
                                                size_t* piece_count);

/* ---- Messages --------------------------------------------------------------------------------
 * As those of tutti.h, but that messages and collectives keep their order. Two ranks that send to
 * each other do so in a group. A count that two ranks of a host don't agree on ends in
 * TUTTI_MISMATCH, between hosts perhaps only in TUTTI_TIMEOUT. */

TUTTI_API tutti_result_t tutti_send_on_stream(tutti_device_comm_t comm, const void* data,
                                              size_t count, tutti_data_type_t type, int to,
                                              void* stream);
TUTTI_API tutti_result_t tutti_recv_on_stream(tutti_device_comm_t comm, void* data, size_t count,
                                              tutti_data_type_t type, int from, void* stream);

/* ---- One-sided operations --------------------------------------------------------------------
 * Between ranks of a host whose devices reach each other's memory; else TUTTI_UNSUPPORTED, as
 * within a capture. They take no multiprocessor. In a group they begin at its end. */

/* Copies `bytes` from `data` to rank `to`'s counterpart of `target`, which lies in registered
 * memory or a window. `to` does not learn of it but by a signal. */
TUTTI_API tutti_result_t tutti_put_on_stream(tutti_device_comm_t comm, const void* data,
                                             void* target, size_t bytes, int to, void* stream);
/* Adds one to the signals of this number (0 to 63) that this rank has sent rank `to`. Behind a wait
 * for it, what this rank has put before is there. */
TUTTI_API tutti_result_t tutti_signal_on_stream(tutti_device_comm_t comm, int to, int number,
                                                void* stream);
/* The stream goes on once rank `from` has sent `count` signals of this number more than were waited
 * for before; or after the deadline, an abort or the peer's end, which tutti_device_comm_check then
 * says. */
TUTTI_API tutti_result_t tutti_wait_signal_on_stream(tutti_device_comm_t comm, int from, int number,
                                                     size_t count, void* stream);

#ifdef __cplusplus
}
#endif

#endif
