// Adapter of a throwing library: `try` is allowed here.

#include "kernels/cpu/dnnl_adapter.h"

#include <omp.h>

#include <map>
#include <string>
#include <tuple>

#include "dnnl.hpp"

namespace trainyard::cpu {
namespace {

using Key = std::tuple<int64_t, int64_t, int64_t, bool, bool, DType, DType, bool, bool, int>;

struct Product {
  dnnl::matmul primitive;
  dnnl::memory a, b, c, bias, scratchpad;
  std::unordered_map<int, dnnl::memory> arguments;
};

dnnl::memory::data_type TypeOf(DType dtype) {
  return dtype == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// A matrix of `rows` by `columns` as the product sees it, transposed by its strides.
dnnl::memory::desc Matrix(int64_t rows, int64_t columns, bool transposed, DType dtype) {
  const dnnl::memory::dims strides = {transposed ? 1 : columns, transposed ? rows : 1};
  return {{rows, columns}, TypeOf(dtype), strides};
}

}  // namespace

class DnnlPrimitives {
 public:
  // Null where there is no fast implementation.
  Product* Find(const Exec& exec, const MatMulArgs& args) {
    const auto [m, n, k] = ShapeOf(args);
    const Key key{m,
                  n,
                  k,
                  args.trans_a,
                  args.trans_b,
                  args.a.dtype,
                  args.c.dtype,
                  args.write == Write::kAdd,
                  args.bias.data != nullptr,
                  exec.threads};
    const auto found = products_.find(key);
    if (found != products_.end()) return found->second.get();
    return products_.emplace(key, Prepare(args)).first->second.get();
  }
  dnnl::stream& stream() { return stream_; }

 private:
  std::unique_ptr<Product> Prepare(const MatMulArgs& args) {
    const auto [m, n, k] = ShapeOf(args);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (args.write == Write::kAdd) {
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    const auto a = Matrix(m, k, args.trans_a, args.a.dtype);
    const auto b = Matrix(k, n, args.trans_b, args.a.dtype);
    const auto c = Matrix(m, n, false, args.c.dtype);
    const bool has_bias = args.bias.data != nullptr;
    const auto bias = has_bias ? Matrix(1, n, false, args.a.dtype) : dnnl::memory::desc();
    try {
      const dnnl::matmul::desc operation =
          has_bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
      const dnnl::matmul::primitive_desc description(operation, attributes, engine_);
      if (std::string(description.impl_info_str()).find("ref") != std::string::npos) return nullptr;
      auto product = std::make_unique<Product>(
          Product{dnnl::matmul(description),
                  dnnl::memory(a, engine_, DNNL_MEMORY_NONE),
                  dnnl::memory(b, engine_, DNNL_MEMORY_NONE),
                  dnnl::memory(c, engine_, DNNL_MEMORY_NONE),
                  has_bias ? dnnl::memory(bias, engine_, DNNL_MEMORY_NONE) : dnnl::memory(),
                  dnnl::memory(description.scratchpad_desc(), engine_),
                  {}});
      product->arguments = {{DNNL_ARG_SRC, product->a},
                            {DNNL_ARG_WEIGHTS, product->b},
                            {DNNL_ARG_DST, product->c},
                            {DNNL_ARG_SCRATCHPAD, product->scratchpad}};
      if (has_bias) product->arguments.emplace(DNNL_ARG_BIAS, product->bias);
      return product;
    } catch (const dnnl::error&) {
      return nullptr;  // Not implemented on this CPU: ours does it.
    }
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Key, std::unique_ptr<Product>> products_;
};

bool DnnlMatMul(Exec& exec, const MatMulArgs& args) {
  if (args.a.dtype == DType::kF64) return false;
  Context& context = ContextOf(exec);
  if (context.primitives == nullptr) context.primitives = std::make_shared<DnnlPrimitives>();
  omp_set_num_threads(exec.threads);  // Of this thread; oneDNN asks when it prepares and runs.
  Product* product = context.primitives->Find(exec, args);
  if (product == nullptr) return false;
  product->a.set_data_handle(const_cast<void*>(args.a.data));
  product->b.set_data_handle(const_cast<void*>(args.b.data));
  product->c.set_data_handle(args.c.data);
  if (args.bias.data != nullptr) product->bias.set_data_handle(const_cast<void*>(args.bias.data));
  try {
    product->primitive.execute(context.primitives->stream(), product->arguments);
    context.primitives->stream().wait();
  } catch (const dnnl::error& error) {
    CHECK(false) << "oneDNN matmul: " << error.what();
  }
  return true;
}

}  // namespace trainyard::cpu
