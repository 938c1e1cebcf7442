/* File: tutti/tutti_spans.h: the C API's spans: what a program does between its calls, in the trace
 * beside them. tutti.h includes it. It is spans.h in C.
 *
 *   tutti_spans_t row;
 *   tutti_spans_create(comm, "layers", &row);
 *   for (i = 0; i < layers; ++i) {
 *     tutti_span_t span = tutti_span_begin(row, "forward", names[i]);
 *     forward(i);
 *     tutti_span_end(&span);
 *   }
 *   tutti_spans_free(row);
 *
 * With TUTTI_TRACE the file that has the calls of all ranks then also has these spans, in a row of
 * the rank's own. Without it the row is NULL, and a span costs two calls that compare a pointer.
 *
 * A span is a structure of the caller's, so that it begins and ends without allocating or locking,
 * and a span that is never ended, as where a function returns early, is not in the trace and does
 * no harm to others. A row keeps its latest 32,768 spans, of those that have ended when the
 * communicator is destroyed or the process exits.
 *
 * One thread at a time uses a row and its spans; each thread of a program may have a row of its
 * own.
 */
#ifndef TUTTI_TUTTI_SPANS_H
#define TUTTI_TUTTI_SPANS_H

/* C has neither `using` nor <cstddef>. NOLINTBEGIN(modernize-*) */
#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A row of spans. */
typedef struct tutti_spans* tutti_spans_t;

/* A span that has begun. Its members are the library's. All zeros: a span that records nothing. */
typedef struct {
  void* row; /* NULL: it records nothing. */
  int64_t begin_ns;
  char name[48]; /* Ended by zeros, if it is shorter. */
} tutti_span_t;

/* *spans becomes a row named "rank N, ROW", to be given back with tutti_spans_free; NULL if the
 * communicator is not traced, which is TUTTI_OK, and on failure. `row` NULL: "program". The row may
 * outlive the communicator, after which it records nothing that is seen. Not collective; any
 * thread. TUTTI_SYSTEM if there is no memory. */
TUTTI_API tutti_result_t tutti_spans_create(tutti_comm_t comm, const char* row,
                                            tutti_spans_t* spans);

/* Begins a span named "WHAT OF", of which the first 48 bytes count. `of` may be NULL. Both texts
 * are copied. Can't fail: a row that is NULL gives a span that records nothing. */
TUTTI_API tutti_span_t tutti_span_begin(tutti_spans_t spans, const char* what, const char* of);

/* Ends a span, whose row was not given back. Spans nest: the one that began last ends first. Can't
 * fail: one that was ended before, or records nothing, is left as it is, and NULL is legal. */
TUTTI_API void tutti_span_end(tutti_span_t* span);

/* Gives the row back; what has ended stays in the trace. NULL is legal. */
TUTTI_API tutti_result_t tutti_spans_free(tutti_spans_t spans);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*) */
#endif
