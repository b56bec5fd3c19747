#include "controller/access/grants.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/time_util.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/clock.h"
#include "common/files.h"
#include "common/json.h"
#include "common/log.h"
#include "common/patient_read.h"
#include "common/status_macros.h"
#include "security/secret_file.h"
#include "security/tokens.h"

namespace trainyard::controller {
namespace {

using google::protobuf::util::JsonStringToMessage;
using google::protobuf::util::MessageToJsonString;

constexpr absl::string_view kEnding = ".json";
// Longer than the resolution of file systems' times.
constexpr absl::Duration kSettled = absl::Seconds(3);
// How long a start waits for grants that cannot be read. Not longer, because the owner of a grant's
// file may have made a mistake, which must not keep everybody else out.
constexpr absl::Duration kStartPatience = absl::Seconds(5);

bool IsId(absl::string_view id) {
  return !id.empty() && id.size() <= 64 &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return absl::ascii_isalnum(c); });
}

}  // namespace

std::string ToJson(const StoredGrant& grant) {
  std::string message;
  (void)MessageToJsonString(grant.grant, &message);
  nlohmann::json json = {{"grant", ParseJson<nlohmann::json>(message)}};
  if (!grant.secret_hash.empty()) json["secret_sha256"] = grant.secret_hash;
  if (!grant.key_hash.empty()) json["key_sha256"] = grant.key_hash;
  if (!grant.request_id.empty()) json["request_id"] = grant.request_id;
  return JsonText(json, 2) + "\n";
}

