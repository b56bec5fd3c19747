#include "controller/service/access_control.h"

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "controller/access/directories.h"
#include "security/certificates.h"
#include "security/credentials.h"

namespace trainyard::controller {
namespace {

// How soon a grant counts whose file somebody has made or removed.
constexpr absl::Duration kRefreshEvery = absl::Milliseconds(250);
constexpr absl::Duration kLookAtIssuersEvery = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<AccessControl>> AccessControl::Create(const AccessOptions& options,
                                                                     const Address& listen,
                                                                     const BelievedTime& time,
                                                                     ControllerMetrics& metrics,
                                                                     Audit& audit) {
  std::unique_ptr<AccessControl> access(new AccessControl(options, listen, time, metrics));
  ASSIGN_OR_RETURN(access->grants_, Grants::Open(GrantsDirectory(options.state_directory), time));
  ASSIGN_OR_RETURN(access->issuers_, Issuers::Open(options.issuers_file, time.raw()));
  RETURN_IF_ERROR(listen.loopback() ? access->OpenLoopback(audit) : access->OpenTls(audit));
  access->credentials_->SetAuthMetadataProcessor(access->gate_);
  access->ticker_.Start(kRefreshEvery, [self = access.get()] { self->Tick(); });
  access->issuers_ticker_.Start(kLookAtIssuersEvery,
                                [self = access.get()] { self->issuers_->Refresh(); });
  return access;
}

AccessControl::~AccessControl() {
  ticker_.Stop();
  issuers_ticker_.Stop();
  if (published_) WithdrawToken(options_.config_directory, listen_, local_token());
}

absl::Status AccessControl::OpenLoopback(Audit& audit) {
  ASSIGN_OR_RETURN(LocalToken token, LocalToken::Make(options_.state_directory));
  gate_ = std::make_shared<Gate>(std::move(token),
                                 Gate::Parts{*grants_, *issuers_, clock_, metrics_, audit});
  // gRPC asks a gate only with credentials of some kind. These refuse peers from other machines,
  // and do not encrypt.
  credentials_ = grpc::experimental::LocalServerCredentials(LOCAL_TCP);
  if (options_.config_directory.empty()) return absl::OkStatus();
  const absl::Status status = PublishToken(options_.config_directory, listen_, local_token());
  published_ = status.ok();
  if (!status.ok()) LogWarning("token_not_published", {{"error", status.message()}});
  return absl::OkStatus();
}

absl::Status AccessControl::OpenTls(Audit& audit) {
  const std::string directory = AuthorityDirectory(options_.state_directory);
  absl::StatusOr<Authority> authority = Authority::Open(directory, clock_.Now());
  if (absl::IsNotFound(authority.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "refusing to listen on ", listen_.ToString(), " without encryption: ", directory,
        " holds no authority. Make one with 'trainyard-controller --state ",
        options_.state_directory, " init --host NAME', or listen on 127.0.0.1"));
  }
  RETURN_IF_ERROR(authority.status());
  authority_ = *std::move(authority);
  certificate_ = options_.certificate.value_or(
      ServerCertificate{authority_->server_path(), authority_->server_path()});
  if (!options_.certificate) {
    const absl::Status renewed = authority_->RenewServer(clock_.Now()).status();
    if (!absl::IsNotFound(renewed)) RETURN_IF_ERROR(renewed);  // TlsCredentials says what to do.
  }
  ASSIGN_OR_RETURN(credentials_, TlsCredentials(certificate_, *authority_, clock_.Now()));
  gate_ = std::make_shared<Gate>(std::nullopt,
                                 Gate::Parts{*grants_, *issuers_, clock_, metrics_, audit});
  return absl::OkStatus();
}

std::string AccessControl::local_token() const {
  return gate_->local() ? gate_->local()->text() : "";
}

absl::StatusOr<std::optional<TlsMaterial>> AccessControl::PageTls() const {
  if (!authority_) return std::nullopt;
  ASSIGN_OR_RETURN(TlsMaterial material, TlsForPages(certificate_, *authority_));
  return material;
}

void AccessControl::ShowExpiry() {
  const absl::StatusOr<std::string> text = ReadFile(certificate_.certificate_path);
  if (!text.ok()) return;  // PageTls reports the error.
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(*text);
  if (!facts.ok()) return;
  metrics_.certificate_expiry_timestamp_seconds.Add({}).Set(
      absl::ToDoubleSeconds(facts->not_after - absl::UnixEpoch()));
}

void AccessControl::Tick() {
  grants_->Refresh();
  if (!authority_ || clock_.Monotonic() < renewal_look_) return;
  const bool kept = RenewCertificate();
  renewal_look_ = clock_.Monotonic() + (kept ? kLookForRenewalEvery : kPauseAfterFailedRenewal);
  ShowExpiry();
}

bool AccessControl::RenewCertificate() {
  if (options_.certificate) return true;
  const absl::StatusOr<bool> renewed = authority_->RenewServer(clock_.Now());
  if (!renewed.ok()) LogError("certificate_not_renewed", {{"error", renewed.status().message()}});
  if (renewed.ok() && *renewed) LogInfo("certificate_renewed", {{"file", certificate_.key_path}});
  return renewed.ok();
}

}  // namespace trainyard::controller
