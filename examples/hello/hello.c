/* Each rank gives its number, and all get the sum: the smallest program in C. */
#include <stdio.h>
#include <tutti/tutti.h>

int main(void) {
  tutti_comm_t comm;
  int rank, ranks, sum;
  if (tutti_comm_init_env(&comm) != TUTTI_OK) {
    fprintf(stderr, "%s\n", tutti_last_error());
    return 1;
  }
  tutti_comm_rank(comm, &rank);
  tutti_comm_count(comm, &ranks);
  if (tutti_all_reduce(comm, &rank, &sum, 1, TUTTI_INT32, TUTTI_SUM) != TUTTI_OK) {
    fprintf(stderr, "%s\n", tutti_last_error());
    return 1;
  }
  printf("rank %d of %d: the sum of all ranks is %d\n", rank, ranks, sum);
  tutti_comm_destroy(comm);
  return sum == ranks * (ranks - 1) / 2 ? 0 : 1;
}
