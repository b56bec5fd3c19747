// Computes tiles of the output: on the tensor cores if dims are multiples of 8 (tensor_product.h),
// otherwise by plain sums (plain_product.h). Blocks take the tiles of rows in turn. They find these
// tiles from the offsets themselves.
//
// Weights in NF4 become numbers in scratch memory, a part at a time. The host does not know how
// many rows a group has, so a part is made also for groups without rows.
#include <numeric>
#include <type_traits>

#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/products/group_tiles.h"
#include "kernels/cuda/products/plain_product.h"
#include "kernels/cuda/products/tensor_product.h"
#include "kernels/cuda/row.h"
#include "kernels/products/nf4_groups.h"

namespace trainyard::cuda {
namespace {

// The scales of operands that were rounded to 8 bits: one for each group, or one for each row and
// for each group's column of the result.
template <typename A>
struct Scales {
  const A* a;  // Null: the operands have no scales.
  const A* b;
  bool of_lines = false;
};

template <typename T>
Scales<Accumulate<T>> ScalesOf(const ConstTensor& a, const ConstTensor& b) {
  using A = Accumulate<T>;
  if (a.data == nullptr) return {nullptr, nullptr};
  return {a.as<A>(), b.as<A>(), HasLineScales(b)};
}

// out[r, c] = or += the sum over `depth` of in[r, :] and line c of the group's weight.
template <typename T>
struct Rows {
  const T* in;
  const T* weight;  // Per group: Order::kDeep is [columns, depth], kAlong [depth, columns].
  T* out;
  int64_t depth, columns;
  int64_t stride;  // Of the rows of `out`.
  bool add;
  Scales<Accumulate<T>> scales;
};

// kLines: the operands have scales of lines.
template <typename Product, typename T, Order kWeight, bool kLines>
__global__ void __launch_bounds__(Product::kThreads, Product::kBlocks)
    RowsKernel(Groups groups, Rows<T> rows) {
  constexpr int kTile = Product::kTile, kNeighbours = Product::kNeighbours;
  std::byte* const shared = DynamicShared<std::byte>();
  const GroupTiles<kTile> tiles(groups, reinterpret_cast<int32_t*>(shared + Product::kShared));
  const int64_t depth = rows.depth, columns = rows.columns;
  const int64_t across = (columns + kTile - 1) / kTile, count = tiles.count() * across;
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const RowTile tile = tiles[int32_t(i / across)];
    const int64_t column = i % across * kTile;
    const T* weight = rows.weight + tile.group * (depth * columns);
    const Panel<T, Order::kDeep> a = {rows.in + tile.begin * depth, depth, tile.rows};
    const bool deep = kWeight == Order::kDeep;
    const Panel<T, kWeight> b = {weight + column * (deep ? depth : 1), deep ? depth : columns,
                                 columns - column};
    T* out = rows.out + tile.begin * rows.stride + column;
    const Product product(a, b, depth, shared);
    const bool scaled = !kLines && rows.scales.a != nullptr;
    const Accumulate<T> scale_a = scaled ? rows.scales.a[tile.group] : 1;
    const Accumulate<T> scale_b = scaled ? rows.scales.b[tile.group] : 1;
    product.ForEachSum([&](int r, int c, auto sums) {
      if (r >= a.lines || c >= b.lines) return;
      T* const to = out + r * rows.stride + c;
      if constexpr (kLines) {
        const Accumulate<T> of_row = rows.scales.a[tile.begin + r];
        const Accumulate<T>* const of_columns = rows.scales.b + tile.group * columns + column + c;
        for (int n = 0; n < kNeighbours; ++n) sums.v[n] = sums.v[n] * of_row * of_columns[n];
      } else {
        for (int n = 0; n < kNeighbours; ++n) sums.v[n] = sums.v[n] * scale_a * scale_b;
      }
      if (rows.add) {
        const auto before = LoadPack<T, kNeighbours>(to);
        for (int n = 0; n < kNeighbours; ++n) sums.v[n] += Accumulate<T>(before.v[n]);
      }
      Pack<T, kNeighbours> rounded;
      for (int n = 0; n < kNeighbours; ++n) rounded.v[n] = T(sums.v[n]);
      StoreRow(to, rounded);
    });
  }
}

template <typename T>
struct Weights {
  const T* dy;
  const T* x;
  Accumulate<T>* dweight;
  int64_t outputs, inputs;
  bool add;
  Scales<Accumulate<T>> scales;
};

template <typename Product, typename T>
__global__ void __launch_bounds__(Product::kThreads, Product::kBlocks)
    WeightsKernel(Groups groups, Weights<T> weights) {
  using A = Accumulate<T>;
  constexpr int kTile = Product::kTile, kNeighbours = Product::kNeighbours;
  const int64_t outputs = weights.outputs, inputs = weights.inputs;
  const int64_t across = (inputs + kTile - 1) / kTile, down = (outputs + kTile - 1) / kTile;
  const int group = int(blockIdx.x / (across * down));
  const int64_t output = blockIdx.x / across % down * kTile, input = blockIdx.x % across * kTile;
  groups.Check(group);
  const int64_t begin = groups.offsets[group], rows = groups.offsets[group + 1] - begin;
  const Panel<T, Order::kAlong> a = {weights.dy + begin * outputs + output, outputs,
                                     outputs - output};
  const Panel<T, Order::kAlong> b = {weights.x + begin * inputs + input, inputs, inputs - input};
  A* out = weights.dweight + (group * outputs + output) * inputs + input;
  const Product product(a, b, rows, DynamicShared<std::byte>());
  const bool scaled = weights.scales.a != nullptr;
  const A scale_a = scaled ? weights.scales.a[group] : 1;
  const A scale_b = scaled ? weights.scales.b[group] : 1;
  product.ForEachSum([&](int n, int k, auto sums) {
    if (n >= a.lines || k >= b.lines) return;
    A* to = out + n * inputs + k;
    for (int i = 0; i < kNeighbours; ++i) sums.v[i] = sums.v[i] * scale_a * scale_b;
    if (weights.add) {
      const auto before = LoadPack<A, kNeighbours>(to);
      for (int i = 0; i < kNeighbours; ++i) sums.v[i] += before.v[i];
    }
    StorePack(to, sums);
  });
}

Groups GroupsOf(const ConstTensor& offsets, int64_t bound) {
  return {offsets.as<int32_t>(), int(offsets.elements() - 1), bound};
}

// Calls f with the product class for matrices of T with these dims and addresses.
template <typename T, typename F, typename... Pointers>
void WithProduct(const F& f, int64_t depth, int64_t columns, const Pointers*... pointers) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (CanPack<T>(depth, pointers...) && columns % kPackOf<T> == 0) {
      return f(std::type_identity<TensorProduct>());
    }
  }
  f(std::type_identity<PlainProduct<T>>());
}

