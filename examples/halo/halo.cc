// Heat in a rod, of which each rank has a piece: in each step neighbours put the temperatures at
// their ends into each other's memory, and a signal says that they are there. Nobody receives.
#include <tutti/window.h>

#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

namespace {

constexpr int kPoints = 1000, kSteps = 200;

/// One step in the points 1 ... n of `old`, whose neighbours at 0 and n + 1 are others' points.
void step(const std::vector<double>& old, std::vector<double>& now) {
  for (std::size_t i = 1; i + 1 < old.size(); ++i)
    now[i] = old[i] + 0.25 * (old[i - 1] - 2 * old[i] + old[i + 1]);
}

double start_at(int point) { return std::sin(0.01 * point); }

/// The same rod in one piece; its ends stay at 0.
std::vector<double> alone(int points) {
  std::vector<double> rod(static_cast<std::size_t>(points) + 2), next = rod;
  for (int i = 0; i < points; ++i) rod[static_cast<std::size_t>(i) + 1] = start_at(i);
  for (int i = 0; i < kSteps; ++i, std::swap(rod, next)) step(rod, next);
  return rod;
}

}  // namespace

int main() {
  auto comm = tutti::Communicator::from_environment().value();
  const int me = comm.rank().value, ranks = comm.rank_count();
  // A place for what comes from the left and one for the right, twice, used in turn: a neighbour
  // may be one step ahead, and must not overwrite what this rank has not read yet.
  auto window = tutti::Window::create(comm, 4 * sizeof(double)).value();
  const auto* const came = reinterpret_cast<const double*>(window.data());

  std::vector<double> mine(kPoints + 2), next = mine;
  for (int i = 0; i < kPoints; ++i)
    mine[static_cast<std::size_t>(i) + 1] = start_at(me * kPoints + i);
  for (int i = 0; i < kSteps; ++i, std::swap(mine, next)) {
    const std::size_t turn = 2 * static_cast<std::size_t>(i % 2);
    // To the left neighbour this rank is the right one, and the other way round.
    const auto give = [&](int to, double end, std::size_t side) {
      if (to < 0 || to >= ranks) return;
      window.put(&end, sizeof end, tutti::Rank{to}, (turn + side) * sizeof(double)).value();
      window.signal(tutti::Rank{to}).value();
    };
    const auto take = [&](int from, std::size_t side) {
      if (from < 0 || from >= ranks) return 0.0;
      window.wait_signal(tutti::Rank{from}).value();
      return came[turn + side];
    };
    give(me - 1, mine[1], 1);
    give(me + 1, mine[kPoints], 0);
    mine[0] = take(me - 1, 0);
    mine[kPoints + 1] = take(me + 1, 1);
    step(mine, next);
  }

  const std::vector<double> whole = alone(ranks * kPoints);
  bool right = true;
  for (std::size_t i = 1; i <= kPoints; ++i)
    right = right && mine[i] == whole[static_cast<std::size_t>(me) * kPoints + i];
  std::printf("rank %d: %s\n", me, right ? "the bits of one piece" : "WRONG");
  window.close().value();
  return right ? 0 : 1;
}
