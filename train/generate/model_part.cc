#include "train/generate/model_part.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "models/arch/registry.h"
#include "train/checkpoint/adapter_of.h"
#include "train/config/mesh.h"
#include "train/config/validate_layout.h"
#include "train/step/agree.h"
#include "train/step/snapshot.h"

namespace trainyard {
namespace {

using Order = TensorGang::Order;

// Memory of a GPU that is left for the scratch memory of kernels and of NVIDIA's libraries.
constexpr size_t kLeftOnGpu = size_t{1} << 30;

bool HasF64(const Manifest& manifest) {
  const std::vector<StoredTensor>& tensors = manifest.tensors;
  return std::any_of(tensors.begin(), tensors.end(), [](const StoredTensor& tensor) {
    return tensor.kind == TensorKind::kParameter && tensor.dtype == DType::kF64;
  });
}

// Reads an output of the program, as f32.
void ReadOutput(const Executable& executable, const std::string& output,
                std::vector<float>& logits) {
  const ValueInfo& info = executable.program().info(executable.program().outputs.at(output));
  logits.resize(size_t(info.shape.elements()));
  if (info.dtype != DType::kF64) {
    return executable.ReadOutput(output, 0, logits.data(), logits.size() * sizeof(float));
  }
  std::vector<double> wide(logits.size());
  executable.ReadOutput(output, 0, wide.data(), wide.size() * sizeof(double));
  std::transform(wide.begin(), wide.end(), logits.begin(), [](double x) { return float(x); });
}

// Tokens as numbers that the gang carries, and back.
std::vector<int64_t> Encoded(int chunk, std::span<const NewToken> tokens) {
  std::vector<int64_t> numbers = {chunk};
  for (const NewToken& of : tokens) {
    numbers.insert(numbers.end(), {of.token, of.position, of.first_row, of.cache_row});
  }
  return numbers;
}
std::vector<NewToken> Decoded(std::span<const int64_t> numbers) {
  std::vector<NewToken> tokens;
  for (size_t i = 0; i < numbers.size(); i += 4) {
    tokens.push_back({.token = int32_t(numbers[i]),
                      .position = numbers[i + 1],
                      .first_row = numbers[i + 2],
                      .cache_row = numbers[i + 3]});
  }
  return tokens;
}

}  // namespace

absl::StatusOr<PartRecord> RecordOf(const Checkpoint& checkpoint, const PartSizes& sizes,
                                    const TensorGang* gang) {
  PartRecord record = {.model = checkpoint.state().model, .options = {}};
  RecordOptions& options = record.options;
  options = {.sequence = sizes.sequence, .cache = sizes.cache, .cached_texts = sizes.texts};
  // An adapter that was imported in f32 may stand beside a base in f64.
  const bool f64 =
      HasF64(checkpoint.manifest()) || (checkpoint.base() != nullptr && HasF64(*checkpoint.base()));
  options.precision = f64 ? Precision::F64() : Precision::F32();
  options.adapter = AdapterOf(checkpoint);
  // Norms of an adapted weight are of numbers as wide as its adapter's.
  if (sizes.narrow && !f64 && !options.adapter.magnitudes) {
    options.precision = options.precision.WithNarrowWeights();
  }
  if (gang == nullptr) return record;
  ASSIGN_OR_RETURN(record.model, DividedOverTensorRanks(record.model, gang->size()));
  options.mesh = MeshOfTensorRanks(gang->size(), record.model);
  options.mesh.rank = gang->rank();
  return record;
}

absl::Status ModelPart::Agree(const absl::Status& mine) const {
  return gang_ == nullptr ? mine : AgreeOnStatus(gang_->everyone(), mine);
}

void ModelPart::Tell(Order order, std::span<const int64_t> numbers) {
  if (gang_ != nullptr && gang_->leads()) gang_->Tell(order, numbers);
}

absl::StatusOr<bool> ModelPart::Allocate(const Checkpoint& checkpoint, const PartSizes& sizes,
                                         const PartDevice& device) {
  executable_ = nullptr;  // Frees its memory.
  ASSIGN_OR_RETURN(const PartRecord record, RecordOf(checkpoint, sizes, gang_));
  Program program = RecordInference(*CreateModel(record.model), record.options);
  CollectiveTable collectives;
  if (gang_ != nullptr) {
    absl::StatusOr<CollectiveTable> joined = gang_->Join(program);
    RETURN_IF_ERROR(Agree(joined.status()));
    collectives = *std::move(joined);
  }
  const MemoryPlan plan = PlanMemory(program);
  absl::StatusOr<std::unique_ptr<Executable>> executable =
      Executable::Create(std::move(program), plan, device.backend, device.threads, collectives);
  if (device.backend.device() == DeviceKind::kCpu) {
    RETURN_IF_ERROR(Agree(executable.status()));
    executable_ = *std::move(executable);
    return true;
  }
  // How much memory a GPU has left is seen when it is asked for some.
  int64_t lacks = executable.ok() && device.backend.Allocate(kLeftOnGpu).ok() ? 0 : 1;
  if (gang_ != nullptr) {
    gang_->everyone().AllReduceMax(Tensor{{&lacks, DType::kI64, Shape{1}}});
  }
  if (lacks == 0) executable_ = *std::move(executable);
  return lacks == 0;
}

absl::StatusOr<std::unique_ptr<ModelPart>> ModelPart::Bind(const Checkpoint& checkpoint,
                                                           PartSizes sizes, bool fewer_texts,
                                                           const PartDevice& device,
                                                           TensorGang* gang) {
  std::unique_ptr<ModelPart> part(new ModelPart(gang));
  const int64_t ranks = gang == nullptr ? 1 : gang->size();
  while (true) {
    ASSIGN_OR_RETURN(const bool fits, part->Allocate(checkpoint, sizes, device));
    if (fits) break;
    if (!fewer_texts || sizes.texts <= ranks) {
      ASSIGN_OR_RETURN(const PartRecord record, RecordOf(checkpoint, sizes, gang));
      const MemoryPlan plan =
          PlanMemory(RecordInference(*CreateModel(record.model), record.options));
      return absl::FailedPreconditionError(absl::StrCat(
          "batch: wanted fewer texts at once, a shorter --window, more --tensor ranks or a GPU "
          "with more memory, since ",
          sizes.texts, sizes.texts == 1 ? " text takes " : " texts take ",
          FormatBytes(double(plan.total_bytes())), " and ", FormatBytes(double(kLeftOnGpu)),
          " beside it, which the GPU does not have"));
    }
    sizes.texts = std::max(ranks, sizes.texts / 2 / ranks * ranks);
  }
  Executable& executable = *part->executable_;
  RETURN_IF_ERROR(part->Agree(LoadSnapshot(checkpoint, LoadWhat::kParameters, executable)));
  executable.Run(Action::kPrepare);
  if (sizes.cache > 0) ZeroCaches(executable);
  return part;
}

absl::StatusOr<std::unique_ptr<ModelPart>> ModelPart::Load(const Checkpoint& checkpoint,
                                                           const PartSizes& sizes, bool fewer_texts,
                                                           const PartDevice& device,
                                                           TensorGang* gang) {
  if (gang != nullptr) {
    gang->Tell(Order::kLoad, std::vector<int64_t>{sizes.sequence, sizes.cache, sizes.texts,
                                                  sizes.narrow, fewer_texts});
    BroadcastText(gang->everyone(), checkpoint.path(), 0);
    BroadcastText(gang->everyone(), checkpoint.manifest().sha256, 0);
    RETURN_IF_ERROR(AgreeOnStatus(gang->everyone(), absl::OkStatus()));
  }
  return Bind(checkpoint, sizes, fewer_texts, device, gang);
}

int64_t ModelPart::columns() const {
  const Program& of = program();
  return of.info(of.outputs.at("logits")).shape[1] * of.mesh.size(kTensorAxes);
}

void ModelPart::Run(std::span<const int32_t> tokens) {
  Tell(Order::kRun, std::vector<int64_t>(tokens.begin(), tokens.end()));
  // A token does not see those after it, because attention is causal.
  std::vector<int32_t> padded(size_t(program().sequence));
  std::copy(tokens.begin(), tokens.end(), padded.begin());
  executable_->WriteInput("tokens", 0, padded);
  executable_->Run(Action::kForward);
}

void ModelPart::Replay(int chunk, std::span<const NewToken> tokens) {
  if (gang_ != nullptr) Tell(Order::kReplay, Encoded(chunk, tokens));
  ReplayTokens(*executable_, chunk, tokens);
}

void ModelPart::ReadLogits(const std::string& output, std::span<const int64_t> rows,
                           std::vector<float>& logits) {
  std::vector<int64_t> numbers = {output == kSeveralLogits};
  numbers.insert(numbers.end(), rows.begin(), rows.end());
  Tell(Order::kReadLogits, numbers);
  const size_t ranks = size_t(program().mesh.size(kTensorAxes));
  const size_t all = size_t(columns()), own = all / ranks;
  ReadOutput(*executable_, output, logits);
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i] >= int64_t(i)) << "row " << rows[i] << " does not follow those before it";
    if (rows[i] == int64_t(i)) continue;
    std::copy_n(logits.begin() + rows[i] * int64_t(own), own, logits.begin() + ptrdiff_t(i * own));
  }
  logits.resize(rows.size() * own);
  if (ranks == 1) return;
  const Shape shape = {int64_t(logits.size())};
  Collective& everyone = gang_->everyone();
  if (!gang_->leads()) {
    everyone.WaitSend(everyone.PostSend(ConstTensor{{logits.data(), DType::kF32, shape}}, 0));
    return;
  }
  std::vector<float> part = std::move(logits);
  logits.resize(rows.size() * all);
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (rank > 0) everyone.Receive(Tensor{{part.data(), DType::kF32, shape}}, int(rank));
    for (size_t row = 0; row < rows.size(); ++row) {
      std::copy_n(part.begin() + ptrdiff_t(row * own), own,
                  logits.begin() + ptrdiff_t(row * all + rank * own));
    }
  }
}

