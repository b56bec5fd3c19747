#include "models/program/recorder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace trainyard {

Recorder::Recorder(const Precision& precision, const Mesh& mesh, bool training, IsFrozen is_frozen)
    : is_frozen_(std::move(is_frozen)) {
  program_.precision = precision;
  program_.mesh = mesh;
  program_.training = training;
  program_.chunks.resize(1);
}

Value Recorder::NewValue(ValueInfo info) {
  program_.values.push_back(std::move(info));
  return {int32_t(program_.values.size()) - 1};
}

Value Recorder::Input(const std::string& name, const Shape& shape, DType dtype, AxisSet varying) {
  const Value value = NewValue({.shape = shape,
                                .dtype = dtype,
                                .kind = ValueKind::kInput,
                                .varying = varying & mesh().active(),
                                .block = block_,
                                .name = name});
  CHECK(!InputOfChunk(name).valid()) << "a second input " << name;
  program_.inputs.emplace(name, value);
  return value;
}

// Returns the input of the chunk that is being recorded, or an invalid value.
Value Recorder::InputOfChunk(const std::string& name) const {
  const auto [first, last] = program_.inputs.equal_range(name);
  for (auto it = first; it != last; ++it) {
    if (info(it->second).block >= program_.chunks.back().first_block) return it->second;
  }
  return {};
}

Value Recorder::Read(absl::string_view name) {
  const InputSpec* const spec = FindInput(declared_, name);
  CHECK(spec != nullptr) << "the model reads " << name << ", which it does not declare";
  return Read(*spec);
}

Value Recorder::Read(const InputSpec& input) {
  if (const Value found = InputOfChunk(input.name); found.valid()) return found;
  const bool by_token = input.unit == InputSpec::Unit::kToken;
  std::vector<int64_t> dims = {by_token ? program_.tokens() : program_.micro_batch};
  if (input.shape.rank() > 0) dims.push_back(input.shape.elements());  // A unit is a row.
  // Tokens are divided over the axes of the batch and, between pairs of linear layers, over the
  // tensor ranks. Samples are divided over the data axes only.
  constexpr AxisSet kSampleAxes = kBatchAxes - Axis::kContext;
  const DType dtypes[] = {DType::kI32, precision().activation, DType::kF64};
  return Input(input.name, Shape(dims), dtypes[size_t(input.kind)],
               by_token ? kBatchAxes | kTensorAxes : kSampleAxes);
}

void Recorder::KeepOutput(const std::string& name, Value value) {
  CHECK(program_.outputs.emplace(name, value).second) << "a second output " << name;
}

Value Recorder::Leaf(Value like, const std::string& name) {
  ValueInfo leaf = info(like);
  leaf.name = name;
  return NewValue(std::move(leaf));
}

Carried Recorder::Cut(const Carried& left) {
  const bool several = left.values().size() > 1;
  std::vector<Carried::Named> starts;
  Chunk next{.first_block = block_ + 1};
  for (const auto& [name, value] : left.values()) {
    for (const Crossing& other : program_.chunks.back().sent) {
      CHECK(other.name != name && other.value != value)
          << info(value) << " crosses a cut as " << name << " and as " << other.name;
    }
    const Value received = Leaf(value, several ? absl::StrCat("received ", name) : "received");
    program_.values[size_t(received.id)].block = block_ + 1;
    program_.chunks.back().sent.push_back({.name = name, .value = value});
    next.received.push_back({.name = name, .value = received});
    starts.push_back({name, received});
  }
  program_.chunks.back().last_block = block_;
  program_.chunks.push_back(std::move(next));
  return Carried(std::move(starts));
}

Value Recorder::Declare(const std::vector<ParameterSpec>& specs, std::optional<DType> narrow) {
  CHECK(!specs.empty()) << "a storage without parameters";
  const ParameterSpec& first = specs.front();
  const std::string& name = first.name;
  if (const auto found = storage_of_.find(name); found != storage_of_.end()) {
    const ParameterStorage& storage = program_.storages[found->second];
    CHECK(storage.parameters == specs) << name << " is declared twice, differently";
    return storage.weight;
  }
  Shape shape = LocalShape(first, mesh());
  const int joined = first.stacked ? 1 : 0;  // Parameters follow one another along this dim.
  CHECK(!narrow || !program_.training) << name << " would be trained in " << *narrow;
  const bool frozen = Frozen(first) || narrow;
  CHECK(first.unrounded || !first.state) << name << " would be updated by rounded steps";
  int64_t rows = 0;
  for (const ParameterSpec& spec : specs) {
    CHECK(narrow || Frozen(spec) == frozen)
        << spec.name << " and " << name << " share a storage, and one of them is frozen";
    const Shape local = LocalShape(spec, mesh());
    CHECK(local.rank() == shape.rank() && local.With(joined, 1) == shape.With(joined, 1) &&
          spec.decay == first.decay && spec.stacked == first.stacked &&
          spec.unrounded == first.unrounded && spec.packed == first.packed)
        << spec.name << ' ' << local << " cannot share a storage with " << name << ' ' << shape;
    const bool is_new = storage_of_.emplace(spec.name, int(program_.storages.size())).second;
    CHECK(is_new) << spec.name << " is declared twice";
    rows += local[joined];
  }
  shape = shape.With(joined, rows);

  ValueInfo info{.shape = shape,
                 .dtype = first.packed      ? first.packed->dtype
                          : first.unrounded ? precision().master
                          : narrow          ? *narrow
                          : frozen          ? precision().frozen
                                            : precision().weight,
                 .kind = ValueKind::kParameter,
                 .block = block_,
                 .storage = int(program_.storages.size()),
                 .differentiable = program_.training && !frozen && !first.is_history(),
                 .name = name};
  ParameterStorage storage{.shape = shape,
                           .flat = {.elements = shape.elements()},
                           .frozen = {},
                           .decay = first.decay,
                           .block = block_,
                           .parameters = specs};
  if (first.is_history()) {  // The same on all ranks that may see a part of the tensor.
    storage.used = true;
    storage.varying = mesh().active() - AxisSet(Axis::kPipeline);
  }
  storage.weight = NewValue(info);
  if (frozen) {
    storage.frozen = info.dtype;
    storage.flat.elements = int64_t(info.bytes());
  } else if (program_.training) {
    info.dtype = precision().gradient;
    info.kind = ValueKind::kParameterGradient;
    info.differentiable = false;
    info.name = absl::StrCat("grad of ", name);
    storage.gradient = NewValue(info);
  }
  program_.storages.push_back(std::move(storage));
  return program_.storages.back().weight;
}

