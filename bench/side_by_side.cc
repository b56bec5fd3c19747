#include "bench/side_by_side.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "models/program/binder.h"
#include "models/program/memory.h"
#include "models/program/op.h"

namespace trainyard::bench {
namespace {

// What both memories have for one operand of an op.
struct Operand {
  std::string name;
  Tensor reference, tested;
  bool compared = true;    // Memory that an op works in may hold anything afterwards.
  bool by_change = false;  // Updated a little, so that the change is what counts.
  bool written = true;     // By the op.
};

// Memory that grows, and is not made anew for each tensor.
class Room {
 public:
  std::byte* Of(size_t bytes) {
    if (bytes > bytes_) memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes_ = bytes);
    return memory_.get();
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  size_t bytes_ = 0;
};

// One device, with all of the program's memory.
struct Side {
  const Backend& backend;
  Exec exec;
  ProgramMemory memory;

  // Host memory of the same bytes: the tensor's own on a CPU, else `room`.
  std::span<const std::byte> Read(const Tensor& tensor, Room& room) const {
    if (backend.device() == DeviceKind::kCpu) {
      return {static_cast<const std::byte*>(tensor.data), tensor.bytes()};
    }
    std::byte* const host = room.Of(tensor.bytes());
    backend.CopyToHost(exec, host, tensor.data, tensor.bytes());
    return {host, tensor.bytes()};
  }
  void Write(const Tensor& tensor, std::span<const std::byte> bytes) const {
    backend.CopyToDevice(exec, tensor.data, bytes.data(), bytes.size());
  }
};

absl::StatusOr<Side> SideOn(const RankPlan& plan, const Backend& backend, int threads) {
  ASSIGN_OR_RETURN(ProgramMemory memory,
                   ProgramMemory::Allocate(plan.program, plan.memory, backend));
  return Side{backend, backend.NewExec(threads), std::move(memory)};
}

// Binds an instance to one side, and notes what was asked for.
class NotingBinder final : public Binder {
 public:
  // `first`: the instance is the first that writes its gradients.
  NotingBinder(const Side& side, bool first) : side_(side), first_(first) {}

  const Backend& backend() const override { return side_.backend; }
  Tensor tensor(Value value) const override {
    const Tensor tensor = side_.memory.tensor(value, 0);
    values_.insert(value);
    return tensor;
  }
  Tensor flat(FlatBuffer buffer, const FlatRange& range) const override {
    flats_.push_back({buffer, range});
    return side_.memory.flat(buffer, range);
  }
  Tensor frozen(FlatBuffer, const FlatRange& bytes, DType) const override {
    CHECK(false) << bytes.elements
                 << " bytes are frozen, and the specs that are compared freeze nothing";
    std::abort();
  }
  ::trainyard::Write write(Value) const override { return write_sums(); }
  ::trainyard::Write write_sums() const override {
    return first_ ? ::trainyard::Write::kOverwrite : ::trainyard::Write::kAdd;
  }
  StepState* step_state() const override { return side_.memory.step_state(); }
  Collective& collective(AxisSet axes) const override {
    CHECK(false) << "one rank has no ranks along " << axes;
    std::abort();
  }
  std::function<void()> CheckCommunication() const override {
    return [] {};
  }
  Call WaitForCommunication() const override {
    return [](Exec&) {};
  }
  Call FetchBlock(int, int) const override { return WaitForCommunication(); }
  Call ForgetBlocks() const override { return WaitForCommunication(); }

  const std::set<Value>& values() const { return values_; }
  const std::vector<std::pair<FlatBuffer, FlatRange>>& flats() const { return flats_; }

