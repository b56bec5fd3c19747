#include "bench/gpu_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/device/narrow.h"
#include "kernels/device/nf4_operand.h"
#include "kernels/products/matmul.h"
#include "models/program/nf4.h"
#include "models/program/op.h"

namespace trainyard::bench {
namespace {

constexpr double kKernel = 2e-6;  // Seconds until a kernel has filled the device, and emptied it.
constexpr double kNextKernel = 1e-6;  // Between two of a graph.
constexpr double kNextGraph = 4e-6;   // Between two graphs, or an op that is in none.
constexpr double kHostLooks = 60e-6;  // Until the host has read a number, and given what follows.
constexpr double kTileOverhead = 1.5e-6;  // Of each wave: first loads, last stores.
constexpr double kWorkspace = 64 << 20;   // Bytes that a product may keep parts of its sums in.
// A grouped product has mma.sync where cuBLASLt has wgmma.
constexpr double kGroupedShare = 0.6;
// The kernels of a scan of states (kernels/cuda/state_space/state_scan.cu and
// state_scan_backward.cu).
constexpr int kScanKernels = 6, kScanBackwardKernels = 12;
// Our attention has mma.sync where cuDNN has wgmma, and needs no more time for one order.
constexpr double kOurAttentionShare = 0.5;

// The attention rates are those of cuDNN's and FlashAttention's published tables, H200 and H100,
// causal: head dim 128, 64 query and 8 key heads: forward 534, 616, 655 TFLOP/s at 2k, 4k, 8k
// tokens, backward 402, 495, 526, in one order 367, 433, 463; head dim 64: forward 288, 371, 420,
// 460 at 1k, 2k, 4k, 8k. Backward at head dim 64 is an estimate: as much slower as forward is.
// Memory: a copy on an H200 reads and writes 4.3 TB/s. Products in 8 bits: cuBLASLt's of random
// numbers on an H200 are published with 1249, 1269 and 1305 TFLOP/s at 4k, 8k and 16k.
// The link to the host is PCI Express 5.0 x16, published with 64 GB/s in each direction. A packet
// of 128 bytes has about 24 of a header, and each read sends a request of 24 the other way: of 176
// bytes, 128 are of use.
const GpuRates kH200 = {.name = "h200",
                        .peak = 989e12,
                        .products = 790e12,
                        .narrow_peak = 1979e12,
                        .narrow_products = 1270e12,
                        .memory = 4.2e12,
                        .host_link = 45e9,
                        .multiprocessors = 132,
                        .forward = {{{490e12, 700}, {700e12, 600}}},
                        .backward = {{{390e12, 500}, {580e12, 800}}},
                        .backward_in_order = {{{340e12, 500}, {500e12, 700}}}};

GpuRates H100() {
  GpuRates h100 = kH200;
  h100.name = "h100";
  h100.memory = 3.0e12;
  return h100;
}

// A product of [m, k] by [k, n], of which a large one reaches `most` FLOP/s. The best of the tiles
// that libraries have: the more evenly they fit over the multiprocessors, the better; small ones
// are slower, since they load more for each product. Where there are few, the sum over k may be
// divided, and its parts are added afterwards.
double ProductSeconds(const GpuRates& gpu, double most, const MatMulShape& shape, double bytes) {
  const auto [m, n, k] = shape;
  struct Tile {
    int64_t rows, columns;
    double rate;
  };
  static constexpr Tile kTiles[] = {{128, 256, 1}, {256, 128, 1}, {128, 128, 0.88}, {64, 256, 0.8}};
  double best = INFINITY;
  for (const Tile& tile : kTiles) {
    const double tiles =
        std::ceil(double(m) / double(tile.rows)) * std::ceil(double(n) / double(tile.columns));
    const double rate = most * tile.rate / gpu.multiprocessors;
    for (const int64_t parts : {1, 2, 4, 8, 16}) {
      if (parts > 1 && double(parts * m * n) * sizeof(float) > kWorkspace) break;
      const double flops = 2.0 * double(tile.rows * tile.columns) * double(k) / double(parts);
      const double waves = std::ceil(tiles * double(parts) / gpu.multiprocessors);
      const double sums =
          parts == 1 ? 0 : kKernel + double(2 * parts * m * n) * sizeof(float) / gpu.memory;
      best = std::min(best, waves * (flops / rate + kTileOverhead) + sums);
    }
  }
  return kKernel + std::max(best, bytes / gpu.memory);
}

double MemorySeconds(const GpuRates& gpu, double bytes) { return kKernel + bytes / gpu.memory; }

// Of [T, D] by [V, D], chunk by chunk: logits, their loss, and the gradients that are wanted. One
// kernel gives the loss and the gradient of the logits if both have one dtype. It reads each logit
// once from memory: what does not fit into shared memory comes from the L2 cache.
double HeadSeconds(const GpuRates& gpu, const Program& program, const Instance& instance) {
  // By the end of its name, which begins with the part of the model.
  const auto output = [&](absl::string_view name) -> const ValueInfo* {
    for (const Value value : instance.outputs) {
      if (absl::EndsWith(program.info(value).name, name)) return &program.info(value);
    }
    return nullptr;
  };
  const auto is_sum = [&](Value value) {
    return program.info(value).kind == ValueKind::kParameterGradient;
  };
  const auto dweight = std::find_if(instance.outputs.begin(), instance.outputs.end(), is_sum);
  const auto& x = program.info(instance.inputs[0]);
  const auto& weight = program.info(instance.inputs[1]);
  const auto& logits = *output(".logits");
  const int64_t v = weight.shape[0], d = weight.shape[1], c = logits.shape[0];
  const double chunks = std::ceil(double(x.shape.rows()) / double(c));
  const double compute = double(SizeOf(weight.dtype)), of_logits = double(SizeOf(logits.dtype));
  const double square = double(c * v), rows = double(c * d), columns = double(v * d);
  const bool gradient = absl::EndsWith(instance.op->name(), "_backward");
  const bool together = instance.op->name() == "linear_cross_entropy_backward" &&
                        output(".dlogits") == nullptr && output(".statistics") == nullptr;
  const auto product = [&](const MatMulShape& shape, double bytes) {
    return ProductSeconds(gpu, gpu.products, shape, bytes);
  };
  double seconds = product({c, v, d}, square * of_logits + (rows + columns) * compute);
  if (instance.op->name() != "linear_log_probs_backward" && !together) {
    seconds += MemorySeconds(gpu, square * of_logits);
  }
  if (gradient) seconds += MemorySeconds(gpu, square * (of_logits + compute));
  if (dweight != instance.outputs.end()) {
    const double sums = 2 * columns * double(SizeOf(program.info(*dweight).dtype));
    seconds += product({v, d, c}, (square + rows) * compute + sums);
  }
  if (output(".dx") != nullptr) {
    seconds += product({c, d, v}, (square + columns + rows) * compute);
  }
  return chunks * seconds;
}

// The rate is that of a sequence as long as one document.
double AttentionSeconds(const GpuRates& gpu, const Program& program, const Instance& instance,
                        int64_t documents, bool backward) {
  const Cost cost = instance.op->CostOf(program, instance);
  const ValueInfo& lse = program.info(backward ? instance.inputs[2] : instance.outputs[1]);
  const ValueInfo& out = program.info(backward ? instance.inputs[1] : instance.outputs[0]);
  const int64_t head_dim = out.shape.back() / lse.shape[1];
  const size_t width = head_dim <= 64 ? 0 : 1;
  const bool ours = !instance.op->KeptOnGpu(program, instance);
  const auto& of_backward = program.deterministic && !ours ? gpu.backward_in_order : gpu.backward;
  const double rate =
      (backward ? of_backward : gpu.forward)[width].at(program.sequence / documents) *
      (ours ? kOurAttentionShare : 1);
  const double counted = cost.flops / double(documents);
  const double flops = backward ? counted * 5 / 4 : counted;  // The scores once more.
  return kKernel + flops / rate;
}

// Of Mamba-2's scan, whose kernels write their arrays to scratch memory and read them again. Their
// products have mma.sync.
double ScanSeconds(const GpuRates& gpu, const Program& program, const Instance& instance,
                   const Cost& cost) {
  const bool backward = absl::EndsWith(instance.op->name(), "_backward");
  const double scratch = double(instance.op->KeptOnGpu(program, instance)->bytes);
  const int more = (backward ? kScanBackwardKernels : kScanKernels) - 1;
  return more * (kKernel + kNextKernel) + cost.flops / (kGroupedShare * gpu.products) +
         MemorySeconds(gpu, cost.bytes + 2 * scratch);
}

// Of a product with a weight in NF4. One part of the weight after another becomes numbers in bf16
// and is multiplied. The numbers are written and read at the rate of memory, though the L2 cache
// has room for most parts.
double Nf4Seconds(const GpuRates& gpu, const MatMulShape& shape) {
  constexpr int64_t kBytes = 2;
  constexpr double kRead = 0.516;  // Bytes of a number in NF4.
  const auto [m, n, k] = shape;
  const int64_t most = Nf4ColumnsOnGpu({.rows = m, .summed = k}, kBytes);
  double seconds = 0;
  for (int64_t begin = 0; begin < n; begin += most) {
    const int64_t columns = std::min(most, n - begin);
    const double numbers = double(columns * k);
    seconds += ProductSeconds(gpu, gpu.products, {m, columns, k},
                              double(kBytes) * (double(m * k) + numbers + double(m * columns))) +
               MemorySeconds(gpu, numbers * (kRead + kBytes)) + 2 * kNextKernel;
  }
  return seconds - kNextKernel;
}

// What weights of experts in NF4 cost an op besides its products: each number is written once and
// read once more, as if both went to memory, and each part has two more kernels.
double Nf4ExpertsSeconds(const GpuRates& gpu, const Program& program, const Instance& instance) {
  constexpr int64_t kBytes = 2;
  double seconds = 0;
  for (const Value input : instance.inputs) {
    const ValueInfo& codes = program.info(input);
    if (!absl::EndsWith(codes.name, kNf4Codes)) continue;
    const Shape& shape = codes.shape;
    const double numbers = double(shape.elements() * kNf4PerByte);
    const Nf4GroupPart part = Nf4GroupsOnGpu({.rows = shape[0],
                                              .groups = shape[0],
                                              .columns = shape[1],
                                              .summed = shape[2] * kNf4PerByte},
                                             kBytes);
    const double of_part = double(part.groups * part.columns * shape[2] * kNf4PerByte);
    seconds +=
        2 * double(kBytes) * numbers / gpu.memory + 2 * kNextKernel * std::ceil(numbers / of_part);
  }
  return seconds;
}

}  // namespace

absl::StatusOr<GpuRates> RatesOf(const std::string& gpu) {
  if (gpu == kH200.name) return kH200;
  if (gpu == "h100") return H100();
  return absl::NotFoundError(absl::StrCat("no rates of '", gpu, "'; wanted h100 or h200"));
}

const char* Name(Part part) {
  static constexpr const char* kNames[] = {"products",     "head and loss", "attention", "experts",
                                           "memory-bound", "optimizer",     "gaps"};
  static_assert(std::size(kNames) == kNumParts);
  return kNames[int(part)];
}

OpPrediction Predict(const GpuRates& gpu, const Program& program, const Instance& instance,
                     int64_t documents) {
  const absl::string_view name = instance.op->name();
  const Cost cost = instance.op->CostOf(program, instance);
  if (absl::StartsWith(name, "linear_cross_entropy") ||
      absl::StartsWith(name, "linear_log_probs")) {
    return {Part::kHead, HeadSeconds(gpu, program, instance)};
  }
  if (name == "attention" || name == "attention_backward") {
    return {Part::kAttention,
            AttentionSeconds(gpu, program, instance, documents, name != "attention")};
  }
  if (absl::StartsWith(name, "expert_mlp")) {
    // Room for twice the rows is among the operands: what is there is written and read once.
    const double host = instance.op->is_capturable() ? 0 : kHostLooks;
    return {Part::kExperts, host + cost.flops / (kGroupedShare * gpu.products) +
                                MemorySeconds(gpu, cost.bytes) +
                                Nf4ExpertsSeconds(gpu, program, instance)};
  }
  if (absl::StartsWith(name, "state_scan") || absl::StartsWith(name, "state_ends")) {
    return {Part::kMemory, ScanSeconds(gpu, program, instance, cost)};
  }
  if (instance.list == List::kOptimizer) {
    // A kernel reads the host's memory while it writes there, and reads and writes the device's.
    const double memory =
        std::max(MemorySeconds(gpu, cost.bytes), kKernel + cost.host_bytes / gpu.host_link);
    return {Part::kOptimizer, cost.flops / gpu.products + memory};
  }
  if (cost.flops == 0) return {Part::kMemory, MemorySeconds(gpu, cost.bytes)};
  const Shape out = program.info(instance.outputs[0]).shape;
  const int64_t m = out.rows(), n = out.back();
  const auto k = int64_t(std::llround(cost.flops / (2.0 * double(m) * double(n))));
  const bool in_nf4 = std::any_of(instance.inputs.begin(), instance.inputs.end(), [&](Value input) {
    return program.info(input).dtype == DType::kU8;
  });
  if (in_nf4) return {Part::kProducts, Nf4Seconds(gpu, {m, n, k})};
  const bool narrow = IsNarrow(program.info(instance.inputs[0]).dtype);
  return {Part::kProducts,
          ProductSeconds(gpu, narrow ? gpu.narrow_products : gpu.products, {m, n, k}, cost.bytes)};
}

double PredictGaps(const Program& program, int64_t micro_batches) {
  std::map<List, const Instance*> last;
  double seconds = 0;
  for (const Instance& instance : program.instances) {
    if (instance.list < List::kForward || instance.when == When::kValidation) continue;
    const auto times = double(TimesInStep(instance, micro_batches));
    // A graph has those of a list, block and `when` that follow one another.
    const Instance*& before =
        last[IsBackward(instance.list) ? List::kBackwardInput : instance.list];
    const bool same = before != nullptr && before->list == instance.list &&
                      before->block == instance.block && before->when == instance.when &&
                      before->op->is_capturable() && instance.op->is_capturable();
    seconds += times * (same ? kNextKernel : kNextGraph);
    before = &instance;
  }
  return seconds;
}

}  // namespace trainyard::bench
