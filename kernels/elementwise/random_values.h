// Random numbers by global element index, so that the initial values of a parameter do not depend
// on the mesh or the sharding:
//
//   i = (first_row + r) * global_columns + first_column + c
//   kNormal:   y[r,c] = mean + scale * Normal(state->seed, stream, i)
//   kUniform:  y[r,c] = mean + scale * (2 * Uniform(state->seed, stream, i) - 1)
//   kBytes:    y[r,c] = the upper 8 bits of RandomBits(state->seed, stream, i)
//
// y is the box of a global matrix that this rank has. Leading dims count as rows; a vector is one
// row. common/rng.h defines Normal, Uniform and RandomBits. Letters: R rows, C columns of the box.

#pragma once

#include "common/host_device.h"
#include "common/rng.h"
#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"

namespace trainyard {

enum class Distribution : uint8_t { kNormal, kUniform, kBytes };

struct RandomValuesArgs {
  Tensor y;         // [R, C]  f64 | f32 | bf16, out; u8 for kBytes, and for no other
  uint64_t stream;  // HashName() of the parameter's global name
  Distribution distribution = Distribution::kNormal;
  double scale = 0;        // The standard deviation. kUniform: the distance of an end to the mean.
  int64_t global_columns;  // >= first_column + C
  const StepState* state;  // device memory; gives the seed
  double mean = 0;
  int64_t first_row = 0;
  int64_t first_column = 0;
};

inline void Check(const RandomValuesArgs& args) {
  const int64_t columns = ExpectColumns("random_values y", args.y);
  if (args.distribution == Distribution::kBytes) {
    ExpectDType("random_values y", args.y, {DType::kU8});
    ExpectData("random_values y", args.y);
  } else {
    ExpectFloat("random_values y", args.y);
  }
  CHECK(args.first_row >= 0 && args.first_column >= 0 &&
        args.first_column + columns <= args.global_columns)
      << "random_values global_columns: " << args.global_columns << ", box of " << columns
      << " columns from " << args.first_column;
  CHECK(args.state != nullptr) << "random_values state: none";
}

// The global index of the element of a box of `columns` columns that is number i in the box.
TRAINYARD_HOST_DEVICE inline uint64_t GlobalIndex(const RandomValuesArgs& args, int64_t columns,
                                                  int64_t i) {
  const int64_t row = args.first_row + i / columns;
  return uint64_t(row * args.global_columns + args.first_column + i % columns);
}

// Returns that element. Not for kBytes.
TRAINYARD_HOST_DEVICE inline double RandomValue(const RandomValuesArgs& args, int64_t columns,
                                                int64_t i) {
  const uint64_t index = GlobalIndex(args, columns, i);
  const double drawn = args.distribution == Distribution::kNormal
                           ? Normal(args.state->seed, args.stream, index)
                           : 2 * Uniform(args.state->seed, args.stream, index) - 1;
  return args.mean + args.scale * drawn;
}

// The same for kBytes.
TRAINYARD_HOST_DEVICE inline uint8_t RandomByte(const RandomValuesArgs& args, int64_t columns,
                                                int64_t i) {
  return uint8_t(RandomBits(args.state->seed, args.stream, GlobalIndex(args, columns, i)) >> 56);
}

}  // namespace trainyard
