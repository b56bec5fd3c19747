// The kernel is bound by memory: x and the target are read once. Which elements a thread adds, and
// in which order, follows from the number of elements and from whether the tensors are aligned for
// packs.

#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/loss/mean_square.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
struct Rows {
  const T* x;
  const T* target;
  const StepState* state;
  T* dx;  // May be null.
  double* of_block;
  int64_t count;     // Elements of x.
  double row_width;  // P
};

template <int kCount, typename T>
__global__ void __launch_bounds__(kThreads) DifferencesKernel(Rows<T> args) {
  using A = Accumulate<T>;
  const A twice = A(2 * args.state->loss_scale / args.row_width);
  const int64_t stride = int64_t(gridDim.x) * kThreads * kCount;
  double sum = 0;
  for (int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kCount; i < args.count;
       i += stride) {
    const auto xs = LoadPack<T, kCount>(args.x + i), targets = LoadPack<T, kCount>(args.target + i);
    Pack<T, kCount> dx;
    for (int n = 0; n < kCount; ++n) {
      const A difference = A(xs.v[n]) - A(targets.v[n]);
      sum += double(difference) * double(difference);
      dx.v[n] = T(twice * difference);
    }
    if (args.dx != nullptr) StorePack(args.dx + i, dx);
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) args.of_block[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    AddLossKernel(const double* of_block, int blocks, double row_width, StepState* state) {
  double sum = 0;
  for (int i = int(threadIdx.x); i < blocks; i += kThreads) sum += of_block[i];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) state->loss += state->loss_scale / row_width * sum;
}

}  // namespace

void MeanSquare(Exec& exec, const MeanSquareArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    Rows<T> rows = {.x = args.x.as<T>(),
                    .target = args.target.as<T>(),
                    .state = args.state,
                    .dx = args.dx.data == nullptr ? nullptr : args.dx.as<T>(),
                    .of_block = nullptr,
                    .count = args.x.elements(),
                    .row_width = double(args.x.shape.back())};
    const bool packed = CanPack<T>(rows.count, rows.x, rows.target, rows.dx);
    const int64_t threads = packed ? rows.count / kPackOf<T> : rows.count;
    const int64_t blocks = std::min(CeilDiv(threads, kThreads), kMaxBlocks);
    rows.of_block = ScratchOf<double>(exec, blocks);
    Launch(exec, {blocks, kThreads},
           packed ? DifferencesKernel<kPackOf<T>, T> : DifferencesKernel<1, T>, rows);
    Launch(exec, {1, kThreads}, AddLossKernel, rows.of_block, int(blocks), rows.row_width,
           args.state);
  });
}

}  // namespace trainyard::cuda
