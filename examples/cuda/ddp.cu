// Data-parallel training on GPUs: every rank has the whole model in the memory of its device, and
// computes the gradient over its share of the batch. The mean of the gradients changes all replicas
// alike.
//
//   g = 1/B sum over ranks r of g_r          v = m v + g          w = w - a v
//   sent on each rank and step: 2 (N-1)/N S; held: parameters, gradients, momentum, all whole
//   --zero1: g_shard = reduce-scatter(g_r), the same update of the shard, w = all-gather(w_shard);
//   as many bytes, and a rank holds 1/N of the momentum
//
// Li et al.: PyTorch Distributed: Experiences on Accelerating Data Parallel Training, 2020.
// --zero1: Rajbhandari et al.: ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models, 2020.
//
// Backward goes from the last layer to the first. A bucket is a run of layers. Once the kernels
// that write a bucket are launched, an event is recorded behind them. The communication stream
// waits for it, sums the bucket over the ranks and updates its weights, while backward computes the
// layers before. The next forward pass waits for a bucket where it first needs it. Buckets lie in a
// window: of buckets as large as those of real models, ranks read each other's gradients where they
// are. Those of this network are so small that the library takes its low-latency slots.
//
// A batch is cut into 8 slices. A rank adds up its slices' gradients as a balanced tree, and the
// library's canonical order goes on with the tree over ranks: so 1, 2, 4 and 8 ranks get the same
// weights to the last bit. Rank 0 trains once more, alone, and compares.
//
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr examples/cuda/ddp.cu -ltutti -o ddp
//   tutti run -n 8 -- ./ddp trainer/data/digits.csv [--zero1]
#include <algorithm>
#include <cstring>

#include "mlp.cuh"

using tutti::Collective, tutti::DataType, tutti::DeviceCommunicator;

constexpr unsigned kBatch = 128, kSlices = 8, kEpochs = 4;
constexpr unsigned kBucketFloats = 4096;
constexpr unsigned kPadding = kSlices * 4;  // A rank's shard of a bucket begins at 16 bytes.
constexpr float kRate = 0.1F, kMomentum = 0.8F;
constexpr double kTargetLoss = 0.3;

struct Event {
  Event() { require(cudaEventCreate(&event), "cudaEventCreate"); }
  void record(cudaStream_t stream) { require(cudaEventRecord(event, stream), "cudaEventRecord"); }
  /// What the stream gets from here on is behind the event.
  void wait(cudaStream_t stream) {
    require(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
  }
  /// Milliseconds since another one; both are over.
  float since(const Event& other) const {
    float ms = 0;
    require(cudaEventElapsedTime(&ms, other.event, event), "cudaEventElapsedTime");
    return ms;
  }
  cudaEvent_t event = nullptr;
};

struct Bucket {
  unsigned first_layer, offset, count;
  Event written, began, ended;
};

/// One rank's replica. Without a communicator: a rank that trains alone, on whole batches.
class Trainer {
 public:
  Trainer(const Digits& data, DeviceCommunicator* comm, bool zero1)
      : comm_(comm),
        zero1_(zero1),
        ranks_(comm == nullptr ? 1 : static_cast<unsigned>(comm->rank_count())),
        me_(comm == nullptr ? 0 : static_cast<unsigned>(comm->rank().value)),
        compute_(make_stream(false)),
        traffic_(make_stream(true)),
        network_(data, kBatch / ranks_, kSlices / ranks_, compute_) {
    fill_buckets();
    open_memory();
  }

  /// One synchronised step over rows [first, first + kBatch) of the data.
  void step(unsigned first) {
    first += me_ * kBatch / ranks_;
    for (unsigned l = 0; l < kLayers; ++l) {
      for (Bucket& bucket : buckets_) {
        if (bucket.first_layer == l) bucket.ended.wait(compute_);
      }
      network_.forward(l, first, weights_ + offsets_[l]);
    }
    network_.begin_backward(first);
    backward_began_.record(compute_);
    auto bucket = buckets_.begin();
    for (unsigned l = kLayers; l-- > 0;) {
      network_.backward(l, first, weights_ + offsets_[l], gradients_ + offsets_[l]);
      if (l == bucket->first_layer) synchronise(*bucket++);
    }
    backward_ended_.record(compute_);
  }