absl::StatusOr<StoredGrant> GrantFromJson(const std::string& text) {
  const nlohmann::json json = ParseJson(text);
  if (!json.is_object() || !json.contains("grant")) {
    return absl::InvalidArgumentError("wanted a JSON object with the member grant");
  }
  const auto text_of = [&](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  StoredGrant grant{.grant = {},
                    .secret_hash = text_of("secret_sha256"),
                    .key_hash = text_of("key_sha256"),
                    .request_id = text_of("request_id")};
  const auto parsed = JsonStringToMessage(JsonText(json["grant"]), &grant.grant);
  if (!parsed.ok()) return absl::InvalidArgumentError(std::string(parsed.message()));
  // Roles are compared by number. A number without a name could include any role.
  if (!v1::Role_IsValid(grant.grant.role())) {
    return absl::InvalidArgumentError("wanted a role that this controller knows");
  }
  // Without a hash, a grant could be opened by anybody.
  const bool worker = grant.grant.role() == v1::ROLE_WORKER;
  if ((worker ? grant.key_hash : grant.secret_hash).size() != 64) {
    return absl::InvalidArgumentError("wanted a SHA-256 of 64 digits");
  }
  return grant;
}

absl::StatusOr<std::unique_ptr<Grants>> Grants::Open(const std::string& directory,
                                                     const Clock& clock) {
  const auto made = [&] { return MakeSecretDirectory(directory); };
  RETURN_IF_ERROR(ReadPatiently(made, kStartPatience));
  std::unique_ptr<Grants> grants(new Grants(directory, clock));
  // A worker whose grant is missing for a moment would take it for revoked.
  (void)ReadPatiently([&] { return grants->Look(); }, kStartPatience);
  return grants;
}

std::string Grants::PathOf(absl::string_view id) const {
  return absl::StrCat(directory_, "/", id, kEnding);
}

bool Grants::Holds(const StoredGrant& grant) const {
  const auto& end = grant.grant.expire_time();
  return absl::FromUnixSeconds(end.seconds()) > clock_.Now();
}

std::optional<StoredGrant> Grants::Find(absl::string_view id) const {
  const MutexLock lock(mutex_);
  const auto found = grants_.find(id);
  if (found == grants_.end() || !Holds(found->second)) return std::nullopt;
  return found->second;
}

std::optional<StoredGrant> Grants::Kept(absl::string_view id) const {
  const MutexLock lock(mutex_);
  const auto found = grants_.find(id);
  if (found == grants_.end()) return std::nullopt;
  return found->second;
}

bool Grants::Knows(absl::string_view id) const {
  const MutexLock lock(mutex_);
  const auto found = grants_.find(id);
  return found != grants_.end() && Holds(found->second);
}

std::vector<v1::Grant> Grants::List() const {
  const MutexLock lock(mutex_);
  std::vector<v1::Grant> list;
  for (const auto& [id, grant] : grants_) {
    if (Holds(grant)) list.push_back(grant.grant);
  }
  return list;
}

absl::Status Grants::Put(const StoredGrant& grant) {
  const MutexLock change(changing_);
  for (const std::string& id : OfSameRequest(grant)) RETURN_IF_ERROR(RemoveFromDisk(id));
  return PutOnDisk(grant);
}

std::vector<std::string> Grants::OfSameRequest(const StoredGrant& grant) const {
  std::vector<std::string> same;
  if (grant.request_id.empty()) return same;
  const MutexLock lock(mutex_);
  for (const auto& [id, other] : grants_) {
    if (other.request_id == grant.request_id &&
        other.grant.created_by() == grant.grant.created_by()) {
      same.push_back(id);
    }
  }
  return same;
}

absl::Status Grants::Replace(const StoredGrant& grant) {
  const MutexLock change(changing_);
  return ReplaceOnDisk(grant);
}

absl::Status Grants::ReplaceOnDisk(const StoredGrant& grant) {
  const std::string& id = grant.grant.id();
  // Somebody may have removed the file since the last Refresh. A removed grant must not come back.
  if (Kept(id) && ::access(PathOf(id).c_str(), F_OK) == 0) return PutOnDisk(grant);
  const MutexLock lock(mutex_);
  grants_.erase(id);
  return absl::UnauthenticatedError(absl::StrCat("the grant ", id, " was revoked"));
}

absl::Status Grants::PutOnDisk(const StoredGrant& grant) {
  const std::string& id = grant.grant.id();
  RETURN_IF_ERROR(MakeRoom(id));
  RETURN_IF_ERROR(WriteSecret(PathOf(id), ToJson(grant)));
  const MutexLock lock(mutex_);
  ++changes_;
  grants_[id] = grant;
  return absl::OkStatus();
}

absl::Status Grants::RemoveFromDisk(const std::string& id) {
  if (::unlink(PathOf(id).c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, "remove", PathOf(id));
  }
  {
    const MutexLock lock(mutex_);
    ++changes_;
    grants_.erase(id);
    removed_.insert(id);
  }
  return SyncDirectory(directory_);
}

absl::Status Grants::MakeRoom(const std::string& id) {
  std::vector<std::string> expired;
  {
    const MutexLock lock(mutex_);
    if (grants_.size() < kMostGrants) return absl::OkStatus();
    for (const auto& [other, grant] : grants_) {
      if (!Holds(grant)) expired.push_back(other);
    }
    if (expired.empty() && !grants_.contains(id)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there are ", kMostGrants, " grants; revoke some"));
    }
  }
  for (const std::string& old : expired) RETURN_IF_ERROR(RemoveFromDisk(old));
  return absl::OkStatus();
}

absl::StatusOr<v1::Grant> Grants::Revoke(const std::string& id) {
  const MutexLock change(changing_);
  const std::optional<StoredGrant> found = Kept(id);
  if (!found) return absl::NotFoundError(absl::StrCat("there is no grant ", id));
  RETURN_IF_ERROR(RemoveFromDisk(id));
  return found->grant;
}

std::optional<StoredGrant> Grants::OfWorker(const std::string& worker_id) const {
  const MutexLock lock(mutex_);
  for (const auto& [id, grant] : grants_) {
    if (grant.grant.worker_id() == worker_id && Holds(grant)) return grant;
  }
  return std::nullopt;
}

absl::StatusOr<v1::Grant> Grants::Join(const std::string& joiner, StoredGrant worker) {
  const MutexLock change(changing_);
  std::optional<StoredGrant> from = Kept(joiner);
  if (!joiner.empty() && !from) return absl::UnauthenticatedError("the token has been revoked");
  if (const std::optional<StoredGrant> other = OfWorker(worker.grant.worker_id())) {
    const std::string& id = other->grant.id();
    if (other->key_hash != worker.key_hash) {
      return absl::FailedPreconditionError(absl::StrCat(
          "a worker with the id ", other->grant.worker_id(),
          " has already joined with another key. If that worker is lost, revoke its grant ", id,
          "; otherwise give this worker a state directory of its own"));
    }
    worker.grant.set_id(id);
    *worker.grant.mutable_create_time() = other->grant.create_time();
    RETURN_IF_ERROR(ReplaceOnDisk(worker));
    return worker.grant;
  }
  if (joiner.empty()) {
    RETURN_IF_ERROR(PutOnDisk(worker));
    return worker.grant;
  }
  v1::JoinLimits& left = *from->grant.mutable_join();
  if (left.uses() == 0) {
    return absl::FailedPreconditionError(
        "the token has been used as often as it may be: make another one with 'trainyard token "
        "create'");
  }
  left.set_uses(left.uses() - 1);
  // A crash between the two writes loses a use. In the other order, a worker would join for free.
  RETURN_IF_ERROR(ReplaceOnDisk(*from));
  RETURN_IF_ERROR(PutOnDisk(worker));
  return worker.grant;
}

absl::StatusOr<std::set<std::string>> Grants::IdsOnDisk() const {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory_));
  std::set<std::string> ids;
  for (absl::string_view name : names) {
    // Files with other names are still being written.
    if (absl::ConsumeSuffix(&name, kEnding) && IsId(name)) ids.emplace(name);
  }
  return ids;
}

