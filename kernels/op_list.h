// The names of all ops. Each backend has a kernel for each of them. The structs of arguments are
// only declared here, so that a change of one op's header rebuilds that op's kernels and no others.
// kernels/ops.h includes the definitions of all the structs.

#pragma once

// Calls X(Op) for each op. The arguments of op Op are the struct OpArgs of the op's header.
// clang-format off
#define TRAINYARD_FOR_EACH_OP(X) \
  X(AdamW) \
  X(AdaptiveNormBackward) \
  X(AdaptiveNormForward) \
  X(Add) \
  X(AddBias) \
  X(Amax) \
  X(AmaxHistory) \
  X(AmaxHistoryGradient) \
  X(AttentionBackward) \
  X(AttentionForward) \
  X(AttentionPartBackward) \
  X(AttentionPartForward) \
  X(BalanceBias) \
  X(BalanceBiasGradient) \
  X(Cast) \
  X(CausalConvBackward) \
  X(CausalConvForward) \
  X(Clip) \
  X(ColumnSum) \
  X(CompactAdamW) \
  X(CopyColumns) \
  X(CrossEntropyBackward) \
  X(CrossEntropyCombine) \
  X(CrossEntropyForward) \
  X(CrossEntropyStatistics) \
  X(DequantizeNf4) \
  X(Dropout) \
  X(EmbeddingBackward) \
  X(EmbeddingForward) \
  X(ExpertOrder) \
  X(Fill) \
  X(GatedAddBackward) \
  X(GatedAddForward) \
  X(GatedNormBackward) \
  X(GatedNormForward) \
  X(GatherRows) \
  X(GatherSum) \
  X(GeluBackward) \
  X(GeluForward) \
  X(GridPositions) \
  X(GroupedAmax) \
  X(GroupedBiasFactorGradient) \
  X(GroupedBiasForward) \
  X(GroupedBiasGradient) \
  X(GroupedMatMulForward) \
  X(GroupedMatMulInputGradient) \
  X(GroupedMatMulWeightGradient) \
  X(GroupedRound) \
  X(HeadNormBackward) \
  X(HeadNormForward) \
  X(JoinMaster) \
  X(KeptConv) \
  X(KeptScan) \
  X(LatentHeadsBackward) \
  X(LatentHeadsForward) \
  X(LayerNormBackward) \
  X(LayerNormForward) \
  X(Lion) \
  X(LoadBalanceBackward) \
  X(LoadBalanceCounts) \
  X(LoadBalanceForward) \
  X(LowRankSquares) \
  X(MagnitudeBackward) \
  X(MagnitudeForward) \
  X(MagnitudeGain) \
  X(MatMul) \
  X(MatMulGeluBackward) \
  X(MatMulGeluForward) \
  X(MeanSquare) \
  X(MuonMomentum) \
  X(MuonUpdate) \
  X(NewtonSchulz) \
  X(Positions) \
  X(PreferenceLoss) \
  X(PreferenceSums) \
  X(Quantize) \
  X(RandomValues) \
  X(RmsNormBackward) \
  X(RmsNormForward) \
  X(Rope) \
  X(RopeTable) \
  X(RouterBackward) \
  X(RouterForward) \
  X(Scale) \
  X(ScaledMatMul) \
  X(ScaledSquaredReluBackward) \
  X(ScaledSquaredReluForward) \
  X(ScaledSwiGluBackward) \
  X(ScaledSwiGluForward) \
  X(ScatterRows) \
  X(SiluBackward) \
  X(SiluForward) \
  X(SplitMaster) \
  X(SquaredReluBackward) \
  X(SquaredReluForward) \
  X(StateEndsBackward) \
  X(StateEndsForward) \
  X(StateInit) \
  X(StateScanBackward) \
  X(StateScanForward) \
  X(StateStartsBackward) \
  X(StateStartsForward) \
  X(SumSlices) \
  X(SumSquares) \
  X(SumWords) \
  X(SwiGluBackward) \
  X(SwiGluForward) \
  X(TimeEmbedding)
// clang-format on

// Declares a backend's kernel of the op. Use the macro in the backend's namespace.
#define TRAINYARD_DECLARE_KERNEL(Op) void Op(Exec& exec, const Op##Args& args);

namespace trainyard {

struct Exec;

#define TRAINYARD_DECLARE_ARGS(Op) struct Op##Args;
TRAINYARD_FOR_EACH_OP(TRAINYARD_DECLARE_ARGS)
#undef TRAINYARD_DECLARE_ARGS

}  // namespace trainyard