namespace {

// Opens rank 0's checkpoint.
absl::StatusOr<Checkpoint> OpenSame(TensorGang& gang) {
  const std::string path = BroadcastText(gang.everyone(), "", 0);
  const std::string sha256 = BroadcastText(gang.everyone(), "", 0);
  absl::StatusOr<Checkpoint> opened = Checkpoint::Open(path);
  if (opened.ok() && opened->manifest().sha256 != sha256) {
    opened = absl::InternalError(absl::StrCat(
        path, ": wanted the checkpoint that rank 0 has opened, found another one in its place"));
  }
  RETURN_IF_ERROR(AgreeOnStatus(gang.everyone(), opened.status()));
  return opened;
}

}  // namespace

absl::Status FollowLeader(TensorGang& gang, const PartDevice& device) {
  std::unique_ptr<ModelPart> part;
  while (true) {
    const TensorGang::Told told = gang.Hear();
    const std::vector<int64_t>& n = told.numbers;
    if (told.order == Order::kEnd) return absl::OkStatus();
    if (told.order == Order::kLoad) {
      part = nullptr;  // Frees its memory.
      const absl::StatusOr<Checkpoint> checkpoint = OpenSame(gang);
      if (!checkpoint.ok()) continue;
      const PartSizes sizes = {.sequence = n[0], .cache = n[1], .texts = n[2], .narrow = n[3] != 0};
      absl::StatusOr<std::unique_ptr<ModelPart>> loaded =
          ModelPart::Bind(*checkpoint, sizes, n[4] != 0, device, &gang);
      if (loaded.ok()) part = *std::move(loaded);
      continue;
    }
    CHECK(part != nullptr) << "order " << int64_t(told.order) << " without a model";
    switch (told.order) {
      case Order::kRun:
        part->Run(std::vector<int32_t>(n.begin(), n.end()));
        break;
      case Order::kReplay:
        part->Replay(int(n[0]), Decoded(std::span(n).subspan(1)));
        break;
      case Order::kReadLogits: {
        std::vector<float> unused;
        part->ReadLogits(n[0] != 0 ? kSeveralLogits : "logits", std::span(n).subspan(1), unused);
        break;
      }
      case Order::kLoad:
      case Order::kEnd:
        break;
    }
  }
}

}  // namespace trainyard