 private:
  const Side& side_;
  const bool first_;
  mutable std::set<Value> values_;
  mutable std::vector<std::pair<FlatBuffer, FlatRange>> flats_;
};

using Bytes = std::span<const std::byte>;

template <typename T>
std::span<const T> As(Bytes bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// In the whole, or in the worst of kSlices parts, where a fourth of the difference counts, relative
// to the part's norm or to that of an average part: a few rows that are wrong are little in the
// whole.
template <typename T>
double DistanceOf(Bytes got, Bytes want, Bytes base) {
  constexpr size_t kSlices = 256;
  const size_t n = As<T>(want).size();
  std::array<double, kSlices> apart = {}, norm = {};
#pragma omp parallel for
  for (size_t slice = 0; slice < kSlices; ++slice) {
    for (size_t i = slice * n / kSlices; i < (slice + 1) * n / kSlices; ++i) {
      const double w = double(As<T>(want)[i]), difference = double(As<T>(got)[i]) - w;
      const double size = base.empty() ? w : w - double(As<T>(base)[i]);
      apart[slice] += difference * difference;
      norm[slice] += size * size;
    }
  }
  const double whole = std::accumulate(norm.begin(), norm.end(), 0.0);
  double worst = std::sqrt(std::accumulate(apart.begin(), apart.end(), 0.0) / whole);
  for (size_t slice = 0; slice < kSlices; ++slice) {
    if (apart[slice] == 0) continue;
    worst = std::max(worst, std::sqrt(apart[slice] / std::max(norm[slice], whole / kSlices)) / 4);
  }
  return std::isfinite(worst) ? worst : std::numeric_limits<double>::infinity();
}

// Relative in the Euclidean norm; infinite where it is not a number; of integers, the share that
// differs. `base`: what was there before, where the change is what counts; else empty.
double Distance(DType dtype, Bytes got, Bytes want, Bytes base) {
  if (std::memcmp(got.data(), want.data(), got.size()) == 0) return 0;
  switch (dtype) {
    case DType::kF64:
      return DistanceOf<double>(got, want, base);
    case DType::kF32:
      return DistanceOf<float>(got, want, base);
    case DType::kBF16:
      return DistanceOf<bf16>(got, want, base);
    case DType::kI32:
    case DType::kI64:
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kI16:
    case DType::kU8:
      break;
  }
  const size_t size = SizeOf(dtype), n = got.size() / size;
  size_t different = 0;
  for (size_t i = 0; i < n; ++i) {
    different += std::memcmp(&got[i * size], &want[i * size], size) != 0;
  }
  return double(different) / double(n);
}

// What rounding explains. Of bf16, results are rounded once and some intermediate ones before. f32
// is summed in another order, from bf16 operands that may have been rounded the other way. Integers
// are choices, which scores that are nearly equal may turn.
double Explained(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 1e-9;
    case DType::kBF16:
      return 1e-2;
    default:
      return 1e-3;
  }
}

// The ops of a state space sum products of bf16 states on a GPU, and of f32 states on a CPU
// (kernels/state_space/state_scan.h).
double Explained(DType dtype, const Program& program, const Instance& instance) {
  const bool rounded = dtype == DType::kF32 && program.precision.activation == DType::kBF16 &&
                       absl::StartsWith(instance.op->name(), "state_");
  return Explained(rounded ? DType::kBF16 : dtype);
}

std::string ShapesOf(const Program& program, const Instance& instance,
                     const std::vector<Operand>& operands) {
  std::ostringstream text;
  if (instance.inputs.empty() && instance.outputs.empty()) {
    for (const Operand& operand : operands) text << operand.reference.shape << ' ';
    return text.str();
  }
  for (const Value value : instance.inputs) text << program.info(value).shape << ' ';
  text << "to";
  for (const Value value : instance.outputs) text << ' ' << program.info(value).shape;
  return text.str();
}

std::string Describe(const std::string& name, const Tensor& tensor) {
  std::ostringstream text;
  text << name << ' ' << tensor.dtype << tensor.shape;
  return text.str();
}

class SideBySide {
 public:
  SideBySide(const RankPlan& plan, Side reference, Side tested, const SideBySideOptions& options)
      : program_(plan.program),
        reference_(std::move(reference)),
        tested_(std::move(tested)),
        options_(options),
        first_writer_(program_.values.size(), nullptr),
        outside_(program_.values.size(), false) {
    for (const Instance& instance : program_.instances) {
      for (const Value value : instance.outputs) {
        if (first_writer_[size_t(value.id)] == nullptr) first_writer_[size_t(value.id)] = &instance;
      }
      for (const Value value : instance.inputs) outside_[size_t(value.id)] = true;
    }
  }