Value Recorder::Gradient(Value parameter) const {
  const Value gradient = program_.storage(parameter).gradient;
  CHECK(gradient.valid()) << info(parameter)
                          << " has no gradient: frozen, or recorded for inference";
  return gradient;
}

Recorder::Output Recorder::GradientOutput(Value parameter) const {
  if (IsTrainable(parameter)) return Output::Into(Gradient(parameter));
  return Output::Memory("unused gradient", info(parameter).shape, precision().gradient);
}

// The axes along which the inputs' gradients vary, which must be the same for all inputs.
// Parameters and constants do not count: they are the same on all ranks, or divided as declared.
// Nullopt: no input counts.
std::optional<AxisSet> Recorder::CommonVarying(const Op& op,
                                               const std::vector<Value>& inputs) const {
  Value first;
  for (Value input : inputs) {
    const ValueInfo& value = info(input);
    if (value.kind != ValueKind::kActivation && value.kind != ValueKind::kInput) continue;
    if (!first.valid()) first = input;
    CHECK(value.varying == info(first).varying)
        << op.name() << ": the gradients of its inputs vary along different axes: " << info(first)
        << " and " << value;
  }
  return first.valid() ? std::optional(info(first).varying) : std::nullopt;
}

void Recorder::MeetParameters(const Op& op, const std::vector<Value>& inputs, AxisSet varying) {
  for (Value input : inputs) {
    if (info(input).kind != ValueKind::kParameter) continue;
    ParameterStorage& storage = program_.storages[info(input).storage];
    if (storage.parameters.front().is_history()) continue;
    CHECK(!storage.used || storage.varying == varying)
        << op.name() << ": the gradient of " << info(input) << " varies along " << varying
        << " here and along " << storage.varying << " elsewhere";
    storage.used = true;
    storage.varying = varying;
  }
}

std::vector<Value> Recorder::Emit(std::shared_ptr<const Op> op, std::vector<Value> inputs,
                                  const std::vector<Output>& outputs) {
  std::optional<AxisSet> common = CommonVarying(*op, inputs);
  if (!common && !outputs.empty()) common = outputs.front().varying;
  const AxisSet varying = common.value_or(AxisSet{});
  MeetParameters(*op, inputs, varying);
  bool differentiable = false;
  for (Value input : inputs) differentiable |= info(input).differentiable;

  std::vector<Value> values;
  for (const Output& output : outputs) {
    if (output.existing.valid()) {
      values.push_back(output.existing);
      continue;
    }
    values.push_back(NewValue({.shape = output.shape,
                               .dtype = output.dtype,
                               .varying = output.varying.value_or(varying),
                               .block = block_,
                               .differentiable = differentiable && output.differentiable,
                               .name = absl::StrCat(label_, ".", output.name)}));
  }
  program_.instances.push_back({.op = std::move(op),
                                .inputs = std::move(inputs),
                                .outputs = values,
                                .list = list_,
                                .block = block_,
                                .when = when_,
                                .label = label_});
  CheckOperands(program_.instances.back());
  return values;
}

void Recorder::EmitEffect(std::shared_ptr<const Op> op, List list) {
  program_.instances.push_back({.op = std::move(op), .list = list, .label = Name(list)});
}

std::vector<Value> Recorder::EmitConstants(std::shared_ptr<const Op> op,
                                           const std::vector<Output>& outputs) {
  std::ostringstream key;
  key << op->name() << ' ' << op->attributes();
  for (const Output& output : outputs) key << ' ' << output.dtype << output.shape;
  std::vector<Value>& values = constants_[key.str()];
  if (!values.empty()) return values;
  const List list = std::exchange(list_, List::kPrepare);
  values = Emit(std::move(op), {}, outputs);
  list_ = list;
  for (Value value : values) program_.values[value.id].kind = ValueKind::kConstant;
  return values;
}

}  // namespace trainyard
