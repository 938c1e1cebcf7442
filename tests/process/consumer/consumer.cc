// A process that was started alone is rank 0 of 1; under a launcher the same program is any rank.
#include <tutti/communicator.h>

#include <cstdio>
#include <vector>

int main() {
  auto comm = tutti::Communicator::from_environment();
  if (!comm) {
    std::fprintf(stderr, "%s\n", comm.error().to_string().c_str());
    return 1;
  }
  std::vector<float> gradient{1, 2, 3};
  auto status = comm->all_reduce(gradient.data(), gradient.data(), gradient.size(),
                                 tutti::DataType::kFloat32, tutti::ReduceOp::kSum);
  if (!status) {
    std::fprintf(stderr, "%s\n", status.error().to_string().c_str());
    return 1;
  }
  std::printf("C++: rank %d of %d has %g\n", comm->rank().value, comm->rank_count(),
              static_cast<double>(gradient[2]));
  return 0;
}
