// Ranks as a grid: each belongs to a communicator of its row and to one of its column, as in tensor
// and data parallel training. A group makes calls on both take place as one.
#include <tutti/typed.h>

#include <cstdio>

int main() {
  auto world = tutti::Communicator::from_environment().value();
  const int rank = world.rank().value, columns = world.rank_count() >= 4 ? 2 : 1;
  auto row = world.split(rank / columns, rank).value();
  auto column = world.split(rank % columns, rank).value();

  int in_row[] = {rank}, in_column[] = {rank};
  tutti::Group group;
  tutti::all_reduce(row, in_row, tutti::ReduceOp::kSum).value();
  tutti::all_reduce(column, in_column, tutti::ReduceOp::kMax).value();
  group.end().value();

  std::printf("rank %d: row of %d, sum %d; column of %d, largest %d\n", rank, row.rank_count(),
              in_row[0], column.rank_count(), in_column[0]);
  const int first = rank / columns * columns;
  int expected = 0;
  for (int i = 0; i < row.rank_count(); ++i) expected += first + i;
  const int last = rank % columns + (column.rank_count() - 1) * columns;
  return in_row[0] == expected && in_column[0] == last ? 0 : 1;
}
