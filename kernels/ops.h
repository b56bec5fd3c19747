// Every op, once: what each backend has a kernel for.

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
#include "kernels/grouped_bias.h"
#include "kernels/grouped_matmul.h"
#include "kernels/head_norm.h"
#include "kernels/layer_norm.h"
#include "kernels/load_balance.h"
#include "kernels/matmul.h"
#include "kernels/matmul_gelu.h"
#include "kernels/positions.h"
#include "kernels/random_normal.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/router.h"
#include "kernels/scaled_swiglu.h"
#include "kernels/sum_slices.h"
#include "kernels/sum_squares.h"
#include "kernels/swiglu.h"

// X(Op) for each op, whose arguments are the struct OpArgs of its header.
// clang-format off
#define TRAINYARD_FOR_EACH_OP(X) \
  X(AdamW) \
  X(Add) \
  X(AddBias) \
  X(AttentionBackward) \
  X(AttentionForward) \
  X(AttentionPartBackward) \
  X(AttentionPartForward) \
  X(BalanceBias) \
  X(BalanceBiasGradient) \
  X(Cast) \
  X(Clip) \
  X(ColumnSum) \
  X(CopyColumns) \
  X(CrossEntropyBackward) \
  X(CrossEntropyCombine) \
  X(CrossEntropyForward) \
  X(CrossEntropyStatistics) \
  X(EmbeddingBackward) \
  X(EmbeddingForward) \
  X(ExpertOrder) \
  X(Fill) \
  X(GatherRows) \
  X(GatherSum) \
  X(GeluBackward) \
  X(GeluForward) \
  X(GroupedBiasFactorGradient) \
  X(GroupedBiasForward) \
  X(GroupedBiasGradient) \
  X(GroupedMatMulForward) \
  X(GroupedMatMulInputGradient) \
  X(GroupedMatMulWeightGradient) \
  X(HeadNormBackward) \
  X(HeadNormForward) \
  X(LayerNormBackward) \
  X(LayerNormForward) \
  X(LoadBalanceBackward) \
  X(LoadBalanceCounts) \
  X(LoadBalanceForward) \
  X(MatMul) \
  X(MatMulGeluBackward) \
  X(MatMulGeluForward) \
  X(Positions) \
  X(RandomNormal) \
  X(RmsNormBackward) \
  X(RmsNormForward) \
  X(Rope) \
  X(RopeTable) \
  X(RouterBackward) \
  X(RouterForward) \
  X(ScaledSwiGluBackward) \
  X(ScaledSwiGluForward) \
  X(SumSlices) \
  X(SumSquares) \
  X(SwiGluBackward) \
  X(SwiGluForward)
// clang-format on

// Declares a backend's kernel of the op, in its namespace.
#define TRAINYARD_DECLARE_KERNEL(Op) void Op(Exec& exec, const Op##Args& args);
