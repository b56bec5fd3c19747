// Measures what a save computes besides writing: the SHA-256 of a box, and the CRC-32 of its
// pieces. The smaller the box, the shorter are the rows of its pieces. Reports bytes per second for
// float32 boxes of any shape.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "common/sha256.h"
#include "train/checkpoint/pieces.h"

namespace trainyard {
namespace {

// Calls use(data, bytes) for each chunk of a box.
template <typename Use>
void OverChunks(benchmark::State& state, const Shape& extent, Use&& use) {
  const std::vector<float> box(size_t(extent.elements()), 0.25f);
  const size_t bytes = box.size() * sizeof(float);
  const char* const data = reinterpret_cast<const char*>(box.data());
  for (auto _ : state) {
    for (size_t at = 0; at < bytes; at += kChunkBytes) {
      use(data + at, std::min(kChunkBytes, bytes - at));
    }
  }
  state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(bytes));
}

Shape ExtentOf(const benchmark::State& state) { return {state.range(0), state.range(1)}; }

void Sha256OfBox(benchmark::State& state) {
  Sha256 hash;
  OverChunks(state, ExtentOf(state),
             [&](const char* data, size_t bytes) { hash.Update(data, bytes); });
  benchmark::DoNotOptimize(hash.HexDigest());
}

void ChecksumsOfPieces(benchmark::State& state) {
  const Shape extent = ExtentOf(state), piece = PieceShape(extent, sizeof(float));
  PieceChecksums sums(extent, piece, sizeof(float));
  OverChunks(state, extent, [&](const char* data, size_t bytes) { sums.Update(data, bytes); });
  benchmark::DoNotOptimize(sums.sums().data());
  state.SetLabel("pieces of " + ToString(piece));
}

void Boxes(benchmark::internal::Benchmark* benchmark) {
  for (const auto& [rows, columns] :
       {std::pair{8192, 8192}, {4096, 4096}, {1024, 4096}, {1024, 1024}, {256, 256}, {64, 96}}) {
    benchmark->Args({rows, columns});
  }
}

BENCHMARK(Sha256OfBox)->Apply(Boxes);
BENCHMARK(ChecksumsOfPieces)->Apply(Boxes);

}  // namespace
}  // namespace trainyard
