// Normal random numbers by global element index, so that the initial values of a parameter do not
// depend on the mesh or the sharding:
//
//   y[r,c] = mean + stddev * Normal(state->seed, stream,
//                                   (first_row + r) * global_columns + first_column + c)
//
// y is the box of a global matrix that this rank has. Leading dims count as rows; a vector is one
// row. Normal is defined in common/rng.h. Letters: R rows, C columns of the box.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"

namespace trainyard {

struct RandomNormalArgs {
  Tensor y;         // [R, C]  f64 | f32 | bf16, out
  uint64_t stream;  // HashName() of the parameter's global name
  double stddev;
  int64_t global_columns;  // >= first_column + C
  const StepState* state;  // device memory; gives the seed
  double mean = 0;
  int64_t first_row = 0;
  int64_t first_column = 0;
};

inline void Check(const RandomNormalArgs& args) {
  const int64_t columns = ExpectColumns("random_normal y", args.y);
  ExpectFloat("random_normal y", args.y);
  CHECK(args.first_row >= 0 && args.first_column >= 0 &&
        args.first_column + columns <= args.global_columns)
      << "random_normal global_columns: " << args.global_columns << ", box of " << columns
      << " columns from " << args.first_column;
  CHECK(args.state != nullptr) << "random_normal state: none";
}

}  // namespace trainyard
