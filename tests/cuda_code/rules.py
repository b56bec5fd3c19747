"""What the machine code of kernels/cuda may do. check.py holds the code to these tables.

A pattern matches the whole name of a kernel: its source, its function and its template arguments,
as `check.py --list OBJECT...` prints them. An exception names the instructions that it allows, and
how many: the most that a kernel of its pattern has, as nvcc of CUDA 13.0 unrolls and inlines it.
A `*` allows any number, but not none. An exception that allows more than the code needs fails.
"""
from dataclasses import dataclass

# Kernels of f64 are for tests, since jobs train in bf16 and f32. The widths of their accesses are
# not checked.
UNTRAINED = r".*[<, ]double\b.*"

# Many kernels have a second form, for rows whose width or address is no multiple of 16 bytes. That
# form goes element by element, so the widths of its accesses are not checked. The group is the
# template argument that says so; the vectorised form must exist, and has another value there.
ELEMENTWISE = (
    r".* ElementsKernel<EachPack<(1), .*",
    r".* RowsKernel<(1), .*",
    r".* ColumnsKernel<\w+, (1), .*",
    r"(?:adaptive|gated)_norm\.cu (?:Forward|Backward)Kernel<\w+, (0)>",
    r"head_norm\.cu (?:Forward|Backward)Kernel<\w+, (0), false>",
    r"(?:rms|layer)_norm\.cu (?:Forward|Backward)Kernel<\w+, (0), 256>",
    r"causal_conv\.cu (?:Forward|Backward)Kernel<\w+, (1), 4>",
    r"gated_add\.cu BackwardKernel<\w+, (0)>",
    r"magnitude\.cu BackwardKernel<\w+, (0)>",
    r"low_rank_squares\.cu SquaresKernel<\w+, (1)>",
    r"latent_heads\.cu (?:Forward|Backward)Kernel<\w+, (1)>",
    r"mean_square\.cu DifferencesKernel<(1), .*",
    r"cross_entropy\.cu StatisticsKernel<(1), .*",
    r"loss_and_gradient\.cu LossKernel<(1), .*",
    r"scaled_(?:squared_relu|swiglu)\.cu (?:Forward|Backward)Kernel<(1), .*",
    r"grouped_bias\.cu (?:Forward|Gradient|FactorGradient)Kernel<(1), .*",
    r"grouped_round\.cu (?:Row|Column|)AmaxKernel<(1), .*",
    r"grouped_round\.cu RoundKernel<\w+, (1), .*",
    r"embedding\.cu (?:Sum|Long)Kernel<(1), .*",
    r"adamw\.cu UpdateKernel<(1), .*",
    r"compact_adamw\.cu CompactUpdateKernel<(1), .*",
    r"lion\.cu LionKernel<(1), .*",
    r"muon\.cu (?:Momentum|Piece)Kernel<(1), .*",
    r"gather_rows\.cu SumKernel<\w+, (1)>",
    r"gather_rows\.cu (?:Gather|Scatter)Kernel<(float|bf16)>",
    r"sum_squares\.cu SumSquaresKernel<\w+, (false)>",
    r"quantize\.cu AmaxKernel<\w+, (false)>",
    r"quantize\.cu QuantizeKernel<\w+, \w+, .*, (false)>",
)

ANY = 1 << 30


@dataclass
class Excuse:
    pattern: str
    allows: str  # "STG.32:1 LDG.32:*"
    why: str

    def limits(self):
        pairs = (entry.split(":") for entry in self.allows.split())
        return {name: ANY if most == "*" else int(most) for name, most in pairs}


