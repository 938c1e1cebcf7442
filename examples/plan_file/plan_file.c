/* An algorithm of one's own, as a file: ring.plan, which the library verifies and then runs for the
 * calls that it fits. A ring adds in another order on each rank, hence the relaxed contract.
 * docs/plan-format.md says how to write one.
 *
 *   tutti run -n 4 -- build/plan_file ring.plan */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

static void check(tutti_result_t result) {
  if (result == TUTTI_OK) return;
  fprintf(stderr, "%s\n", tutti_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  enum { kCount = 100000 };
  static float data[kCount];
  static char text[16384];
  char setting[4096];
  tutti_comm_t comm;
  int rank, ranks;
  if (argc != 2) {
    fprintf(stderr, "usage: plan_file FILE\n");
    return 2;
  }
  snprintf(setting, sizeof setting, "TUTTI_PLAN=%s", argv[1]);
  const char* const settings[] = {setting, "TUTTI_CONTRACT=relaxed", NULL};
  tutti_config_t config = {.size = sizeof config};
  config.settings = settings;
  check(tutti_comm_init_config(&comm, &config));
  check(tutti_comm_rank(comm, &rank));
  check(tutti_comm_count(comm, &ranks));
  for (size_t i = 0; i < kCount; ++i) data[i] = (float)rank;
  check(tutti_all_reduce(comm, data, data, kCount, TUTTI_FLOAT32, TUTTI_SUM));
  check(tutti_comm_explain(comm, "all_reduce", data, data, kCount, TUTTI_FLOAT32, 0, text,
                           sizeof text, NULL));
  if (rank == 0) fputs(text, stdout);
  check(tutti_comm_destroy(comm));
  /* The plan's name, from the file's first line. */
  if (strstr(text, "my_ring") == NULL) return 1;
  return data[kCount - 1] == (float)(ranks * (ranks - 1) / 2) ? 0 : 1;
}