  void WriteBoth(const Tensor& reference, const Tensor& tested, const void* data) {
    const Bytes bytes(static_cast<const std::byte*>(data), reference.bytes());
    reference_.Write(reference, bytes);
    tested_.Write(tested, bytes);
  }
  // Reals are rounded to the input's dtype.
  void WriteInput(const std::string& name, const InputData& data) {
    const Value value = program_.inputs.find(name)->second;
    const Tensor reference = reference_.memory.tensor(value, 0);
    const Tensor tested = tested_.memory.tensor(value, 0);
    if (const auto* const integers = std::get_if<std::vector<int32_t>>(&data)) {
      return WriteBoth(reference, tested, integers->data());
    }
    const auto& reals = std::get<std::vector<float>>(data);
    DispatchFloat(reference.dtype, [&](auto scalar) {
      const std::vector<decltype(scalar)> rounded(reals.begin(), reals.end());
      WriteBoth(reference, tested, rounded.data());
    });
  }
  void WriteState(const StepState& state) {
    const auto bytes = [](StepState* at) {
      return Tensor{{at, DType::kI64, {int64_t(sizeof(StepState) / sizeof(int64_t))}}};
    };
    WriteBoth(bytes(reference_.memory.step_state()), bytes(tested_.memory.step_state()), &state);
  }

  ComparedOp Run(const Instance& instance);

 private:
  std::vector<Operand> OperandsOf(const Instance& instance, const NotingBinder& bound) const;
  double TimeOf(const Call& call);
  static StepState StateOf(const Side& side);
  void CompareStates(ComparedOp& op) const;

