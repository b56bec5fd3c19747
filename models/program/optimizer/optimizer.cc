#include "models/program/optimizer/optimizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/rng.h"

namespace trainyard {
namespace {

class RangeUpdateOp final : public Op {
 public:
  explicit RangeUpdateOp(const UpdateRange& range) : range_(range) {}
  absl::string_view name() const override { return optimizer().name; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    std::string text = absl::StrCat("flat=", range_.flat.offset, "+", range_.flat.elements,
                                    " shard=", range_.shard.offset);
    for (const OptimizerOption& option : optimizer().options) {
      const absl::string_view name = option.name;
      // Of a step, not of the program; and what the precision says.
      if (name == "learning_rate" || name == "state") continue;
      absl::StrAppend(&text, " ", name, "=", range_.options[name]);
    }
    if (const auto& place = range_.place) {
      absl::StrAppend(&text, " columns=", place->columns, " of ", place->global_columns, " at ",
                      place->first_row, ",", place->first_column);
    }
    return text;
  }
  // Masters and states are read and written, the gradient read, the copy written, which is a half
  // of a split master.
  Cost CostOf(const Program& program, const Instance&) const override {
    const Precision& p = program.precision;
    const bool copies = range_.writes_compute && !p.split_masters;
    std::vector<FlatBuffer> buffers = optimizer().states;
    buffers.push_back(FlatBuffer::kMaster);
    Cost cost = StateCost(program, range_.shard, buffers);
    cost.bytes +=
        double(range_.flat.elements) * double(SizeOf(p.gradient) + (copies ? SizeOf(p.weight) : 0));
    return cost;
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    return optimizer().bind(binder, range_);
  }

 private:
  const Optimizer& optimizer() const { return range_.options.optimizer(); }

  UpdateRange range_;
};

}  // namespace

std::span<const Optimizer* const> Optimizers() {
#define TRAINYARD_OPTIMIZER(Name) &Name##Optimizer(),
  static const Optimizer* const optimizers[] = {TRAINYARD_FOR_EACH_OPTIMIZER(TRAINYARD_OPTIMIZER)};
#undef TRAINYARD_OPTIMIZER
  return optimizers;
}

const Optimizer* FindOptimizer(absl::string_view name) {
  for (const Optimizer* const optimizer : Optimizers()) {
    if (optimizer->name == name) return optimizer;
  }
  return nullptr;
}

OptimizerOptions::OptimizerOptions(
    const Optimizer& optimizer, std::initializer_list<std::pair<absl::string_view, double>> values)
    : optimizer_(&optimizer) {
  for (const OptimizerOption& option : optimizer.options) values_.push_back(option.standard);
  for (const auto& [name, value] : values) (*this)[name] = value;
}

OptimizerOptions::OptimizerOptions(
    std::initializer_list<std::pair<absl::string_view, double>> values)
    : OptimizerOptions(*Optimizers().front(), values) {}

size_t OptimizerOptions::IndexOf(absl::string_view name) const {
  const std::vector<OptimizerOption>& options = optimizer_->options;
  const auto found = std::find_if(options.begin(), options.end(),
                                  [&](const OptimizerOption& o) { return o.name == name; });
  CHECK(found != options.end()) << optimizer_->name << " has no option " << name;
  return size_t(found - options.begin());
}

OptimizerState OptimizerOptions::state() const {
  for (size_t i = 0; i < values_.size(); ++i) {
    const absl::string_view name = optimizer_->options[i].name;
    if (name == "state") return OptimizerState(int(values_[i]));
  }
  return OptimizerState::kF32;
}

PlaceInParameter::PlaceInParameter(const ParameterBox& box)
    : stream(HashName(absl::StrCat(box.name, ".moments").c_str())),
      columns(box.shape.back()),
      global_columns(box.global_shape.back()),
      first_column(box.offset.back()) {
  // The box's rows must follow one another in the parameter: of its leading dims, all after the
  // first that has several elements are whole.
  bool several = false;
  for (int dim = 0; dim + 1 < box.shape.rank(); ++dim) {
    CHECK(!several || box.shape[dim] == box.global_shape[dim])
        << box.name << ": " << box.shape << " of " << box.global_shape;
    several |= box.shape[dim] > 1;
    first_row = first_row * box.global_shape[dim] + box.offset[dim];
  }
}

void Append(std::vector<UpdateRange>& ranges, const UpdateRange& next) {
  if (!ranges.empty() && !next.place) {
    UpdateRange& last = ranges.back();
    if (last.options == next.options && last.writes_compute == next.writes_compute &&
        last.flat.end() == next.flat.offset && last.shard.end() == next.shard.offset) {
      last.flat.elements += next.flat.elements;
      last.shard.elements += next.shard.elements;
      return;
    }
  }
  ranges.push_back(next);
}

Cost StateCost(const Program& program, const FlatRange& shard,
               std::span<const FlatBuffer> buffers) {
  Cost cost;
  const auto add = [&](FlatBuffer buffer, size_t bytes) {
    const double of_range = double(shard.elements) * double(bytes);
    if (program.InHostMemory(buffer, shard)) {
      cost.host_bytes += of_range;
    } else {
      cost.bytes += 2 * of_range;
    }
  };
  for (const FlatBuffer buffer : buffers) {
    if (buffer == FlatBuffer::kMaster && program.place(FlatBuffer::kRemainder).Find(shard)) {
      add(FlatBuffer::kRemainder, SizeOf(program.dtype(FlatBuffer::kRemainder)));
      add(FlatBuffer::kCompute, SizeOf(program.precision.weight));
    } else {
      add(buffer, SizeOf(program.dtype(buffer)));
    }
  }
  return cost;
}

std::shared_ptr<const Op> UpdateOp(const UpdateRange& range) {
  return std::make_shared<RangeUpdateOp>(range);
}

}  // namespace trainyard
