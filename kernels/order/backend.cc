#include "kernels/order/backend.h"

#include <cstring>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "kernels/order/fields.h"

namespace trainyard {
namespace {

struct Noted {
  const char* op;
  const void* data;
  size_t bytes;
  bool writes;
};

// The context of an Exec.
struct OrderStream {
  Accesses& accesses;
  Accesses::Line line;
  OrderBackend::CountedSlots& counted;
  std::vector<Noted>* captured = nullptr;  // Set while a graph is captured.

  void Note(const Noted& noted) {
    if (captured != nullptr) {
      captured->push_back(noted);
    } else if (noted.writes) {
      accesses.Write(line, noted.op, noted.data, noted.bytes);
    } else {
      accesses.Read(line, noted.op, noted.data, noted.bytes);
    }
  }
};

OrderStream& StreamOf(const Exec& exec) {
  CHECK(exec.context != nullptr) << "an Exec of another backend";
  return *static_cast<OrderStream*>(exec.context.get());
}

// Notes what a field of a kernel's arguments refers to.
template <typename T>
void NoteField(OrderStream& stream, const char* op, const T& field) {
  const auto note = [&](const void* data, size_t bytes, bool writes) {
    if (data != nullptr) stream.Note({op, data, bytes, writes});
  };
  constexpr bool kWritten = std::is_same_v<T, Tensor> || std::is_same_v<T, MatrixView>;
  if constexpr (kWritten || std::is_same_v<T, ConstTensor> || std::is_same_v<T, ConstMatrixView>) {
    note(field.data, field.bytes(), kWritten);
  } else if constexpr (std::is_pointer_v<T>) {
    using Pointee = std::remove_pointer_t<T>;
    static_assert(std::is_same_v<std::remove_const_t<Pointee>, StepState>, "how large is it?");
    note(field, sizeof(StepState), !std::is_const_v<Pointee>);
  } else if constexpr (std::is_same_v<T, std::span<const Nf4Run>>) {
    // Numbers alone.
  } else if constexpr (std::is_class_v<T> && std::is_aggregate_v<T>) {
    ForEachField(field, [&](const auto& inner) { NoteField(stream, op, inner); });
  } else {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>, "does it refer to memory?");
  }
}

template <typename Args>
constexpr const char* kOpName = nullptr;
#define TRAINYARD_NAME_OP(Op) \
  template <>                 \
  constexpr const char* kOpName<Op##Args> = #Op;
TRAINYARD_FOR_EACH_OP(TRAINYARD_NAME_OP)
#undef TRAINYARD_NAME_OP

// The kernel of every op.
template <typename Args>
void NoteArgs(Exec& exec, const Args& args) {
  OrderStream& stream = StreamOf(exec);
  ForEachField(args, [&](const auto& field) { NoteField(stream, kOpName<Args>, field); });
  if constexpr (std::is_same_v<Args, ExpertOrderArgs>) {
    stream.counted[args.counts.data] = {args.counts.elements(), args.experts.elements()};
  }
}

class OrderEvent final : public Event {
 public:
  explicit OrderEvent(Accesses& accesses) : accesses_(accesses) {}
  void Record(const Exec& exec) override { moment_ = accesses_.Now(StreamOf(exec).line); }
  void Await(const Exec& exec) const override { accesses_.Join(StreamOf(exec).line, moment_); }
  double SecondsSince(const Event&) const noexcept override { return 0; }

 private:
  Accesses& accesses_;
  Accesses::Clock moment_;  // Empty before the first Record: nothing is waited for.
};

class OrderGraph final : public Graph {
 public:
  explicit OrderGraph(std::vector<Noted> noted) : noted_(std::move(noted)) {}
  void Launch(const Exec& exec) override {
    for (const Noted& noted : noted_) StreamOf(exec).Note(noted);
  }

 private:
  const std::vector<Noted> noted_;
};

}  // namespace

OrderBackend::OrderBackend(Accesses& accesses, DeviceKind device)
    : Backend(device, "order"), accesses_(accesses), next_address_(uintptr_t{1} << 40) {
#define TRAINYARD_REGISTER_OP(Op) Register<Op##Args, &NoteArgs<Op##Args>>();
  TRAINYARD_FOR_EACH_OP(TRAINYARD_REGISTER_OP)
#undef TRAINYARD_REGISTER_OP
}

Exec OrderBackend::NewExec(int threads) const {
  return {.device = device(),
          .threads = threads,
          .context = std::make_shared<OrderStream>(accesses_, accesses_.NewLine(), counted_)};
}

std::unique_ptr<Event> OrderBackend::NewEvent() const {
  return std::make_unique<OrderEvent>(accesses_);
}

std::unique_ptr<Graph> OrderBackend::Capture(Exec& exec,
                                             const std::function<void()>& enqueue) const {
  std::vector<Noted> noted;
  StreamOf(exec).captured = &noted;
  enqueue();
  StreamOf(exec).captured = nullptr;
  return std::make_unique<OrderGraph>(std::move(noted));
}

absl::StatusOr<Buffer> OrderBackend::Allocate(size_t bytes) const {
  constexpr size_t kAlignment = 256;
  void* const data = reinterpret_cast<void*>(next_address_);
  // A gap, so that no access of one buffer seems to be of the next one.
  next_address_ += (bytes / kAlignment + 2) * kAlignment;
  return Buffer(data, bytes, [](void*) {});
}

void OrderBackend::CopyToDevice(const Exec& exec, void* device, const void*, size_t bytes) const {
  StreamOf(exec).Note({"copy from the host", device, bytes, true});
}

void OrderBackend::CopyToHost(const Exec& exec, void* host, const void* device,
                              size_t bytes) const {
  StreamOf(exec).Note({"copy to the host", device, bytes, false});
  std::memset(host, 0, bytes);
  const auto counted = counted_.lower_bound(device);
  if (counted == counted_.end() ||
      counted->first >= static_cast<const std::byte*>(device) + bytes) {
    return;
  }
  const auto [experts, slots] = counted->second;
  int32_t* const counts = static_cast<int32_t*>(host);
  for (int64_t i = 0; i < int64_t(bytes / sizeof(int32_t)); ++i) {
    counts[i] = int32_t(slots / experts + (i % experts < slots % experts));
  }
}

Accesses::Line OrderBackend::LineOf(const Exec& exec) { return StreamOf(exec).line; }

}  // namespace trainyard