  /// The mean loss of the `steps` steps since this was last asked. Waits for them.
  double loss(unsigned steps) {
    double* const sum = device_copy(std::vector<double>{network_.take_loss()});
    if (comm_ != nullptr) call(Collective::kAllReduce, sum, sum, 1, DataType::kFloat64);
    finish();
    const double all = host_copy<double>(sum, 1)[0];
    require(cudaFree(sum), "cudaFree");
    return all / (steps * kBatch);
  }
  std::vector<std::uint32_t> weights() const { return host_copy<std::uint32_t>(weights_, count_); }
  std::size_t buckets() const { return buckets_.size(); }
  /// Three times of the last step in ms: that of backward, that of sums and updates, and the part
  /// of the second that came after backward.
  std::vector<float> times() const {
    float busy = 0;
    for (const Bucket& bucket : buckets_) busy += bucket.ended.since(bucket.began);
    return {backward_ended_.since(backward_began_), busy,
            std::max(0.0F, buckets_.back().ended.since(backward_ended_))};
  }

  void call(Collective collective, const void* input, void* output, std::size_t count,
            DataType type = DataType::kFloat32) {
    require(comm_->call(
        {.collective = collective, .input = input, .output = output, .count = count, .type = type},
        traffic_));
  }
  void finish() {
    require(cudaStreamSynchronize(compute_), "cudaStreamSynchronize");
    require(cudaStreamSynchronize(traffic_), "cudaStreamSynchronize");
    if (comm_ != nullptr) require(comm_->check());
  }
  void close() {
    finish();
    if (comm_ != nullptr) require(comm_->close_window(weights_));
    require(tutti::device_mem_free(weights_));
  }

 private:
  /// Where both have blocks to run, communication is first.
  static cudaStream_t make_stream(bool first) {
    int least = 0, greatest = 0;
    require(cudaDeviceGetStreamPriorityRange(&least, &greatest), "the range of priorities");
    cudaStream_t stream = nullptr;
    require(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, first ? greatest : least),
            "cudaStreamCreateWithPriority");
    return stream;
  }

  /// The layers as backward comes to them, one behind the other.
  void fill_buckets() {
    const auto padded = [](unsigned count) { return (count + kPadding - 1) / kPadding * kPadding; };
    for (unsigned l = kLayers; l-- > 0;) {
      if (buckets_.empty() || buckets_.back().count + Mlp::size(l) > kBucketFloats)
        buckets_.push_back({l, count_, 0, {}, {}, {}});
      Bucket& bucket = buckets_.back();
      bucket.first_layer = l;
      offsets_[l] = bucket.offset + bucket.count;
      bucket.count += Mlp::size(l);
      count_ = bucket.offset + padded(bucket.count);
    }
    for (Bucket& bucket : buckets_) bucket.count = padded(bucket.count);
  }

