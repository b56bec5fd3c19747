#include "worker/service/membership.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/files.h"
#include "common/log.h"
#include "common/patient_read.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "security/authority.h"
#include "security/certificates.h"
#include "security/channel.h"
#include "security/controller_proof.h"
#include "security/secret_file.h"
#include "trainyard/v1/access.grpc.pb.h"

namespace trainyard {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr uint64_t kMostPemBytes = 1 << 20;
constexpr absl::string_view kHowToJoin =
    ". Give the worker --join FILE with the output of 'trainyard token create NAME --role joiner'";

absl::Status FromGrpc(const grpc::Status& status, absl::string_view doing) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat("cannot ", doing, ": ", status.error_message()));
}

std::unique_ptr<v1::AccessService::Stub> Dial(const Address& controller,
                                              const Credential& credential) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::AccessService::NewStub(trainyard::Dial(controller.ToString(), credential, arguments));
}

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kPatience));
}

absl::StatusOr<std::string> OrEmpty(absl::StatusOr<std::string> text) {
  if (absl::IsNotFound(text.status())) return "";
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Membership>> Membership::Open(MembershipOptions options) {
  std::unique_ptr<Membership> membership(new Membership(std::move(options)));
  const MembershipOptions& given = membership->options_;
  {
    const MutexLock joining(membership->joining_);
    RETURN_IF_ERROR(membership->ReadFiles());
    const absl::Status invited =
        given.join_file.empty() ? absl::OkStatus() : membership->ReadInvitation();
    if (absl::IsNotFound(invited)) {
      return absl::NotFoundError(
          absl::StrCat(membership->Lack(), "; ", invited.message(), kHowToJoin));
    }
    RETURN_IF_ERROR(invited);
    const MutexLock lock(membership->mutex_);
    membership->by_token_ =
        given.join_file.empty() && membership->identity_.certificate_pem.empty();
  }
  if (!membership->by_token_) {
    membership->renewal_ = std::thread([self = membership.get()] { self->KeepRenewed(); });
  } else if (!given.controller.loopback()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this worker has not joined the controller at ", given.controller.ToString(),
        ": give it --join FILE with the output of 'trainyard token create --role joiner'"));
  }
  return membership;
}

Membership::~Membership() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.NotifyAll();
  if (renewal_.joinable()) renewal_.join();
}

absl::Status Membership::ReadFiles() {
  absl::Duration left = kReadPatience;
  const auto read = [&](const std::string& path) {
    return ReadWithin([&] { return ReadFile(path, kMostPemBytes); }, left);
  };
  const MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(identity_.key_pem,
                   OrEmpty(ReadWithin([&] { return ReadSecret(Path("key.pem")); }, left)));
  ASSIGN_OR_RETURN(identity_.certificate_pem, OrEmpty(read(Path("certificate.pem"))));
  ASSIGN_OR_RETURN(authority_, OrEmpty(read(Path("authority.pem"))));
  if (authority_.empty()) identity_.certificate_pem.clear();  // The worker died while it joined.
  ASSIGN_OR_RETURN(joined_with_, OrEmpty(read(Path("joined_with"))));
  if (options_.places.authority_file.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(by_which_known_, ReadFile(options_.places.authority_file, kMostPemBytes));
  return absl::OkStatus();
}

// Reads the join file. If its invitation is from another authority than the worker knows, the
// cluster has a new one.
absl::Status Membership::ReadInvitation() {
  const absl::StatusOr<std::string> text = ReadSecret(options_.join_file, options_.places.readers);
  const MutexLock lock(mutex_);
  // After the worker has joined, its owner may remove the file without changing the command line.
  const bool needless = !identity_.certificate_pem.empty() || !invitation_.token.empty();
  if (absl::IsNotFound(text.status()) && needless) return absl::OkStatus();
  RETURN_IF_ERROR(text.status());
  absl::StatusOr<Invitation> invitation = ParseInvitation(*text);
  if (!invitation.ok() || (invitation->fingerprint.empty() && by_which_known_.empty())) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.join_file,
                     ": wanted a token and the fingerprint of an authority, as 'trainyard token "
                     "create --role joiner' prints them, or a token alone and --authority FILE"));
  }
  invitation_ = *std::move(invitation);
  if (invitation_.fingerprint.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> known = Fingerprint(authority_);
  if (known.ok() && *known == invitation_.fingerprint) return absl::OkStatus();
  authority_.clear();
  identity_.certificate_pem.clear();
  return absl::OkStatus();
}

