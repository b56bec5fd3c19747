#include "models/program/optimizer/optimizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"

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
      if (name == "learning_rate") continue;  // Of a step, not of the program.
      absl::StrAppend(&text, " ", name, "=", range_.options[name]);
    }
    return text;
  }
  // Masters and states are read and written, the gradient read, the copy written.
  Cost CostOf(const Program& program, const Instance&) const override {
    const Precision& p = program.precision;
    const size_t bytes = 2 * SizeOf(p.master) + 2 * optimizer().states.size() * SizeOf(p.moment) +
                         SizeOf(p.gradient) + (range_.writes_compute ? SizeOf(p.weight) : 0);
    return {.bytes = double(range_.flat.elements) * double(bytes)};
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

void Append(std::vector<UpdateRange>& ranges, const UpdateRange& next) {
  if (!ranges.empty()) {
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

std::shared_ptr<const Op> UpdateOp(const UpdateRange& range) {
  return std::make_shared<RangeUpdateOp>(range);
}

}  // namespace trainyard
