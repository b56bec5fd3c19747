#include "models/program/program.h"

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

#include "common/check.h"
#include "models/program/op.h"

namespace trainyard {

const char* Name(List list) {
  switch (list) {
    case List::kInit:
      return "init";
    case List::kJoin:
      return "join";
    case List::kPrepare:
      return "prepare";
    case List::kForward:
      return "forward";
    case List::kBackwardInput:
      return "backward_input";
    case List::kBackwardWeight:
      return "backward_weight";
    case List::kOptimizer:
      return "optimizer";
    case List::kGather:
      return "gather";
  }
  return "?";
}

std::vector<Value> Op::Backward(Recorder&, const Instance&, std::span<const Value>) const {
  CHECK(false) << name() << " has no backward";
  std::abort();
}

const ValueInfo& Program::info(Value value) const {
  CHECK(value.valid() && size_t(value.id) < values.size())
      << "value " << value.id << " of " << values.size();
  return values[value.id];
}

const ParameterStorage& Program::storage(Value parameter_or_gradient) const {
  const ValueInfo& value = info(parameter_or_gradient);
  CHECK(value.storage >= 0) << value << " is no parameter";
  return storages[value.storage];
}

int Program::chunk_of(int block) const {
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (block >= chunks[i].first_block && block <= chunks[i].last_block) return int(i);
  }
  CHECK(false) << "block " << block << " is not on this stage";
  std::abort();
}