  void open_memory() {
    int device = 0;
    require(cudaGetDevice(&device), "cudaGetDevice");
    const std::size_t bytes = 2 * count_ * sizeof(float);
    weights_ = static_cast<float*>(required(tutti::device_mem_alloc(device, bytes)));
    gradients_ = weights_ + count_;
    momentum_ = device_copy(std::vector<float>(zero1_ ? count_ / ranks_ : count_));
    if (me_ == 0) {
      std::vector<float> first(count_);
      for (unsigned l = 0; l < kLayers; ++l) Mlp::initialise(l, first.data() + offsets_[l]);
      require(cudaMemcpy(weights_, first.data(), bytes / 2, cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    if (comm_ == nullptr) return;
    require(comm_->open_window(weights_, bytes));
    call(Collective::kBroadcast, weights_, weights_, count_);  // From rank 0.
    for (Bucket& bucket : buckets_) bucket.ended.record(traffic_);
  }

  /// Sums the bucket's gradients and updates its weights, behind what backward has launched so far.
  void synchronise(Bucket& bucket) {
    bucket.written.record(compute_);
    bucket.written.wait(traffic_);
    bucket.began.record(traffic_);
    float *const weights = weights_ + bucket.offset, *const sums = gradients_ + bucket.offset;
    Update update{.weights = weights,
                  .momentum = momentum_ + bucket.offset,
                  .gradients = sums,
                  .count = bucket.count,
                  .samples = kBatch,
                  .rate = kRate,
                  .momentum_factor = kMomentum};
    if (zero1_) {
      const unsigned shard = bucket.count / ranks_, own = me_ * shard;
      call(Collective::kReduceScatter, sums, sums + own, shard);
      update.weights += own;
      update.gradients += own;
      update.momentum = momentum_ + bucket.offset / ranks_;
      update.count = shard;
    } else if (comm_ != nullptr) {
      call(Collective::kAllReduce, sums, sums, bucket.count);
    }
    launch(TUTTI_KERNEL_HANDLE(sgd), (update.count + kThreads - 1) / kThreads, update, traffic_);
    if (zero1_) call(Collective::kAllGather, update.weights, weights, update.count);
    bucket.ended.record(traffic_);
  }

  DeviceCommunicator* const comm_;
  const bool zero1_;
  const unsigned ranks_, me_;
  cudaStream_t compute_, traffic_;
  Mlp network_;
  std::vector<Bucket> buckets_;
  unsigned count_ = 0, offsets_[kLayers] = {};       // Floats of all buckets; by layer.
  float *weights_ = nullptr, *gradients_ = nullptr;  // The window: the one, then the other.
  float* momentum_ = nullptr;
  Event backward_began_, backward_ended_;
};

void train(Trainer& trainer, const Digits& data, bool speaks) {
  const auto steps = static_cast<unsigned>(data.labels.size()) / kBatch;
  for (unsigned epoch = 1; epoch <= kEpochs; ++epoch) {
    for (unsigned step = 0; step < steps; ++step) trainer.step(step * kBatch);
    const double loss = trainer.loss(steps);
    if (speaks) std::printf("epoch %u: loss %.4f\n", epoch, loss);
    require(epoch < kEpochs || loss < kTargetLoss, "the loss is still " + std::to_string(loss));
  }
}

std::uint64_t hash_of(const std::vector<std::uint32_t>& words) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const std::uint32_t word : words) hash = (hash ^ word) * 1099511628211ULL;
  return hash;
}

int main(int argc, char** argv) {
  const bool zero1 = argc == 3 && std::strcmp(argv[2], "--zero1") == 0;
  require(argc == 2 || zero1, "usage: ddp DIGITS.csv [--zero1]");
  const Digits data(argv[1]);
  Example example;
  const auto ranks = static_cast<unsigned>(example.comm.rank_count());
  const auto me = static_cast<unsigned>(example.comm.rank().value);
  require(kSlices % ranks == 0, "ranks have to divide 8");

  Trainer trainer(data, &example.comm, zero1);
  train(trainer, data, me == 0);
  const auto times = trainer.times();
  const auto weights = trainer.weights();
  const std::uint64_t hash = hash_of(weights);

  // All ranks have the same weights.
  auto* const hashes = device_copy(std::vector<std::uint64_t>(ranks, hash));
  trainer.call(Collective::kAllGather, hashes + me, hashes, 1, DataType::kUint64);
  trainer.finish();
  for (const std::uint64_t other : host_copy<std::uint64_t>(hashes, ranks))
    require(other == hash, "ranks have other weights than each other");
  trainer.close();
  if (me != 0) return 0;

  // And so has a rank that trains alone.
  Trainer alone(data, nullptr, false);
  train(alone, data, false);
  require(alone.weights() == weights, "a rank alone gets other weights");
  alone.close();
  std::printf("%u ranks, %s: weights %016llx, those of one rank, in %zu buckets\n", ranks,
              zero1 ? "zero1" : "ddp", static_cast<unsigned long long>(hash), trainer.buckets());
  std::printf("last step: backward %.2f ms; sums and updates %.2f ms, %.2f of them hidden\n",
              times[0], times[1], std::max(0.0F, times[1] - times[2]));
}