template <Order kWeight, typename T>
void RunRows(Exec& exec, const Groups& groups, const Rows<T>& rows) {
  const auto run = [&](auto product) {
    using Product = typename decltype(product)::type;
    constexpr int64_t kBlocks = kMultiprocessors * Product::kBlocks;
    const int64_t tiles = groups.MostTiles(Product::kTile) * CeilDiv(rows.columns, Product::kTile);
    const Grid grid = {std::min(tiles, kBlocks), Product::kThreads,
                       Product::kShared + groups.shared()};
    const auto kernel = rows.scales.of_lines ? RowsKernel<Product, T, kWeight, true>
                                             : RowsKernel<Product, T, kWeight, false>;
    Launch(exec, grid, kernel, groups, rows);
  };
  // The columns of a part lie within wider rows.
  const int64_t columns = std::gcd(rows.columns, rows.stride);
  WithProduct<T>(run, rows.depth, columns, rows.in, rows.weight, rows.out);
}

template <typename T>
void RunWeights(Exec& exec, const Groups& groups, const Weights<T>& weights) {
  const auto run = [&](auto product) {
    using Product = typename decltype(product)::type;
    const int64_t tiles = groups.groups * CeilDiv(weights.outputs, Product::kTile) *
                          CeilDiv(weights.inputs, Product::kTile);
    Launch(exec, {tiles, Product::kThreads, Product::kShared}, WeightsKernel<Product, T>, groups,
           weights);
  };
  WithProduct<T>(run, weights.outputs, weights.inputs, weights.dy, weights.x, weights.dweight);
}

