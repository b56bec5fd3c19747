// The CUDA kernels, one for each argument struct of kernels/*.h; what they compute is said there.
// Arguments have passed Check(). Called through CudaBackend(); they enqueue, and do not wait.

#pragma once

#include "kernels/adamw.h"
#include "kernels/add.h"
#include "kernels/add_bias.h"
#include "kernels/attention.h"
#include "kernels/attention_part.h"
#include "kernels/balance_bias.h"
#include "kernels/cast.h"
#include "kernels/clip.h"
#include "kernels/column_sum.h"
#include "kernels/copy_columns.h"
#include "kernels/cross_entropy.h"
#include "kernels/device/exec.h"
#include "kernels/embedding.h"
#include "kernels/expert_order.h"
#include "kernels/fill.h"
#include "kernels/gather_rows.h"
#include "kernels/gelu.h"
#include "kernels/grouped_matmul.h"
#include "kernels/head_norm.h"
#include "kernels/layer_norm.h"
#include "kernels/load_balance.h"
#include "kernels/matmul.h"
#include "kernels/positions.h"
#include "kernels/random_normal.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/router.h"
#include "kernels/scaled_swiglu.h"
#include "kernels/sum_slices.h"
#include "kernels/sum_squares.h"
#include "kernels/swiglu.h"

namespace trainyard::cuda {

void AdamW(Exec& exec, const AdamWArgs& args);
void Add(Exec& exec, const AddArgs& args);
void AddBias(Exec& exec, const AddBiasArgs& args);
void AttentionBackward(Exec& exec, const AttentionBackwardArgs& args);
void AttentionForward(Exec& exec, const AttentionForwardArgs& args);
void AttentionPartBackward(Exec& exec, const AttentionPartBackwardArgs& args);
void AttentionPartForward(Exec& exec, const AttentionPartForwardArgs& args);
void BalanceBias(Exec& exec, const BalanceBiasArgs& args);
void BalanceBiasGradient(Exec& exec, const BalanceBiasGradientArgs& args);
void Cast(Exec& exec, const CastArgs& args);
void Clip(Exec& exec, const ClipArgs& args);
void ColumnSum(Exec& exec, const ColumnSumArgs& args);
void CopyColumns(Exec& exec, const CopyColumnsArgs& args);
void CrossEntropyBackward(Exec& exec, const CrossEntropyBackwardArgs& args);
void CrossEntropyCombine(Exec& exec, const CrossEntropyCombineArgs& args);
void CrossEntropyForward(Exec& exec, const CrossEntropyForwardArgs& args);
void CrossEntropyStatistics(Exec& exec, const CrossEntropyStatisticsArgs& args);
void EmbeddingBackward(Exec& exec, const EmbeddingBackwardArgs& args);
void EmbeddingForward(Exec& exec, const EmbeddingForwardArgs& args);
void ExpertOrder(Exec& exec, const ExpertOrderArgs& args);
void Fill(Exec& exec, const FillArgs& args);
void GatherRows(Exec& exec, const GatherRowsArgs& args);
void GatherSum(Exec& exec, const GatherSumArgs& args);
void GeluBackward(Exec& exec, const GeluBackwardArgs& args);
void GeluForward(Exec& exec, const GeluForwardArgs& args);
void GroupedMatMulForward(Exec& exec, const GroupedMatMulForwardArgs& args);
void GroupedMatMulInputGradient(Exec& exec, const GroupedMatMulInputGradientArgs& args);
void GroupedMatMulWeightGradient(Exec& exec, const GroupedMatMulWeightGradientArgs& args);
void HeadNormBackward(Exec& exec, const HeadNormBackwardArgs& args);
void HeadNormForward(Exec& exec, const HeadNormForwardArgs& args);
void LoadBalanceBackward(Exec& exec, const LoadBalanceBackwardArgs& args);
void LoadBalanceCounts(Exec& exec, const LoadBalanceCountsArgs& args);
void LoadBalanceForward(Exec& exec, const LoadBalanceForwardArgs& args);
void Positions(Exec& exec, const PositionsArgs& args);
void LayerNormBackward(Exec& exec, const LayerNormBackwardArgs& args);
void LayerNormForward(Exec& exec, const LayerNormForwardArgs& args);
void MatMul(Exec& exec, const MatMulArgs& args);
void RandomNormal(Exec& exec, const RandomNormalArgs& args);
void RmsNormBackward(Exec& exec, const RmsNormBackwardArgs& args);
void RmsNormForward(Exec& exec, const RmsNormForwardArgs& args);
void Rope(Exec& exec, const RopeArgs& args);
void RopeTable(Exec& exec, const RopeTableArgs& args);
void RouterBackward(Exec& exec, const RouterBackwardArgs& args);
void RouterForward(Exec& exec, const RouterForwardArgs& args);
void ScaledSwiGluBackward(Exec& exec, const ScaledSwiGluBackwardArgs& args);
void ScaledSwiGluForward(Exec& exec, const ScaledSwiGluForwardArgs& args);
void SumSlices(Exec& exec, const SumSlicesArgs& args);
void SumSquares(Exec& exec, const SumSquaresArgs& args);
void SwiGluBackward(Exec& exec, const SwiGluBackwardArgs& args);
void SwiGluForward(Exec& exec, const SwiGluForwardArgs& args);

}  // namespace trainyard::cuda
