// The optimizers. Each optimizer is a file in this folder and a line of the list below. The file
// declares the options that a job may set, the state that the optimizer keeps of each parameter,
// and the kernel of an update. All other code reads the declaration: specs and their checks, the
// memory plan, initialisation, ZeRO, checkpoints, and the check of the state in memory.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/interval.h"
#include "models/program/op.h"
#include "models/program/parameter.h"

namespace trainyard {

struct OptimizerOption {
  const char* name;  // As in a job spec: "beta1".
  double standard;   // The value if a job does not set the option. Not legal: a job must set it.
  Interval legal;
  // The names of the values 0, 1, ... of an option that is a choice.
  std::vector<const char*> choices = {};
};

// The choices of the option "state" of an optimizer that has it.
enum class OptimizerState : uint8_t {
  kF32,      // Masters and moments are as the precision has them.
  kCompact,  // Masters are split and moments are in bf16 (Precision::WithCompactState).
};

struct MatrixRule;
struct UpdateRange;

// Every optimizer has the options "learning_rate", the peak of the job's schedule, and
// "weight_decay", which gains and biases do not take.
struct Optimizer {
  const char* name;  // The section of a job spec that chooses it: "adamw".
  std::vector<OptimizerOption> options;
  // Buffers out of kStateBuffers. Each has an element for each parameter that a rank updates (of
  // matrices only if MatrixRule::states has it, too), is zero before the first step, and is saved
  // in checkpoints. In these buffers and in masters the kernel counts the words that it reads and
  // writes (StepState::read, StepState::written).
  std::vector<FlatBuffer> states;
  // Binds the kernel that updates a range. The kernel reads the learning rate, the step and the
  // clip factor from the StepState.
  Call (*bind)(const Binder& binder, const UpdateRange& range);
  // How matrices are updated (matrices.h). Null: as all other parameters.
  const MatrixRule* matrices = nullptr;
};

// Calls X(Name) for each optimizer, in the order in which messages list them. The first is that of
// a job that chooses none. The file of its name defines NameOptimizer().
// clang-format off
#define TRAINYARD_FOR_EACH_OPTIMIZER(X) \
  X(AdamW) \
  X(Lion) \
  X(Muon)
// clang-format on

#define TRAINYARD_DECLARE_OPTIMIZER(Name) const Optimizer& Name##Optimizer();
TRAINYARD_FOR_EACH_OPTIMIZER(TRAINYARD_DECLARE_OPTIMIZER)
#undef TRAINYARD_DECLARE_OPTIMIZER

std::span<const Optimizer* const> Optimizers();
const Optimizer* FindOptimizer(absl::string_view name);  // Null if there is none.

// An optimizer, and the value of each of its options.
class OptimizerOptions {
 public:
  // With the standard values.
  explicit OptimizerOptions(const Optimizer& optimizer) : OptimizerOptions(optimizer, {}) {}
  // With some other values. CHECKs that the optimizer has the options.
  OptimizerOptions(const Optimizer& optimizer,
                   std::initializer_list<std::pair<absl::string_view, double>> values);
  // The same for the first optimizer.
  OptimizerOptions(std::initializer_list<std::pair<absl::string_view, double>> values = {});

  const Optimizer& optimizer() const { return *optimizer_; }
  // The value of an option. CHECKs that the optimizer has the option.
  double operator[](absl::string_view name) const { return values_[IndexOf(name)]; }
  double& operator[](absl::string_view name) { return values_[IndexOf(name)]; }
  // kF32 for an optimizer that has no other state.
  OptimizerState state() const;
  bool operator==(const OptimizerOptions&) const = default;

 private:
  size_t IndexOf(absl::string_view name) const;

  const Optimizer* optimizer_;
  std::vector<double> values_;  // In the order of Optimizer::options.
};

// The place of a range in the whole of its parameter.
struct PlaceInParameter {
  uint64_t stream = 0;  // Of the random bits with which its moments are rounded.
  int64_t columns = 0;  // Of the range. Leading dims count as rows.
  int64_t global_columns = 0;
  int64_t first_row = 0;
  int64_t first_column = 0;

  explicit PlaceInParameter(const ParameterBox& box);
};

// A range of the trainable parameters that one call updates.
struct UpdateRange {
  FlatRange flat;            // Counts among all trainable parameters.
  FlatRange shard;           // The same elements in kMaster and the state buffers.
  bool writes_compute;       // Whether a compute copy exists.
  OptimizerOptions options;  // The job's, but without weight decay where it does not apply.
  std::optional<PlaceInParameter> place = {};  // If state is compact: the range is of one box.
};

// Appends a range, or joins it to the last one if the two are adjacent, alike and of no box.
void Append(std::vector<UpdateRange>& ranges, const UpdateRange& next);

// The traffic of a kernel that reads and writes these buffers of the optimizer's state, for the
// elements of a range that counts as in kMaster. With split masters, kMaster stands for both halves
// of a master.
Cost StateCost(const Program& program, const FlatRange& shard, std::span<const FlatBuffer> buffers);

// Returns the op that updates the range.
std::shared_ptr<const Op> UpdateOp(const UpdateRange& range);

}  // namespace trainyard