// The product `all` with weights in NF4, part by part.
template <Order kWeight, typename T>
void RunRowsInNf4(Exec& exec, const Nf4GroupWeights& weights, const Groups& groups,
                  const Rows<T>& all) {
  const Nf4GroupPart most = Nf4GroupsOnGpu(
      {.rows = groups.bound, .groups = groups.groups, .columns = all.columns, .summed = all.depth},
      sizeof(T));
  const int64_t elements = most.groups * most.columns * all.depth;
  const Tensor numbers{{ScratchOf<T>(exec, elements), DTypeOf<T>::value, {elements}}};
  MultiplyNf4Groups(
      weights, most, numbers, [&](const DequantizeNf4Args& args) { DequantizeNf4(exec, args); },
      [&](const Nf4NumbersOfGroups& part) {
        Groups some = groups;
        some.offsets += part.first;
        some.groups = int(part.groups);
        some.first = int(part.first);
        Rows<T> rows = all;
        rows.weight = part.numbers.as<T>();
        rows.out += part.begin;
        rows.columns = part.columns;
        RunRows<kWeight>(exec, some, rows);
      });
}

template <Order kWeight, typename T, typename Args>
void RunRowsOf(Exec& exec, const Args& args, const Groups& groups, Rows<T> rows) {
  if (IsInNf4(args)) return RunRowsInNf4<kWeight>(exec, Nf4WeightsOf(args), groups, rows);
  rows.weight = args.weight.template as<T>();
  RunRows<kWeight>(exec, groups, rows);
}

}  // namespace

void GroupedMatMulForward(Exec& exec, const GroupedMatMulForwardArgs& args) {
  const Groups groups = GroupsOf(args.offsets, args.x.shape.rows());
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    RunRowsOf<Order::kDeep>(exec, args, groups,
                            Rows<T>{.in = args.x.as<T>(),
                                    .weight = nullptr,
                                    .out = args.y.as<T>(),
                                    .depth = args.x.shape.back(),
                                    .columns = args.y.shape.back(),
                                    .stride = args.y.shape.back(),
                                    .add = args.write == Write::kAdd,
                                    .scales = ScalesOf<T>(args.x_scales, args.weight_scales)});
  });
}

void GroupedMatMulInputGradient(Exec& exec, const GroupedMatMulInputGradientArgs& args) {
  const Groups groups = GroupsOf(args.offsets, args.dy.shape.rows());
  DispatchFloat(args.dy.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    RunRowsOf<Order::kAlong>(exec, args, groups,
                             Rows<T>{.in = args.dy.as<T>(),
                                     .weight = nullptr,
                                     .out = args.dx.as<T>(),
                                     .depth = args.dy.shape.back(),
                                     .columns = args.dx.shape.back(),
                                     .stride = args.dx.shape.back(),
                                     .add = args.write == Write::kAdd,
                                     .scales = ScalesOf<T>(args.dy_scales, args.weight_scales)});
  });
}

void GroupedMatMulWeightGradient(Exec& exec, const GroupedMatMulWeightGradientArgs& args) {
  const Groups groups = GroupsOf(args.offsets, args.dy.shape.rows());
  DispatchFloat(args.dy.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    RunWeights(exec, groups,
               Weights<T>{.dy = args.dy.as<T>(),
                          .x = args.x.as<T>(),
                          .dweight = args.dweight.as<Accumulate<T>>(),
                          .outputs = args.dy.shape.back(),
                          .inputs = args.x.shape.back(),
                          .add = args.write == Write::kAdd,
                          .scales = ScalesOf<T>(args.dy_scales, args.x_scales)});
  });
}

}  // namespace trainyard::cuda
