#include "controller/service/bounds.h"

#include <google/protobuf/descriptor.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "controller/access/principal.h"
#include "controller/jobs/job_id.h"
#include "trainyard/v1/bounds.pb.h"

namespace trainyard::controller {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kMostTextShown = 64;  // Bytes of a wrong text.

absl::Status Refused(const FieldDescriptor& field, absl::string_view wanted,
                     absl::string_view found) {
  return absl::InvalidArgumentError(absl::StrCat(field.containing_type()->name(), ".", field.name(),
                                                 ": wanted ", wanted, ", found ", found));
}

absl::Status CheckForm(const FieldDescriptor& field, v1::Bounds::Form form,
                       const std::string& text) {
  if (form == v1::Bounds::FORM_JOB_ID && !JobNumber(text)) {
    return Refused(
        field, "the id of a job",
        absl::StrCat(text.size(), " bytes: '", VisibleUtf8(CutUtf8(text, kMostTextShown)), "'"));
  }
  if (form == v1::Bounds::FORM_NAME && !IsName(text)) {
    return Refused(field, WantedName(), absl::StrCat(text.size(), " characters"));
  }
  return absl::OkStatus();
}

// Element `i` of a list, or the only text.
absl::Status ApplyToText(Message& message, const FieldDescriptor& field, const v1::Bounds& bounds,
                         int i) {
  const Reflection& reflection = *message.GetReflection();
  std::string unused;
  const std::string& text = field.is_repeated()
                                ? reflection.GetRepeatedStringReference(message, &field, i, &unused)
                                : reflection.GetStringReference(message, &field, &unused);
  RETURN_IF_ERROR(CheckForm(field, bounds.form(), text));
  if (bounds.bytes() == 0 || text.size() <= bounds.bytes()) return absl::OkStatus();
  if (!bounds.cut()) {
    return Refused(field, absl::StrCat("at most ", bounds.bytes(), " bytes"),
                   absl::StrCat(text.size()));
  }
  std::string cut(CutUtf8(text, bounds.bytes()));
  if (field.is_repeated()) {
    reflection.SetRepeatedString(&message, &field, i, std::move(cut));
  } else {
    reflection.SetString(&message, &field, std::move(cut));
  }
  return absl::OkStatus();
}

absl::Status ApplyToField(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  const v1::Bounds& bounds = field.options().GetExtension(v1::bounds);
  if (bounds.counted()) {
    const double number = reflection.GetDouble(message, &field);
    if (!std::isfinite(number) || number <= 0) reflection.ClearField(&message, &field);
    return absl::OkStatus();
  }
  const bool text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  if (!text && field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return absl::OkStatus();
  if (!field.is_repeated()) {
    if (text) return ApplyToText(message, field, bounds, 0);
    if (!reflection.HasField(message, &field)) return absl::OkStatus();
    return ApplyBounds(*reflection.MutableMessage(&message, &field));
  }
  int items = reflection.FieldSize(message, &field), kept = 0;
  if (bounds.items() != 0 && items > int(bounds.items())) {
    if (!bounds.cut()) {
      return Refused(field, absl::StrCat("at most ", bounds.items(), " elements"),
                     absl::StrCat(items));
    }
    for (; items > int(bounds.items()); --items) reflection.RemoveLast(&message, &field);
  }
  for (int i = 0; i < items; ++i) {
    if (text) {
      RETURN_IF_ERROR(ApplyToText(message, field, bounds, i));
      continue;
    }
    const absl::Status status =
        ApplyBounds(*reflection.MutableRepeatedMessage(&message, &field, i));
    if (!status.ok() && !bounds.cut()) return status;
    if (status.ok()) reflection.SwapElements(&message, &field, i, kept++);
  }
  while (!text && items > kept) reflection.RemoveLast(&message, &field), --items;
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyBounds(Message& message) {
  const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    RETURN_IF_ERROR(ApplyToField(message, *descriptor.field(i)));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::controller
