/* Four ranks driven by one thread: each starts an all-reduce, the group's end waits for all. A span
 * is around it. */
#include <stdio.h>
#include <tutti/tutti.h>

#define RANKS 4

static int fail(const char* where) {
  fprintf(stderr, "%s: %s\n", where, tutti_last_error());
  return 1;
}

int main(void) {
  tutti_comm_t comms[RANKS];
  tutti_spans_t row; /* NULL without TUTTI_TRACE. */
  tutti_span_t span;
  float in[RANKS][3], out[RANKS][3];
  int r, i;
  if (tutti_get_version() != TUTTI_VERSION_NUMBER) return fail("version");
  if (tutti_comm_init_all(comms, RANKS) != TUTTI_OK) return fail("init");
  if (tutti_spans_create(comms[0], "consumer", &row) != TUTTI_OK) return fail("spans_create");
  span = tutti_span_begin(row, "sum of", "4 ranks");
  if (tutti_group_start() != TUTTI_OK) return fail("group_start");
  for (r = 0; r < RANKS; ++r) {
    for (i = 0; i < 3; ++i) in[r][i] = (float)(r + i);
    if (tutti_all_reduce(comms[r], in[r], out[r], 3, TUTTI_FLOAT32, TUTTI_SUM) != TUTTI_OK)
      return fail("all_reduce");
  }
  if (tutti_group_end() != TUTTI_OK) return fail("group_end");
  tutti_span_end(&span);
  tutti_spans_free(row);
  for (r = 0; r < RANKS; ++r) {
    for (i = 0; i < 3; ++i) {
      if (out[r][i] != (float)(6 + RANKS * i)) {
        fprintf(stderr, "rank %d, element %d: %g\n", r, i, out[r][i]);
        return 1;
      }
    }
    if (tutti_comm_destroy(comms[r]) != TUTTI_OK) return fail("destroy");
  }
  puts("C: 4 ranks agree on the sum");
  return 0;
}
