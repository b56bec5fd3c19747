// The values that pass from block to block of a model, and across the cuts of a pipeline. The
// values are named and have a fixed order. Each has its own shape, dtype and `varying`.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "models/program/value.h"

namespace trainyard {

class Carried {
 public:
  struct Named {
    std::string name;
    Value value;
  };

  // One value, as in most models.
  Carried(Value x) : values_{{"x", x}} {}  // NOLINT: a block may return its value.
  // The names must differ.
  explicit Carried(std::vector<Named> values) : values_(std::move(values)) {}

  const std::vector<Named>& values() const { return values_; }
  // CHECKs that a value of this name exists.
  Value operator[](absl::string_view name) const {
    for (const Named& named : values_) {
      if (named.name == name) return named.value;
    }
    CHECK(false) << "no value " << name << " is carried";
    std::abort();
  }
  // CHECKs that there is exactly one value.
  Value only() const {
    CHECK(values_.size() == 1) << values_.size() << " values are carried, one was wanted";
    return values_.front().value;
  }

 private:
  std::vector<Named> values_;
};

}  // namespace trainyard