# Accesses of the device's memory that are narrower than 128 bits.
NARROW = (
    # One value for each row.
    Excuse(r"rms_norm\.cu ForwardKernel<.*", "STG.32:1", "rstd"),
    Excuse(r"rms_norm\.cu BackwardKernel<.*", "LDG.32:1", "rstd"),
    Excuse(r"gated_norm\.cu ForwardKernel<.*", "STG.32:1", "rstd"),
    Excuse(r"gated_norm\.cu BackwardKernel<.*", "LDG.32:1", "rstd"),
    Excuse(r"magnitude\.cu ElementsKernel<GainBody<bf16>>", "LDG.16:5 LDG.64:5 STG.32:10",
           "a row's norms, offset and gain"),
    Excuse(r"magnitude\.cu ElementsKernel<GainBody<float>>", "LDG.32:5 LDG.64:5 STG.32:10",
           "a row's norms, offset and gain"),
    Excuse(r"low_rank_squares\.cu SquaresKernel<bf16, 8>", "LDG.16:1 STG.32:8",
           "the narrow matrix b, and the sums of a block's rows"),
    Excuse(r"low_rank_squares\.cu SquaresKernel<float, 4>", "LDG.32:1 STG.32:8",
           "the narrow matrix b, and the sums of a block's rows"),
    Excuse(r"layer_norm\.cu ForwardKernel<.*", "STG.32:2", "mean and rstd"),
    Excuse(r"layer_norm\.cu BackwardKernel<.*", "LDG.32:2", "mean and rstd"),
    Excuse(r"adaptive_norm\.cu ForwardKernel<.*", "STG.32:2", "mean and rstd"),
    Excuse(r"adaptive_norm\.cu BackwardKernel<.*", "LDG.32:2", "mean and rstd"),
    Excuse(r"head_norm\.cu ForwardKernel<.*", "STG.32:1", "rstd"),
    Excuse(r"embedding\.cu RowsKernel<\d, ForwardBody<.*", "LDG.32:1", "the token"),
    Excuse(r"dropout\.cu .*", "LDG.32:1 LDG.64:2", "a row's sample, and the step's state"),
    Excuse(r"loss_and_gradient\.cu LossKernel<8, bf16>",
           "LDG.16:3 LDG.32:1 LDG.64:1 STG.16:3 STG.32:6",
           "a row's target and the logits there and between packs and padding, and the gradients of"
           " these; its maximum, sum and logit; the batch's count of targets"),
    Excuse(r"loss_and_gradient\.cu LossKernel<4, float>", "LDG.32:4 LDG.64:1 STG.32:15",
           "the same"),
    Excuse(r"cross_entropy\.cu StatisticsKernel<.*", "LDG.16:2 LDG.32:4 STG.32:3",
           "a row's target and the logit there, and one between packs and padding; its maximum, sum and logit"),
    Excuse(r"cross_entropy\.cu RowsKernel<\d, BackwardBody<.*, false>>", "LDG.32:2 LDG.64:1",
           "a row's target and statistics, and the batch's count of targets"),
    Excuse(r"cross_entropy\.cu RowsKernel<\d, BackwardBody<.*, true>>", "LDG.32:3",
           "a row's target, statistics and gradient"),
    Excuse(r"scaled_(?:squared_relu|swiglu)\.cu ForwardKernel<.*", "LDG.32:2",
           "the count of rows, and a row's weight"),
    Excuse(r"grouped_bias\.cu ForwardKernel<.*", "LDG.32:11",
           "the groups' offsets, and a row's weight"),
    Excuse(r"grouped_bias\.cu FactorGradientKernel<.*", "LDG.32:6 STG.32:1",
           "the groups' offsets, and a weight's gradient"),
    Excuse(r"grouped_bias\.cu GradientKernel<.*", "LDG.32:40 STG.32:14",
           "the groups' offsets, rows' weights, and a group's sums, one for many rows"),
    Excuse(r"grouped_round\.cu (?:Column|)AmaxKernel<.*", "LDG.32:5", "the groups' offsets"),
    Excuse(r"grouped_round\.cu RowAmaxKernel<.*", "LDG.32:5 STG.32:2",
           "the groups' offsets, and a row's greatest number"),
    Excuse(r"grouped_round\.cu RoundKernel<.*", "LDG.32:6", "the groups' offsets and factors"),
    Excuse(r"scaled_(?:squared_relu|swiglu)\.cu BackwardKernel<.*", "LDG.32:2 STG.32:1",
           "the count of rows, a row's weight and that weight's gradient"),
    Excuse(r"embedding\.cu SumKernel<.*", "LDG.32:6 LDG.64:16",
           "sorted positions, of which rows are summed"),
    Excuse(r"embedding\.cu LongKernel<.*", "LDG.32:8 STG.32:1",
           "sorted positions; one thread adds a column, and its neighbours the next"),
    Excuse(r"gather_rows\.cu GatherKernel<Pack<.*", "LDG.32:2", "which row to copy"),
    Excuse(r"gather_rows\.cu ScatterKernel<Pack<.*", "LDG.32:1", "where to put a row"),
    Excuse(r"gather_rows\.cu SumKernel<.*", "LDG.32:9", "which rows to sum"),
    Excuse(r"state_\w+\.cu RowsKernel<[48], (Scale|Decay)Body<.*", "LDG.32:2",
           "a token's step and decay, for each head"),
    Excuse(r"state_\w+\.cu ElementsKernel<EachPack<[48], Pass<.*", "LDG.32:6",
           "the decays of chunks, and where documents begin"),
    # Once for 64 rows, and where documents begin.
    Excuse(r"causal_conv\.cu ForwardKernel<\w+, [48], 4>", "LDG.16:40 LDG.32:23",
           "weights and biases"),
    Excuse(r"causal_conv\.cu BackwardKernel<\w+, [48], 4>", "LDG.16:40 LDG.32:24 STG.32:40",
           "weights and biases, and sums of their gradients"),
    # For generation: a few tokens. Neighbours in the warp have the next column.
    Excuse(r"kept_state\.cu ScanKernel<bf16>", "LDG.16:30 LDG.32:11 STG.16:2 STG.32:14",
           "a column of a state each, a token's B, C and step, and its place"),
    Excuse(r"kept_state\.cu ScanKernel<float>", "LDG.32:42 STG.32:17", "the same"),
    Excuse(r"kept_state\.cu ElementsKernel<ConvBody<bf16>>", "LDG.16:8 LDG.32:2 STG.16:7",
           "a channel each, and a token's place"),
    Excuse(r"kept_state\.cu ElementsKernel<ConvBody<float>>", "LDG.32:10 STG.32:7", "the same"),
    # Sums of columns: one thread ends each of them, and its neighbours in the warp end the next.
    Excuse(r"head_norm\.cu BackwardKernel<.*", "LDG.32:1 STG.32:2",
           "rstd; a block's sums of two gains' gradients"),
    Excuse(r".* ColumnsKernel<float, 4, ColumnOutputs<.*", "LDG.32:2 STG.32:3", "a column's sum"),
    Excuse(r".* ColumnsKernel<float, 4, SampleOutputs<.*", "STG.16:2 STG.32:2",
           "a column's sum over a sample"),
    Excuse(r"(causal_conv|state_\w+)\.cu ColumnsKernel<float, 4, Add(Sums|Parameters)<.*",
           "LDG.32:2 STG.32:2", "a column's sum"),
    Excuse(r"column_sum\.cu ColumnsKernel<\w+, \d, ToRun<.*", "STG.32:2",
           "a column's sum over a run of rows"),
    # The tail that is no whole pack, and 8 bytes of bf16 beside 16 bytes of f32.
    Excuse(r"adamw\.cu UpdateKernel<4, float, bf16>",
           "LDG.32:4 LDG.64:4 STG.16:1 STG.32:3 STG.64:1", "the tail, the step's state, the copy"),
    Excuse(r"adamw\.cu UpdateKernel<4, float, float>", "LDG.32:4 LDG.64:4 STG.32:4",
           "the tail, the step's state"),
    Excuse(r"compact_adamw\.cu CompactUpdateKernel<8, bf16>",
           "LDG.16:4 LDG.32:1 LDG.64:5 STG.16:4", "the tail, the step's state"),
    Excuse(r"compact_adamw\.cu CompactUpdateKernel<8, float>",
           "LDG.16:2 LDG.32:2 LDG.64:5 STG.16:2 STG.32:1", "the tail, the step's state"),
    Excuse(r"lion\.cu LionKernel<4, float, bf16>",
           "LDG.32:3 LDG.64:3 STG.16:1 STG.32:2 STG.64:1", "the tail, the step's state, the copy"),
    Excuse(r"lion\.cu LionKernel<4, float, float>", "LDG.32:3 LDG.64:3 STG.32:3",
           "the tail, the step's state"),
    Excuse(r"muon\.cu MomentumKernel<4, float>", "LDG.32:2 LDG.64:2 STG.32:2",
           "the tail, the step's state"),
    Excuse(r"muon\.cu PieceKernel<4, float, float, float>", "LDG.64:2", "the step's state"),
    Excuse(r"muon\.cu PieceKernel<4, float, bf16, float>", "LDG.64:2 STG.64:1",
           "the step's state, the copy"),
    Excuse(r"muon\.cu PieceKernel<4, float, float, bf16>", "LDG.64:4",
           "the step's state; half as many bytes of bf16"),
    Excuse(r"muon\.cu PieceKernel<4, float, bf16, bf16>", "LDG.64:4 STG.64:1",
           "the step's state, the copy; half as many bytes of bf16"),
    Excuse(r"muon\.cu FactorKernel<bf16>", "LDG.16:* STG.32:1", "a diagonal, and the factor"),
    Excuse(r"muon\.cu FactorKernel<float>", "LDG.32:* STG.32:1", "a diagonal, and the factor"),
    Excuse(r"muon\.cu .*ScaleBody<.*", "LDG.32:1", "the factor"),
    Excuse(r"muon\.cu .*CombineBody<bf16>.*", "LDG.64:1 STG.64:1", "half as many bytes of bf16"),
    Excuse(r"sum_squares\.cu SumSquaresKernel<bf16, .*", "LDG.16:1 STG.64:1",
           "the tail; a block's sum"),
    Excuse(r"sum_squares\.cu SumSquaresKernel<float, .*", "LDG.32:1 STG.64:1",
           "the tail; a block's sum"),
    Excuse(r"cast\.cu .*CastBody<float, bf16>>>", "STG.64:1", "half as many bytes of bf16"),
    Excuse(r"cast\.cu .*CastBody<bf16, float>>>", "LDG.64:1", "half as many bytes of bf16"),
    Excuse(r"copy_columns\.cu .*CopyColumnsBody<float, bf16>>", "STG.64:1",
           "half as many bytes of bf16"),
    Excuse(r"copy_columns\.cu .*CopyColumnsBody<bf16, float>>", "LDG.64:1",
           "half as many bytes of bf16"),
    Excuse(r"latent_heads\.cu (Forward|Backward)Kernel<float, 4>", "LDG.64:*",
           "angles of two pairs beside four values"),
    Excuse(r"quantize\.cu QuantizeKernel<.*", "LDG.32:32", "factors, which many numbers share"),
    Excuse(r"dequantize_nf4\.cu DequantizeKernel<(bf16|float)>", "LDG.8:1 LDG.32:3",
           "half a byte of code for a number, and a scale for 64"),
    # Kernels that move no rows of the model's width, and so few bytes.
    Excuse(r"quantize\.cu (ElementsKernel<FactorBody|OneFactorKernel)<.*", "LDG.32:* STG.32:*",
           "factors and scales"),
    Excuse(r"widened_product\.cu ElementsKernel<ArrangeBody>", "LDG.32:* STG.32:*", "scales"),
    Excuse(r"grouped_round\.cu (?:Factor|LineFactors)Kernel<.*", "LDG.32:* STG.32:*", "factors and scales"),
    Excuse(r"amax_history\.cu .*", "LDG.32:* LDG.64:* STG.32:*", "a history, once a step"),
    Excuse(r"(clip|sum_squares)\.cu (Clip|AddBlocks)Kernel", "LDG.64:* STG.64:*",
           "the step's state"),
    Excuse(r"mean_square\.cu (Differences|AddLoss)Kernel.*", "LDG.64:* STG.64:*",
           "the step's state, and blocks' sums"),
    Excuse(r"positions\.cu .*", "LDG.32:* STG.32:*", "a position for each token, once a step"),
    Excuse(r"grid_positions\.cu .*", "LDG.64:* STG.16:* STG.32:*",
           "the places of patches, once a job"),
    Excuse(r"time_embedding\.cu .*", "LDG.32:* LDG.64:* STG.16:* STG.32:*",
           "a few numbers a sample"),
    Excuse(r"random_values\.cu .*", "LDG.64:* STG.8:* STG.16:* STG.32:*",
           "initial weights, once a job"),
    Excuse(r"rope\.cu ElementsKernel<TableBody<.*", "LDG.64:* STG.32:*", "the angles, once a job"),
    Excuse(r"embedding\.cu SortKernel", "LDG.32:* LDG.64:* STG.64:*", "an entry for each token"),
    Excuse(r"expert_(counts|order)\.cu .*|(load_balance|balance_bias)\.cu ScanTiles.*",
           "LDG.32:* STG.32:* STG.64:*", "counts of experts, and a place for each token"),
    Excuse(r"cross_entropy\.cu CombineKernel<.*", "LDG.32:* LDG.64:* STG.32:* STG.64:*",
           "statistics of rows"),
    Excuse(r"preference\.cu .*", "LDG.32:* LDG.64:* STG.32:* STG.64:*",
           "a few numbers for each token, and the step's state"),
    Excuse(r"balance_bias\.cu ElementsKernel<.*", "LDG.32:* LDG.64:* STG.32:*",
           "a bias for each expert"),
    Excuse(r"load_balance\.cu (AddLoss|Forward|Backward)Kernel<.*",
           "LDG.32:* LDG.64:* STG.16:* STG.32:* STG.64:*", "rows with one element for each expert"),
    Excuse(r"router\.cu .*", "LDG.32:* STG.16:* STG.32:*",
           "rows with one element for each expert"),
    Excuse(r"state_init\.cu .*", "LDG.64:* STG.16:* STG.32:*", "initial values, once a job"),
    Excuse(r"state_\w+\.cu (ElementsKernel<(Steps|After|ToPartEnd)Body|FinishKernel)<.*",
           "LDG.16:* LDG.32:* STG.16:* STG.32:*", "numbers for each token and head"),
    Excuse(r"state_ends\.cu ElementsKernel<CopyBody<.*", "LDG.32:* STG.16:* STG.32:*",
           "a state for each part of a sequence"),
    Excuse(r"state_starts\.cu .*", "LDG.32:* STG.32:*", "a state for each part of a sequence"),
    # Kernels that move rows element by element.
    Excuse(r"causal_conv\.cu \w+Kernel<\w+, 1, 8>", "LDG.16:* LDG.32:* STG.16:* STG.32:*",
           "for more taps than public models have"),
    Excuse(r"state_\w+\.cu \w+Kernel<PlainProduct<.*", "LDG.16:* LDG.32:* STG.16:* STG.32:*",
           "for dims that are no multiples of 8, and f32: bound by its sums"),
    Excuse(r"state_\w+\.cu \w+Kernel<TensorProduct, .*", "LDG.32:* STG.32:* STG.64:*",
           "numbers for each token and head; mma.sync leaves two neighbours with a thread"),
    Excuse(r"matmul_bias\.cu .*", "LDG.16:* LDG.32:* STG.16:* STG.32:*",
           "a bias, before the product that adds to it; models leave that to cuBLASLt"),
    Excuse(r"attention_sinks\.cu SinkKernel<.*", "LDG.16:1 LDG.32:4 STG.32:1",
           "a head's sink, queries' values in f32, one for each thread, and the sink's gradient"),
    Excuse(r"attention_sinks\.cu ElementsKernel<AddBody<.*", "LDG.16:2 LDG.32:4 STG.32:2",
           "a head's sink, and a query's lse"),
    Excuse(r"attention_sinks\.cu ElementsKernel<DeltaBody<.*", "STG.32:2", "a query's delta"),
    Excuse(r"attention_by_parts\.cu ElementsKernel<MergeBody<.*", "LDG.16:1 LDG.32:3 STG.32:1",
           "lse of the part and of all parts, and a head's sink"),
    Excuse(r"attention_(forward|backward)\.cu .*", "LDG.16:* LDG.32:* LDG.64:2 STG.16:* STG.32:*",
           "for the dtypes and shapes that cuDNN does not have: bound by its sums; for dropout, the"
           " step's state"),
    Excuse(r"attention_warp_forward\.cu .*", "LDG.16:* LDG.32:* LDG.64:* STG.32:* STG.64:*",
           "mma.sync leaves two neighbours with a thread; statistics, documents, a sink, and for"
           " dropout the step's state"),
    Excuse(r"attention_warp_backward\.cu .*", "LDG.32:* LDG.64:* STG.32:* STG.64:*",
           "the same without the sink"),
    Excuse(r"sum_words\.cu SumWordsKernel<(bf16|short)>", "LDG.16:2", "before and after whole packs"),
    Excuse(r"sum_words\.cu SumWordsKernel<float>", "LDG.32:2", "before and after whole packs"),
    Excuse(r"sum_words\.cu SumWordsKernel<unsigned char>", "LDG.8:2",
           "before and after whole packs"),
    Excuse(r"grouped_matmul\.cu \w+<PlainProduct<.*", "LDG.16:* LDG.32:* STG.16:* STG.32:*",
           "for dims that are no multiples of 8, and f32: bound by its sums"),
    Excuse(r"widened_product\.cu WidenedKernel<.*", "LDG.8:* LDG.16:* LDG.32:* STG.16:* STG.32:*",
           "for products in 8 bits that cuBLASLt does not have: bound by its sums"),
    Excuse(r"grouped_matmul\.cu RowsKernel<TensorProduct.*, false>", "LDG.32:38 STG.32:32",
           "offsets and scales of groups; mma.sync leaves two neighbours with a thread"),
    Excuse(r"grouped_matmul\.cu RowsKernel<TensorProduct.*, true>", "LDG.32:132 STG.32:32",
           "offsets, and scales of rows and columns; mma.sync leaves two neighbours with a thread"),
    Excuse(r"grouped_matmul\.cu WeightsKernel<TensorProduct.*", "LDG.32:4 LDG.64:32 STG.64:64",
           "offsets and scales of groups; mma.sync leaves two neighbours with a thread, once where the"
           " product is added to them and once where it is not"),
)

# These kernels must multiply on the tensor cores, and no others do. cuDNN does most attention there,
# and attention_warp_*.cu what cuDNN does not have. attention_forward.cu and attention_backward.cu
# are for f32, and for heads whose width is no multiple of 8.
TENSOR_CORES = (
    r"attention_warp_\w+\.cu .*",
    r"grouped_matmul\.cu (Rows|Weights)Kernel<TensorProduct, .*",
    r"state_(scan|scan_backward|ends)\.cu \w+Kernel<TensorProduct, .*",
)

# A kernel uses local memory for spilled registers, and for arrays whose index is not a constant.
# Both are slow, since local memory lies in the device's memory.
LOCAL = (
    Excuse(r"(grid_positions|random_values|rope|time_embedding)\.cu "
           r"ElementsKernel<(Grid|RandomValues|Table|Time)Body<.*", "STL:* LDL:*",
           "f64 angles too large for the usual reduction"),
)
