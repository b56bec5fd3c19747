#include "train/checkpoint/opened.h"

#include "train/checkpoint/load.h"

namespace trainyard {
namespace {

absl::StatusOr<OpenedCheckpoints::Facts> Read(const std::string& path) {
  const auto use = [](const Checkpoint&) { return absl::OkStatus(); };
  const absl::StatusOr<Checkpoint> checkpoint = ReadPastCache(path, Roots(), use);
  if (!checkpoint.ok()) return checkpoint.status();
  return OpenedCheckpoints::Facts{.validation = checkpoint->state().validation,
                                  .base = checkpoint->state().base,
                                  .size_bytes = uint64_t(checkpoint->manifest().size_bytes())};
}

}  // namespace

const absl::StatusOr<OpenedCheckpoints::Facts>& OpenedCheckpoints::Of(const std::string& path) {
  const auto found = facts_.find(path);
  if (found != facts_.end() && found->second.ok()) return found->second;
  return facts_.insert_or_assign(path, Read(path)).first->second;
}

const OpenedCheckpoints::Facts* OpenedCheckpoints::Find(const std::string& path) const {
  const auto found = facts_.find(path);
  return found == facts_.end() || !found->second.ok() ? nullptr : &*found->second;
}

}  // namespace trainyard
