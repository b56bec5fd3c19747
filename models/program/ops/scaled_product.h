// Records products whose operands are rounded to 8-bit formats with scales.

#pragma once

#include "models/program/recorder.h"

namespace trainyard::ops {

// The operands of one of a linear layer's products (product.h).
struct ProductOf {
  Value a, b;       // By role: x and w, dy and w, dy and x.
  Value weight;     // The layer's, in any role.
  Value bias = {};  // Forward only; may be invalid.
};

// The precision's format for the product must have scales for both operands. Returns `output`.
Value ScaledProduct(Recorder& recorder, const ProductUse& use, const ProductOf& of,
                    const Recorder::Output& output);

}  // namespace trainyard::ops
