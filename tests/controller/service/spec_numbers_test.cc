// Proves that no floating field of a spec takes a negative 0 or a number that f32 cannot hold,
// whatever way the spec comes: the fields are found by reflection, so that a new one is tested,
// too.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/violations.h"
#include "controller/service/convert_job.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::controller {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Calls visit with a message of its own for each floating field below `make`'s.
void ForEachNumber(const std::string& path, const std::function<Message*(v1::JobSpec&)>& make,
                   const std::function<void(const std::string&, v1::JobSpec&,
                                            const std::function<void(double)>&)>& visit) {
  v1::JobSpec empty;
  const auto* descriptor = make(empty)->GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    const std::string name = absl::StrCat(path, path.empty() ? "" : ".", field->name());
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_repeated()) {
      ForEachNumber(
          name,
          [&](v1::JobSpec& spec) {
            Message* message = make(spec);
            return message->GetReflection()->MutableMessage(message, field);
          },
          visit);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ||
               field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
      v1::JobSpec spec;
      Message* message = make(spec);
      visit(name, spec,
            [&](double value) { message->GetReflection()->SetDouble(message, field, value); });
    }
  }
}

TEST(SpecNumbers, AreRefusedByNameWhereF32CannotHoldThem) {
  int fields = 0;
  const auto visit = [&](const std::string& path, v1::JobSpec& spec,
                         const std::function<void(double)>& set) {
    ++fields;
    for (const double bad : {-0.0, 1e-40, -1e-40, 5e-324}) {
      SCOPED_TRACE(absl::StrCat(path, " = ", bad));
      set(bad);
      std::string description;
      for (const FieldViolation& violation : Violations::FromStatus(FromProto(spec).status())) {
        if (violation.field == path) description = violation.Description();
      }
      EXPECT_EQ(description.rfind("wanted 0 without a sign, or a number from 1.2e-38", 0), 0u)
          << description;
    }
  };
  ForEachNumber(
      "", [](v1::JobSpec& spec) { return &spec; }, visit);
  EXPECT_GE(fields, 21);  // As many as there were when this was written.
}

}  // namespace
}  // namespace trainyard::controller
