#include "train/hf/copy_parameters.h"

#include "common/status_macros.h"

namespace trainyard {

absl::Status AppendWhole(const HfParameter& parameter, DType dtype, const std::vector<char>& values,
                         RankWriter& writer) {
  return writer.Append({.name = parameter.name,
                        .dtype = dtype,
                        .global_shape = parameter.shape,
                        .box = WholeBox(parameter.shape),
                        .data = values.data()});
}

absl::Status CopyParameters(const HfWeights& weights, const std::set<std::string>& without,
                            RankWriter* writer) {
  std::vector<char> values;
  for (const HfWeight& weight : weights.all()) {
    for (const HfParameter& parameter : weight.layout.parameters) {
      if (without.contains(parameter.name)) continue;
      values.resize(size_t(parameter.shape.elements()) * SizeOf(weight.dtype));
      RETURN_IF_ERROR(HfWeights::Read(weight, parameter, values.data()));
      if (writer == nullptr) continue;
      RETURN_IF_ERROR(AppendWhole(parameter, weight.dtype, values, *writer));
    }
  }
  return absl::OkStatus();
}

}  // namespace trainyard
