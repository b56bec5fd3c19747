// Adapter of a throwing library: `try` is allowed here.

#include "kernels/cpu/products/dnnl_adapter.h"

#include <omp.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "dnnl.hpp"

namespace trainyard::cpu {
namespace {

using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool, DType,
                       DType, bool, bool, int>;

struct Product {
  dnnl::matmul primitive;
  std::unordered_map<int, dnnl::memory> arguments;  // Their memory is set for each call.
};

dnnl::memory::data_type TypeOf(DType dtype) {
  return dtype == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// A matrix of `rows` by `columns` as the product uses it; strides transpose it. `stride` is that of
// the rows in memory.
dnnl::memory::desc Matrix(int64_t rows, int64_t columns, bool transposed, DType dtype,
                          int64_t stride) {
  const dnnl::memory::dims strides = {transposed ? 1 : stride, transposed ? stride : 1};
  return {{rows, columns}, TypeOf(dtype), strides};
}

// A product that oneDNN prepared for more threads than run it leaves parts out.
int Threads(const Exec& exec) { return std::min(exec.threads, omp_get_thread_limit()); }

struct Operands {
  dnnl::memory::desc a, b, c, bias;

  // A dim of `shape` may be DNNL_RUNTIME_DIM_VAL.
  Operands(const MatMulArgs& args, const MatMulShape& shape)
      : a(Matrix(shape.m, shape.k, args.trans_a, args.a.dtype, ViewOfA(args).stride)),
        b(Matrix(shape.k, shape.n, args.trans_b, args.a.dtype, ViewOfB(args).stride)),
        c(Matrix(shape.m, shape.n, false, args.c.dtype, ViewOfC(args).stride)) {
    if (args.bias.data != nullptr) bias = Matrix(1, shape.n, false, args.a.dtype, shape.n);
  }
};

}  // namespace

class DnnlPrimitives {
 public:
  // Returns null if oneDNN has no fast implementation.
  Product* Find(const Exec& exec, const MatMulArgs& args, Rows rows) {
    MatMulShape shape = ShapeOf(args);
    if (rows == Rows::kVary) (args.trans_a ? shape.k : shape.m) = DNNL_RUNTIME_DIM_VAL;
    const Key key{shape.m,
                  shape.n,
                  shape.k,
                  ViewOfA(args).stride,
                  ViewOfB(args).stride,
                  ViewOfC(args).stride,
                  args.trans_a,
                  args.trans_b,
                  args.a.dtype,
                  args.c.dtype,
                  args.write == Write::kAdd,
                  args.bias.data != nullptr,
                  Threads(exec)};
    const auto found = products_.find(key);
    if (found == products_.end()) {
      return products_.emplace(key, Prepare(args, shape)).first->second.get();
    }
    Product* product = found->second.get();
    if (product != nullptr && rows == Rows::kVary) SetOperands(*product, args);
    return product;
  }
  dnnl::stream& stream() { return stream_; }
  // Shared by all products, because one runs at a time.
  Scratch& scratch() { return scratch_; }

 private:
  std::unique_ptr<Product> Prepare(const MatMulArgs& args, const MatMulShape& shape) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (args.write == Write::kAdd) {
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    const Operands operands(args, shape);
    const auto& [a, b, c, bias] = operands;
    try {
      const dnnl::matmul::desc operation = args.bias.data != nullptr
                                               ? dnnl::matmul::desc(a, b, bias, c)
                                               : dnnl::matmul::desc(a, b, c);
      const dnnl::matmul::primitive_desc description(operation, attributes, engine_);
      if (std::string(description.impl_info_str()).find("ref") != std::string::npos) return nullptr;
      auto product = std::make_unique<Product>(Product{dnnl::matmul(description), {}});
      SetOperands(*product, args);
      product->arguments[DNNL_ARG_SCRATCHPAD] =
          dnnl::memory(description.scratchpad_desc(), engine_, DNNL_MEMORY_NONE);
      return product;
    } catch (const dnnl::error&) {
      return nullptr;  // Not implemented on this CPU: BlockedMatMul computes it.
    }
  }

  // Sets the operands to the call's shape.
  void SetOperands(Product& product, const MatMulArgs& args) {
    const Operands operands(args, ShapeOf(args));
    const auto set = [&](int argument, const dnnl::memory::desc& operand) {
      product.arguments[argument] = dnnl::memory(operand, engine_, DNNL_MEMORY_NONE);
    };
    set(DNNL_ARG_SRC, operands.a);
    set(DNNL_ARG_WEIGHTS, operands.b);
    set(DNNL_ARG_DST, operands.c);
    if (args.bias.data != nullptr) set(DNNL_ARG_BIAS, operands.bias);
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  Scratch scratch_;
  std::map<Key, std::unique_ptr<Product>> products_;
};

bool DnnlMatMul(Exec& exec, const MatMulArgs& args, Rows rows) {
  if (args.a.dtype == DType::kF64) return false;
  Context& context = ContextOf(exec);
  if (context.primitives == nullptr) context.primitives = std::make_shared<DnnlPrimitives>();
  DnnlPrimitives& primitives = *context.primitives;
  omp_set_num_threads(Threads(exec));  // For this thread; oneDNN asks when it prepares and runs.
  Product* product = primitives.Find(exec, args, rows);
  if (product == nullptr) return false;
  const auto set = [&](int argument, const void* data) {
    product->arguments.at(argument).set_data_handle(const_cast<void*>(data));
  };
  set(DNNL_ARG_SRC, ViewOfA(args).data);
  set(DNNL_ARG_WEIGHTS, ViewOfB(args).data);
  set(DNNL_ARG_DST, ViewOfC(args).data);
  if (args.bias.data != nullptr) set(DNNL_ARG_BIAS, args.bias.data);
  const size_t scratch = product->arguments.at(DNNL_ARG_SCRATCHPAD).get_desc().get_size();
  set(DNNL_ARG_SCRATCHPAD, primitives.scratch().Reserve(scratch));
  try {
    product->primitive.execute(primitives.stream(), product->arguments);
    primitives.stream().wait();
  } catch (const dnnl::error& error) {
    CHECK(false) << "oneDNN matmul: " << error.what();
  }
  return true;
}

}  // namespace trainyard::cpu