namespace {

// The boxes in the order of their places.
std::vector<ParameterBox> BoxesWhere(const Program& program, bool frozen) {
  std::vector<ParameterBox> boxes;
  for (const ParameterStorage& storage : program.storages) {
    if (storage.frozen.has_value() != frozen) continue;
    for (ParameterBox& box : BoxesOf(storage, program.mesh)) boxes.push_back(std::move(box));
  }
  std::sort(boxes.begin(), boxes.end(), [](const ParameterBox& a, const ParameterBox& b) {
    return a.flat.offset < b.flat.offset;
  });
  return boxes;
}

// Appends the parts of the boxes that lie in `own`, which ranks that differ along `zero_axes`
// divide among them.
void AppendShard(std::span<const ParameterBox> all, const FlatRange& own, AxisSet zero_axes,
                 std::vector<ParameterBox>& out) {
  for (const ParameterBox& whole : Within(all, own)) {
    for (ParameterBox& box : Clip(whole, own)) {
      box.shard_axes = box.shard_axes | zero_axes;
      box.copy_axes = box.copy_axes - zero_axes;
      out.push_back(std::move(box));
    }
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const DividedBlock& divided) {
  const bool tokens = divided.dim == DividedBlock::Dim::kTokens;
  const bool outputs = divided.dim == DividedBlock::Dim::kOutputs;
  return out << divided.weight << ": wanted blocks of " << divided.block << ' '
             << (tokens    ? "tokens"
                 : outputs ? "outputs"
                           : "inputs")
             << " whole on a rank, found " << divided.part << " on each of those along "
             << divided.axes;
}

std::vector<ParameterBox> Program::Parameters() const { return BoxesWhere(*this, false); }

std::vector<ParameterBox> Program::FrozenParameters() const {
  const std::vector<ParameterBox> all = BoxesWhere(*this, true);
  std::vector<ParameterBox> kept;
  for (const FrozenBucket& bucket : frozen_buckets) {
    AppendShard(all, bucket.own, bucket.zero_axes, kept);
  }
  return kept;
}

std::vector<ParameterBox> Program::OwnedParameters() const {
  const std::vector<ParameterBox> all = Parameters();
  std::vector<ParameterBox> owned;
  for (const Bucket& bucket : buckets) {
    const size_t first = owned.size();
    AppendShard(all, bucket.own, bucket.zero_axes, owned);
    for (size_t i = first; i < owned.size(); ++i) {
      owned[i].flat.offset += bucket.shard.offset - bucket.own.offset;
    }
  }
  return owned;
}

int Program::window_of(int block) const {
  const size_t mine = size_t(chunk_of(block));
  int before = block - chunks[mine].first_block;  // Number of this rank's blocks before it.
  for (size_t i = 0; i < mine; ++i) before += chunks[i].last_block - chunks[i].first_block + 1;
  return before % 2;
}

DType Program::dtype(FlatBuffer buffer) const {
  switch (buffer) {
    case FlatBuffer::kMaster:
      return precision.master;
    case FlatBuffer::kFirstMoment:
    case FlatBuffer::kSecondMoment:
      return precision.moment;
    case FlatBuffer::kRemainder:
      return DType::kI16;
    case FlatBuffer::kGradient:
    case FlatBuffer::kGradientWindow:
      return precision.gradient;
    case FlatBuffer::kCompute:
    case FlatBuffer::kComputeWindow:
      return precision.weight;
    case FlatBuffer::kReduced:
      return precision.reduced;
    case FlatBuffer::kFrozen:
    case FlatBuffer::kFrozenWindow:
      break;
  }
  CHECK(false) << "flat buffer " << int(buffer) << " has no dtype of its own";
  std::abort();
}

size_t Program::BytesOf(FlatBuffer buffer) const {
  const bool frozen = buffer == FlatBuffer::kFrozen || buffer == FlatBuffer::kFrozenWindow;
  const int64_t elements = place(buffer).elements() - host_elements[size_t(buffer)];
  return size_t(elements) * (frozen ? 1 : SizeOf(dtype(buffer)));
}

size_t Program::HostBytesOf(FlatBuffer buffer) const {
  const int64_t elements = host_elements[size_t(buffer)];
  return elements == 0 ? 0 : size_t(elements) * SizeOf(dtype(buffer));
}

bool Program::InHostMemory(FlatBuffer buffer, const FlatRange& range) const {
  const std::optional<int64_t> at = place(buffer).Find(range);
  return at && *at < host_elements[size_t(buffer)];
}

bool Program::has_windows() const {
  return place(FlatBuffer::kComputeWindow).elements() > 0 ||
         place(FlatBuffer::kFrozenWindow).elements() > 0;
}

FlatBuffer Program::weight_buffer(const FlatRange& flat) const {
  for (FlatBuffer buffer : {FlatBuffer::kComputeWindow, FlatBuffer::kCompute}) {
    if (place(buffer).Find(flat)) return buffer;
  }
  return FlatBuffer::kMaster;
}

FlatBuffer Program::frozen_buffer(const FlatRange& bytes) const {
  const bool windowed = place(FlatBuffer::kFrozenWindow).Find(bytes).has_value();
  return windowed ? FlatBuffer::kFrozenWindow : FlatBuffer::kFrozen;
}

Program::MasterPlace Program::PlaceOfMaster(const FlatRange& shard) const {
  if (place(FlatBuffer::kMaster).Find(shard)) return {FlatBuffer::kMaster, shard};
  for (const Bucket& bucket : buckets) {
    if (bucket.shard.Intersect(shard).elements != shard.elements) continue;
    return {FlatBuffer::kGradient,
            {.offset = shard.offset - bucket.shard.offset + bucket.own.offset,
             .elements = shard.elements}};
  }
  CHECK(false) << "no bucket has all of " << shard.offset << "+" << shard.elements;
  std::abort();
}

FlatRange Program::InMaster(const FlatRange& flat) const {
  for (const Bucket& bucket : buckets) {
    if (bucket.own.Intersect(flat).elements != flat.elements) continue;
    return {.offset = flat.offset + bucket.shard.offset - bucket.own.offset,
            .elements = flat.elements};
  }
  CHECK(false) << "kMaster does not have all of " << flat.offset << "+" << flat.elements;
  std::abort();
}

FlatBuffer Program::gradient_buffer(const FlatRange& flat) const {
  const bool windowed = place(FlatBuffer::kGradientWindow).Find(flat).has_value();
  return windowed ? FlatBuffer::kGradientWindow : FlatBuffer::kGradient;
}

SequencePart Program::sequence_part() const {
  return {.rows = sequence_rows(),
          .ranks = mesh.size(Axis::kContext),
          .rank = mesh.coordinate(Axis::kContext)};
}

int64_t TimesInStep(const Instance& instance, int64_t micro_batches) {
  if (instance.when == When::kValidation) return 0;
  const bool once = instance.list == List::kOptimizer || instance.when != When::kAlways;
  return once ? 1 : micro_batches;
}

std::set<Group> Program::Groups() const {
  std::set<Group> groups;
  for (const Instance& instance : instances) {
    if (!instance.op->group().empty()) groups.insert({instance.stream, instance.op->group()});
  }
  return groups;
}

Cost Program::CostOf(List list) const {
  Cost total;
  for (const Instance& instance : instances) {
    if (instance.list != list || instance.when == When::kValidation) continue;
    const Cost cost = instance.op->CostOf(*this, instance);
    total.flops += cost.flops;
    total.bytes += cost.bytes;
    total.host_bytes += cost.host_bytes;
  }
  return total;
}

Cost Op::CostOf(const Program& program, const Instance& instance) const {
  Cost cost;
  for (Value value : instance.inputs) cost.bytes += double(program.info(value).bytes());
  for (Value value : instance.outputs) cost.bytes += double(program.info(value).bytes());
  return cost;
}

void CheckOperands(const Instance& instance) {
  const std::optional<Op::OperandCounts> counts = instance.op->operand_counts();
  if (!counts) return;
  const size_t inputs = instance.inputs.size(), outputs = instance.outputs.size();
  const auto expect = [&](const char* what, size_t found, size_t most, size_t optional) {
    CHECK(found + optional >= most && found <= most)
        << instance.op->name() << ": wanted " << most << ' ' << what << ", of which " << optional
        << " may be missing, found " << found;
  };
  expect("inputs", inputs, counts->inputs, counts->optional_inputs);
  expect("outputs", outputs, counts->outputs, counts->optional_outputs);
}

std::string Program::Describe(const Instance& instance) const {
  std::ostringstream out;
  // `marked`: whether an operand is overwritten.
  const auto values_of = [&](const std::vector<Value>& list, const auto& marked) {
    for (int i = 0; i < int(list.size()); ++i) {
      out << (i == 0 ? "" : ", ") << (marked(i) ? "overwritten %" : "%") << list[size_t(i)].id
          << ' ' << info(list[size_t(i)]);
    }
  };
  out << Name(instance.list) << " block " << instance.block << ' ' << instance.label << ": ";
  values_of(instance.outputs, [](int) { return false; });
  out << (instance.outputs.empty() ? "" : " = ") << instance.op->name() << '(';
  values_of(instance.inputs, [&](int i) { return instance.op->Overwrites(i); });
  out << ')';
  if (const std::string attributes = instance.op->attributes(); !attributes.empty()) {
    out << " {" << attributes << '}';
  }
  if (instance.stream == Stream::kCommunication) out << " on the communication stream";
  if (instance.when == When::kFirstMicroBatch) out << ", first micro-batch";
  if (instance.when == When::kLastMicroBatch) out << ", last micro-batch";
  if (instance.when == When::kValidation) out << ", validation";
  for (int event : instance.awaits) out << ", awaits " << event;
  if (instance.signals != Instance::kNoEvent) out << ", signals " << instance.signals;
  return out.str();
}

std::string Program::Dump() const {
  std::string dump;
  for (const Instance& instance : instances) dump += Describe(instance) + '\n';
  return dump;
}

}  // namespace trainyard