absl::StatusOr<StoredGrant> Grants::Read(const std::string& id) const {
  ASSIGN_OR_RETURN(const std::string text, ReadSecret(PathOf(id)));
  ASSIGN_OR_RETURN(StoredGrant grant, GrantFromJson(text));
  if (grant.grant.id() == id) return grant;
  return absl::InvalidArgumentError(absl::StrCat("the file holds the grant ", grant.grant.id()));
}

bool Grants::Unchanged() {
  struct stat status {};
  if (::stat(directory_.c_str(), &status) != 0) return false;
  const absl::Time changed = absl::TimeFromTimespec(status.st_mtim);
  const bool same = changed == looked_at_;
  // A second change within one step of the file system's clock does not change the time.
  looked_at_ = RealClock().Now() - changed > kSettled ? changed : absl::InfinitePast();
  return same;
}

// Reads without holding mutex_: the disk may be slow, and every call asks for a grant.
absl::Status Grants::Look() {
  if (Unchanged()) return absl::OkStatus();
  std::set<std::string> known;
  uint64_t changes = 0;
  {
    const MutexLock lock(mutex_);
    changes = changes_;
    removed_.clear();
    for (const auto& [id, grant] : grants_) known.insert(id);
  }
  const auto ids = IdsOnDisk();
  if (!ids.ok()) {
    // The grants stay as they are: nobody loses access because a disk hangs.
    LogError("grants_unreadable", {{"error", ids.status().message()}});
    looked_at_ = absl::InfinitePast();
    return ids.status();
  }
  absl::Status unread;  // Of the first that may be read later.
  std::map<std::string, StoredGrant> read;
  for (const std::string& id : *ids) {
    if (known.contains(id)) continue;
    absl::StatusOr<StoredGrant> grant = Read(id);
    if (grant.ok()) {
      read.emplace(id, *std::move(grant));
      unreadable_.erase(id);
    } else if (!absl::IsNotFound(grant.status())) {
      if (unreadable_.insert(id).second) {
        LogError("grant_unreadable", {{"grant", id}, {"error", grant.status().message()}});
      }
      // The error may be temporary: the process may have no descriptors left, or the file may still
      // get another owner, which the directory's time does not show. So the next Refresh reads the
      // file again. A text that is not a grant is read again after the next change of the
      // directory, because the file may still be being copied.
      if (!absl::IsInvalidArgument(grant.status())) looked_at_ = absl::InfinitePast();
      unread.Update(grant.status());
    }
  }
  std::erase_if(unreadable_, [&](const std::string& id) { return !ids->contains(id); });
  const MutexLock lock(mutex_);
  // Grants that were revoked since the directory was listed must not come back.
  for (const std::string& id : removed_) read.erase(id);
  grants_.merge(read);
  // The list may be older than a change that was made through this object.
  if (changes == changes_)
    std::erase_if(grants_, [&](const auto& g) { return !ids->contains(g.first); });
  return unread;
}

absl::StatusOr<NewGrant> MakeToken(v1::Grant grant, absl::Time now) {
  ASSIGN_OR_RETURN(const Token token, NewToken());
  grant.set_id(token.id);
  grant.mutable_create_time()->set_seconds(absl::ToUnixSeconds(now));
  return NewGrant{
      .stored = {.grant = std::move(grant), .secret_hash = HashSecret(token), .key_hash = {}},
      .token = token.text};
}

}  // namespace trainyard::controller
