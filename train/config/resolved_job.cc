#include "train/config/resolved_job.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/json.h"
#include "models/arch/config_json.h"
#include "train/config/fields.h"
#include "train/config/job_fields.h"
#include "train/config/resolve_model.h"

namespace trainyard {

using OrderedJson = nlohmann::ordered_json;

// Writes what Fields (fields.h) reads, with the same functions.
class FieldWriter {
 public:
  explicit FieldWriter(OrderedJson& json) : json_(json) { json_ = OrderedJson::object(); }

  static bool resolved() { return true; }

  template <typename T>
  void Field(const char* name, const T& value) {
    json_[name] = value;
  }
  template <typename T>
  void Field(const char* name, const std::optional<T>& value) {
    json_[name] = value ? OrderedJson(*value) : OrderedJson();
  }
  void Field(const char* name, const WholeNumbers& /*legal*/, int64_t value) {
    json_[name] = value;
  }
  template <typename Enum>
  void EnumField(const char* name, absl::string_view /*prefix*/,
                 const std::vector<std::pair<std::string, Enum>>& values, const Enum& held,
                 bool /*open*/ = false) {
    for (const auto& [text, value] : values) {
      if (value == held) json_[name] = text;
    }
  }
  template <typename Write>
  void Section(const char* name, Write&& write) {
    FieldWriter section(json_[name]);
    write(section);
  }
  template <typename T, typename Write>
  void OptionalSection(const char* name, std::optional<T>& held, Write&& write) {
    if (!held) {
      json_[name] = nullptr;
    } else {
      Section(name, [&](FieldWriter& section) { write(section, *held); });
    }
  }
  template <typename T, typename Write>
  void List(const char* name, std::vector<T>& held, Write&& write) {
    json_[name] = OrderedJson::array();
    for (T& item : held) {
      FieldWriter section(json_[name].emplace_back());
      write(section, item);
    }
  }
  static std::string OneOf(const std::vector<std::string>& /*names*/, absl::string_view held) {
    return std::string(held);
  }
  template <typename Write>
  void Alternative(const char* name, absl::string_view chosen, Write&& write) {
    if (chosen == name) Section(name, std::forward<Write>(write));
  }

 private:
  OrderedJson& json_;
};

OrderedJson ArchitectureJson(const ModelChoice& model) {
  const absl::StatusOr<ModelConfig> config = ResolveModel(model);
  CHECK(config.ok()) << config.status();
  OrderedJson architecture = ToJson(*config, Implied::kWritten);
  for (const Field& field : FieldsOf(*config)) {
    const std::string name = field.rule.name;
    if (field.rule.unset) architecture[name.substr(0, name.find('.'))] = nullptr;
  }
  return architecture;
}

void VisitModel(FieldWriter& fields, const ModelChoice& model) {
  fields.Field("import", model.import_path);
  fields.Field("ignore_keys", model.ignore_keys);
}

OrderedJson JobJson(JobConfig job) {
  OrderedJson json;
  FieldWriter writer(json);
  VisitJob(writer, job);
  return json;
}

std::string ResolvedJobText(JobConfig job) {
  // Makes the choices that the spec may have left open.
  job.parallelism.schedule = job.parallelism.schedule_kind();
  ScheduleConfig& schedule = job.optimizer.schedule;
  if (schedule.shape != ScheduleShape::kConstant) schedule.min_ratio = MinRatio(schedule);
  OrderedJson json = {{"format", kResolvedJobFormat}};
  json.update(JobJson(job));
  OrderedJson model = {{"architecture", ArchitectureJson(job.model)}};
  model.update(json["model"]);
  json["model"] = std::move(model);
  return JsonText(json);
}

bool IsResolvedJob(absl::string_view text) {
  const OrderedJson json = ParseJson<OrderedJson>(text);
  return json.is_object() && json.contains("format");
}

}  // namespace trainyard
