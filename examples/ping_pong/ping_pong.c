/* Two ranks send a message to and fro, and rank 0 says how long one way takes: sizes from 8 bytes
 * to 1 MiB. Other ranks look on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>

enum { kRounds = 200, kMostBytes = 1 << 20 };

static void check(tutti_result_t result) {
  if (result == TUTTI_OK) return;
  fprintf(stderr, "%s\n", tutti_last_error());
  exit(1);
}

static double now_us(void) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

int main(void) {
  tutti_comm_t comm;
  int rank, ranks;
  static unsigned char data[kMostBytes];
  check(tutti_comm_init_env(&comm));
  check(tutti_comm_rank(comm, &rank));
  check(tutti_comm_count(comm, &ranks));
  if (ranks < 2) {
    fprintf(stderr, "ping_pong takes two ranks: tutti run -n 2 -- ping_pong\n");
    return 1;
  }
  for (size_t bytes = 8; rank < 2 && bytes <= kMostBytes; bytes *= 8) {
    if (rank == 0) memset(data, 7, bytes);
    const double start = now_us();
    for (int round = 0; round < kRounds; ++round) {
      if (rank == 0) check(tutti_send(comm, data, bytes, TUTTI_UINT8, 1));
      check(tutti_recv(comm, data, bytes, TUTTI_UINT8, 1 - rank));
      if (rank == 1) check(tutti_send(comm, data, bytes, TUTTI_UINT8, 0));
    }
    if (rank == 0) printf("%8zu bytes: %9.2f us\n", bytes, (now_us() - start) / (2 * kRounds));
    if (data[bytes - 1] != 7) return 1;
  }
  check(tutti_barrier(comm));
  check(tutti_comm_destroy(comm));
  return 0;
}