  const Program& program_;
  Side reference_, tested_;
  const SideBySideOptions options_;
  std::vector<const Instance*> first_writer_;  // By value id.
  std::vector<bool> outside_;                  // By value id: some instance reads it.
  Room room_, tested_room_;
  std::set<std::pair<std::string, std::string>> timed_;  // By name and shapes.
};

std::vector<Operand> SideBySide::OperandsOf(const Instance& instance,
                                            const NotingBinder& bound) const {
  std::set<Value> written(instance.outputs.begin(), instance.outputs.end());
  for (size_t i = 0; i < instance.inputs.size(); ++i) {
    if (instance.op->Overwrites(int(i))) written.insert(instance.inputs[i]);
  }
  std::vector<Operand> operands;
  for (const Value value : bound.values()) {
    const ValueInfo& info = program_.info(value);
    const bool parameter = info.storage >= 0;
    operands.push_back({.name = info.name,
                        .reference = reference_.memory.tensor(value, 0),
                        .tested = tested_.memory.tensor(value, 0),
                        .compared = parameter || outside_[size_t(value.id)],
                        .written = written.contains(value)});
  }
  for (const auto& [buffer, range] : bound.flats()) {
    const bool updated = buffer != FlatBuffer::kCompute && buffer != FlatBuffer::kGradient;
    operands.push_back({.name = absl::StrCat("flat buffer ", int(buffer)),
                        .reference = reference_.memory.flat(buffer, range),
                        .tested = tested_.memory.flat(buffer, range),
                        .by_change = updated});
  }
  return operands;
}

double SideBySide::TimeOf(const Call& call) {
  const auto begin = tested_.backend.NewEvent(), end = tested_.backend.NewEvent();
  const auto time = [&](int calls) {
    begin->Record(tested_.exec);
    for (int i = 0; i < calls; ++i) call(tested_.exec);
    end->Record(tested_.exec);
    return end->SecondsSince(*begin) / calls;
  };
  const double once = time(1);
  return time(int(std::clamp(options_.timing / std::max(once, 1e-6), 1.0, 100.0)));
}

StepState SideBySide::StateOf(const Side& side) {
  StepState state;
  side.backend.CopyToHost(side.exec, &state, side.memory.step_state(), sizeof(state));
  return state;
}

void SideBySide::CompareStates(ComparedOp& op) const {
  const StepState want = StateOf(reference_), got = StateOf(tested_);
  const auto compare = [&](const char* name, double a, double b) {
    if (a == b) return;
    const double relative = std::abs(a - b) / std::abs(b) / Explained(DType::kF32);
    const double apart =
        std::isfinite(relative) ? relative : std::numeric_limits<double>::infinity();
    if (apart <= op.apart) return;
    op.apart = apart;
    op.where = absl::StrCat(name, " ", a, ", wanted ", b);
  };
  compare("loss", got.loss, want.loss);
  compare("auxiliary loss", got.auxiliary_loss, want.auxiliary_loss);
  compare("squared gradient norm", got.grad_norm_squared, want.grad_norm_squared);
  compare("gradient norm", got.grad_norm, want.grad_norm);
  compare("clip factor", got.clip_factor, want.clip_factor);
  compare("finite", double(got.finite), double(want.finite));
  compare("sum of words read", got.read.master, want.read.master);
}

ComparedOp SideBySide::Run(const Instance& instance) {
  ComparedOp op{.instance = &instance};
  const bool first =
      instance.outputs.empty() ||
      std::any_of(instance.outputs.begin(), instance.outputs.end(), [&](Value value) {
        return program_.info(value).kind == ValueKind::kParameterGradient &&
               first_writer_[size_t(value.id)] == &instance;
      });
  const NotingBinder on_reference(reference_, first);
  const NotingBinder on_tested(tested_, first);
  const Call reference = instance.op->Bind(on_reference, instance);
  const Call tested = instance.op->Bind(on_tested, instance);
  const std::vector<Operand> operands = OperandsOf(instance, on_tested);

  std::vector<std::vector<std::byte>> before;
  for (const Operand& operand : operands) {
    const Bytes bytes = operand.by_change ? reference_.Read(operand.reference, room_) : Bytes();
    before.emplace_back(bytes.begin(), bytes.end());
  }
  reference(reference_.exec);
  reference_.backend.Synchronize(reference_.exec);
  tested(tested_.exec);
  tested_.backend.Synchronize(tested_.exec);

  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& operand = operands[i];
    if (!operand.compared) continue;
    const DType dtype = operand.reference.dtype;
    const double apart = Distance(dtype, tested_.Read(operand.tested, tested_room_),
                                  reference_.Read(operand.reference, room_), before[i]);
    const double relative = apart / Explained(dtype, program_, instance);
    if (relative <= op.apart) continue;
    op.apart = relative;
    op.where = absl::StrCat(Describe(operand.name, operand.reference), " by ", apart);
  }
  CompareStates(op);
  const StepState state = StateOf(reference_);
  op.shapes = ShapesOf(program_, instance, operands);
  if (timed_.emplace(instance.op->name(), op.shapes).second) {
    op.seconds = options_.timing > 0 ? TimeOf(tested) : 0;
  }
  // What is read only is as it was, or the op has failed.
  for (const Operand& operand : operands) {
    if (!operand.written && !op.failed()) continue;
    tested_.Write(operand.tested, reference_.Read(operand.reference, room_));
  }
  WriteState(state);
  return op;
}

// The lists that run one after the other: first what initialises, then a step.
const std::vector<std::vector<List>> kOrder = {{List::kInit},
                                               {List::kPrepare},
                                               {List::kForward},
                                               {List::kBackwardInput, List::kBackwardWeight},
                                               {List::kOptimizer}};

}  // namespace

absl::StatusOr<std::vector<ComparedOp>> RunSideBySide(const RankPlan& plan, const StepState& state,
                                                      const MicroBatchData& batch,
                                                      const SideBySideOptions& options) {
  ASSIGN_OR_RETURN(Side on_reference, SideOn(plan, options.reference, options.threads));
  ASSIGN_OR_RETURN(Side on_tested, SideOn(plan, options.tested, options.threads));
  SideBySide both(plan, std::move(on_reference), std::move(on_tested), options);
  both.WriteState(state);
  for (const auto& [name, data] : batch) both.WriteInput(name, data);
  std::vector<ComparedOp> ops;
  for (const std::vector<List>& lists : kOrder) {
    if (lists.front() == List::kForward) {
      options.tested.StartProfiler().IgnoreError();  // Nobody watches.
    }
    for (const Instance& instance : plan.program.instances) {
      const bool listed = std::find(lists.begin(), lists.end(), instance.list) != lists.end();
      if (!listed || instance.when == When::kValidation) continue;
      options.begins(instance);
      ops.push_back(both.Run(instance));
      options.ended(ops.back());
    }
  }
  options.tested.StopProfiler();
  return ops;
}

}  // namespace trainyard::bench