std::string Membership::Lack() {
  const std::string path = Path("certificate.pem");
  const MutexLock lock(mutex_);
  if (identity_.certificate_pem.empty()) {
    return absl::StrCat("this worker has no certificate at ", path);
  }
  const absl::Status usable = CheckIdentity(identity_, RealClock().Now());
  if (!usable.ok()) return absl::StrCat(path, ": ", usable.message());
  return absl::StrCat("the controller refuses ", path);
}

bool Membership::Expired() {
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(identity_.certificate_pem);
  return !facts.ok() || facts->not_after <= RealClock().Now();
}

Credential Membership::Shown(const std::string& token, const Identity& identity) {
  return {.token = token,
          .authorities = by_which_known_.empty() ? authority_ : by_which_known_,
          .identity = identity};
}

// A worker that was revoked must not come back with the token that it joined with, even if the
// token has uses left. JSON Web Tokens are replaced every hour, so a worker may come back with one
// only if it has not joined since it started.
bool Membership::HasAnotherToken() {
  if (options_.join_file.empty()) return false;
  const absl::Status read = ReadInvitation();
  const std::string complaint(read.message());
  if (std::exchange(complaint_, complaint) != complaint && !read.ok()) {
    LogWarning(
        "join_file_unusable",
        {{"error", complaint}, {"effect", "this worker was revoked, and cannot join again"}});
  }
  if (!read.ok() || invitation_.token.empty()) return false;
  if (invitation_.fingerprint.empty() && has_joined_) return false;
  return Sha256Of(invitation_.token) != joined_with_;
}

absl::StatusOr<Credential> Membership::Current() {
  if (by_token_) return FindCredential(options_.places, options_.controller);
  const MutexLock joining(joining_);
  bool expired, refused;
  {
    const MutexLock lock(mutex_);
    expired = Expired();
    refused = refused_;
  }
  if (expired || (refused && HasAnotherToken())) RETURN_IF_ERROR(Join());
  const MutexLock lock(mutex_);
  return Shown("", identity_);
}

void Membership::Refused() {
  const MutexLock lock(mutex_);
  refused_ = true;
}

std::optional<TlsMaterial> Membership::PageTls() {
  const MutexLock lock(mutex_);
  if (by_token_ || identity_.certificate_pem.empty()) return std::nullopt;
  return TlsMaterial{.key = identity_.key_pem,
                     .certificates = identity_.certificate_pem,
                     .client_authorities = authority_};
}

absl::StatusOr<std::string> Membership::Key() {
  {
    const MutexLock lock(mutex_);
    if (!identity_.key_pem.empty()) return identity_.key_pem;
  }
  ASSIGN_OR_RETURN(std::string key, NewKey());
  RETURN_IF_ERROR(WriteSecret(Path("key.pem"), key));
  const MutexLock lock(mutex_);
  identity_.key_pem = key;
  return key;
}

absl::Status Membership::Join() {
  const absl::Status joined = TryToJoin();
  if (joined.ok()) return joined;
  // If the controller cannot be reached, the token may still be good.
  const bool wants_token = invitation_.token.empty() || absl::IsUnauthenticated(joined);
  return absl::Status(
      joined.code(), absl::StrCat(Lack(), "; ", ExplainProof(joined.message(), options_.controller),
                                  wants_token ? kHowToJoin : ""));
}

absl::Status Membership::TryToJoin() {
  if (!options_.join_file.empty()) RETURN_IF_ERROR(ReadInvitation());
  if (invitation_.token.empty()) {
    const std::string& file = options_.join_file;
    return absl::FailedPreconditionError(
        file.empty() ? "cannot join the controller without --join"
                     : absl::StrCat("cannot join the controller: there is no ", file));
  }
  RETURN_IF_ERROR(MakeSecretDirectory(options_.directory));
  Credential shown;
  {
    const MutexLock lock(mutex_);
    shown = Shown(invitation_.token, Identity());
  }
  if (shown.authorities.empty()) {
    ASSIGN_OR_RETURN(shown.authorities,
                     FetchAuthority(options_.controller, invitation_.fingerprint, kPatience));
  }
  // Written before the call. If the answer is lost, the next call has the same key, and takes no
  // further use of the token.
  Identity identity;
  ASSIGN_OR_RETURN(identity.key_pem, Key());
  v1::JoinRequest request;
  request.set_worker_id(options_.worker_id);
  request.set_hostname(options_.hostname);
  ASSIGN_OR_RETURN(*request.mutable_certificate_request(),
                   NewRequest(identity.key_pem, options_.worker_id));
  grpc::ClientContext context;
  SetDeadline(context);
  v1::JoinResponse response;
  const auto stub = Dial(options_.controller, shown);
  RETURN_IF_ERROR(FromGrpc(stub->Join(&context, request, &response), "join the controller"));
  identity.certificate_pem = response.certificates();
  ASSIGN_OR_RETURN(const std::string authority, AuthorityOf(identity.certificate_pem));
  // The authority is written last. After a crash in between, the worker has no authority, does not
  // use the certificate, and joins again. In the other order, the worker would show an old
  // certificate to a new authority for ever.
  RETURN_IF_ERROR(Write(identity));
  RETURN_IF_ERROR(WriteFileAtomic(Path("authority.pem"), authority));
  joined_with_ = Sha256Of(invitation_.token);
  has_joined_ = true;
  RETURN_IF_ERROR(WriteFileAtomic(Path("joined_with"), joined_with_));
  const MutexLock lock(mutex_);
  identity_ = identity;
  authority_ = authority;
  refused_ = false;
  LogInfo("joined", {{"controller", options_.controller.ToString()}});
  return absl::OkStatus();
}

absl::StatusOr<std::string> Membership::AuthorityOf(const std::string& certificates) const {
  if (!invitation_.fingerprint.empty()) {
    return FindCertificate(certificates, invitation_.fingerprint);
  }
  // The controller has proved itself by the authority that the user named, so it can be believed.
  const std::vector<std::string> sent = SplitCertificates(certificates);
  if (sent.size() == 2) return sent[1];
  return absl::InternalError(absl::StrCat(
      "wanted the worker's certificate and the authority's from the controller, found ",
      sent.size(), " certificates"));
}

absl::Status Membership::Write(const Identity& identity) {
  RETURN_IF_ERROR(CheckIdentity(identity, RealClock().Now()));
  return WriteFileAtomic(Path("certificate.pem"), identity.certificate_pem);
}

void Membership::KeepRenewed() {
  absl::Duration pause = kLookForRenewalEvery;
  for (;;) {
    {
      MutexLock lock(mutex_);
      const absl::Duration next = RealClock().Monotonic() + pause;
      while (!closing_ && changed_.WaitUntil(mutex_, next)) continue;
      if (closing_) return;
    }
    const absl::Status status = Renew();
    pause = status.ok() ? kLookForRenewalEvery : kPauseAfterFailedRenewal;
    if (!status.ok()) LogWarning("certificate_not_renewed", {{"error", status.message()}});
  }
}

absl::Status Membership::Renew() {
  Credential current;
  {
    const MutexLock lock(mutex_);
    const absl::StatusOr<CertificateFacts> facts = ReadCertificate(identity_.certificate_pem);
    // Join takes care of a certificate that is missing or has expired.
    if (!facts.ok() || Expired() || !RenewalIsDue(*facts, RealClock().Now()))
      return absl::OkStatus();
    current = Shown("", identity_);
  }
  v1::RenewCertificateRequest request;
  ASSIGN_OR_RETURN(*request.mutable_certificate_request(),
                   NewRequest(current.identity.key_pem, options_.worker_id));
  grpc::ClientContext context;
  SetDeadline(context);
  v1::RenewCertificateResponse response;
  const auto stub = Dial(options_.controller, current);
  RETURN_IF_ERROR(FromGrpc(stub->RenewCertificate(&context, request, &response),
                           "renew the worker's certificate"));
  const MutexLock joining(joining_);
  {
    // A join that came in between has a newer one.
    const MutexLock lock(mutex_);
    if (identity_.certificate_pem != current.identity.certificate_pem) return absl::OkStatus();
  }
  Identity renewed = current.identity;
  renewed.certificate_pem = response.certificates();
  RETURN_IF_ERROR(Write(renewed));
  const MutexLock lock(mutex_);
  identity_ = renewed;
  LogInfo("certificate_renewed", {{"controller", options_.controller.ToString()}});
  return absl::OkStatus();
}

}  // namespace trainyard
