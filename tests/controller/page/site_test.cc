// Proves who reads what of a real controller's page: the roles and namespaces of the API hold, what
// somebody typed is shown and never run, and other sites' pages get nowhere.

#include <gmock/gmock.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/http/metrics_page.h"
#include "controller/access/rates.h"
#include "controller/page/words.h"
#include "tests/controller/page/reader.h"
#include "tests/controller/testing/server_fixture.h"
#include "tests/testing/fake_clock.h"
#include "trainyard/v1/access.grpc.pb.h"

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHostile[] = "</pre><script>alert(1)</script>\"'><img src=x onerror=alert(2)>";
constexpr char kHarmless[] =
    "&lt;/pre&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&gt;&lt;img src=x "
    "onerror=alert(2)&gt;";

class SiteTest : public ServerFixture {
 protected:
  explicit SiteTest(const Clock& clock = RealClock()) : ServerFixture(clock) {
    page_ = MetricsPage::Serve(
                {"127.0.0.1", 0}, server_->registry(), {},
                [this](const HttpRequest& request) { return server_->site().Answer(request); })
                .value();
  }
  ~SiteTest() override { page_.reset(); }
  int at() const { return page_->address().port; }
  std::string Local() const { return server_->access().local_token(); }

  struct Granted {
    std::string id, token;
  };
  Granted Grant(const std::string& name, v1::Role role, const std::string& name_space = "") {
    v1::CreateTokenRequest request;
    request.set_name(name);
    request.set_role(role);
    request.set_namespace_(name_space);
    if (role == v1::ROLE_JOINER) request.mutable_join()->set_uses(1);
    grpc::ClientContext context;
    v1::CreateTokenResponse response;
    const grpc::Status status =
        v1::AccessService::NewStub(channel_)->CreateToken(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {response.grant().id(), response.token()};
  }
  void Revoke(const std::string& id) {
    v1::RevokeGrantRequest request;
    request.set_id(id);
    grpc::ClientContext context;
    v1::RevokeGrantResponse response;
    EXPECT_TRUE(
        v1::AccessService::NewStub(channel_)->RevokeGrant(&context, request, &response).ok());
  }
  std::string SubmitTo(const std::string& name_space, const std::string& name) {
    v1::SubmitJobRequest request;
    *request.mutable_spec() = Spec();
    request.mutable_spec()->set_name(name);
    request.set_namespace_(name_space);
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    const grpc::Status status = jobs_->SubmitJob(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job().id();
  }
  double Refused(const std::string& reason) const {
    for (const auto& family : server_->registry()->Collect()) {
      if (family.name != "trainyard_calls_refused_total") continue;
      for (const auto& metric : family.metric) {
        if (metric.label.at(0).value == reason) return metric.counter.value;
      }
    }
    return 0;
  }
  Reply LogIn(const std::string& token, absl::string_view headers = "",
              const std::string& next = "%2F") const {
    return Ask(at(), PostText("/login", "token=" + token + "&next=" + next, headers));
  }

  std::unique_ptr<MetricsPage> page_;
};

const Clock& StillClock() {
  static const FakeClock clock;
  return clock;
}

// No time passes, in which somebody could call once more.
class RatesOfTheSiteTest : public SiteTest {
 protected:
  RatesOfTheSiteTest() : SiteTest(StillClock()) {}
};

TEST_F(SiteTest, WhoShowsNoTokenGetsTheFormAlone) {
  const std::string job = MustSubmit(Spec());
  for (const std::string& path : {std::string("/"), "/jobs/" + job, std::string("/workers"),
                                  std::string("/jobs/j-0000000000"), std::string("/nonsense")}) {
    const Reply reply = Ask(at(), GetText(path));
    EXPECT_EQ(reply.status, 401) << path;
    EXPECT_THAT(reply.body, HasSubstr("<form method=\"post\" action=\"/login\">"));
    EXPECT_THAT(reply.body, Not(HasSubstr("tiny")));
    // Who asks for a job is led to it.
    EXPECT_THAT(reply.body, HasSubstr("name=\"next\" value=\"" + path + "\""));
  }
  EXPECT_EQ(Refused("credential"), 0) << "who has not tried has not failed";
}

TEST_F(SiteTest, ATokenBecomesACookieThatOpensThePage) {
  const std::string job = MustSubmit(Spec());
  const std::string file = Grant("alice", v1::ROLE_VIEWER).token;
  for (const std::string& token : {Local(), file, "%20" + file + "%0Asha256%3Aabc"}) {
    const Reply in = LogIn(token, "", "%2Fjobs%2F" + job);
    ASSERT_EQ(in.status, 303) << in.body;
    EXPECT_EQ(in.Header("location"), "/jobs/" + job);
    const std::string cookie = in.Header("set-cookie");
    EXPECT_THAT(cookie, ::testing::EndsWith("; Path=/; HttpOnly; SameSite=Strict"));
    const std::string pair = cookie.substr(0, cookie.find(';'));
    const Reply page = Ask(at(), GetText("/jobs/" + job, "Cookie: " + pair + "\r\n"));
    EXPECT_EQ(page.status, 200);
    EXPECT_THAT(page.body, HasSubstr("<h1>tiny</h1>"));
  }
  EXPECT_EQ(LogIn(Local(), "", "%2F%2Fevil.example").Header("location"), "/");
  const Reply out = Ask(at(), PostText("/logout", "", CookieLine(Local())));
  EXPECT_EQ(out.status, 303);
  EXPECT_THAT(out.Header("set-cookie"), HasSubstr("trainyard-80=; "));
  EXPECT_THAT(out.Header("set-cookie"), HasSubstr("; Max-Age=0"));
}

TEST_F(SiteTest, WrongTokensAreCounted) {
  const std::string unknown = trainyard::NewToken()->text;
  for (const std::string& token :
       {unknown, std::string(), std::string("x"), std::string("a.b.c"), std::string("%00%0d%0a")}) {
    const double before = Refused("credential");
    const Reply reply = LogIn(token);
    EXPECT_EQ(reply.status, 401) << token;
    EXPECT_EQ(reply.Header("set-cookie"), "");
    EXPECT_THAT(reply.body, HasSubstr("class=\"wrong\""));
    EXPECT_THAT(reply.body, Not(HasSubstr(unknown)));
    EXPECT_EQ(Refused("credential"), before + 1);
  }
  EXPECT_EQ(LogIn(std::string(4'000, 'x')).status, 400);
  EXPECT_EQ(GetAs(at(), unknown, "/").status, 401);
  EXPECT_THAT(GetAs(at(), unknown, "/").Header("set-cookie"), HasSubstr("Max-Age=0"));
  const std::string joiner = Grant("rack", v1::ROLE_JOINER).token;
  EXPECT_EQ(LogIn(joiner).status, 403);
  EXPECT_EQ(GetAs(at(), joiner, "/").status, 403);
}

TEST_F(RatesOfTheSiteTest, WhoTriesTokensKeepsNobodyOut) {
  const std::string unknown = trainyard::NewToken()->text;
  int tries = 0;
  while (LogIn(unknown).status == 401 && tries < 2'000) ++tries;
  EXPECT_EQ(tries, kCallsAtOnce);
  EXPECT_EQ(Refused("rate"), 1);
  // Who has a token comes in from there all the same.
  EXPECT_EQ(LogIn(Grant("alice", v1::ROLE_VIEWER).token).status, 303);
  EXPECT_EQ(LogIn(unknown).status, 429);
}

TEST_F(RatesOfTheSiteTest, AReaderHasTheRateOfACaller) {
  const std::string token = Grant("alice", v1::ROLE_VIEWER).token;
  int pages = 0;
  while (GetAs(at(), token, "/workers").status == 200 && pages < 2'000) ++pages;
  EXPECT_EQ(pages, kCallsAtOnce);
  EXPECT_EQ(GetAs(at(), token, "/workers").status, 429);
  EXPECT_EQ(GetAs(at(), Local(), "/workers").status, 200);
}

TEST_F(SiteTest, OfAnotherNamespaceNothingIsThere) {
  const std::string mine = SubmitTo("research", "mine"), other = SubmitTo("secret", "other");
  const auto worker = Worker("w-1", 2);
  AwaitState(mine, v1::JOB_STATE_STARTING);
  AwaitState(other, v1::JOB_STATE_STARTING);
  const std::string viewer = Grant("alice", v1::ROLE_VIEWER, "research").token;
  const std::string all = Grant("olga", v1::ROLE_OPERATOR).token;
  EXPECT_THAT(GetAs(at(), viewer, "/").body, HasSubstr(mine));
  for (const char* list : {"/", "/?namespace=secret", "/?name=other", "/?state=live", "/workers"}) {
    const Reply reply = GetAs(at(), viewer, list);
    EXPECT_EQ(reply.status, 200);
    EXPECT_THAT(reply.body, Not(HasSubstr(other))) << list;
    EXPECT_THAT(reply.body, Not(HasSubstr("/jobs/another"))) << list;
  }
  EXPECT_THAT(GetAs(at(), viewer, "/workers").body, HasSubstr("another namespace"));
  EXPECT_THAT(GetAs(at(), viewer, "/?namespace=secret").body, HasSubstr("There are no such jobs"));
  // As a job that never was, but for its name.
  Reply there = GetAs(at(), viewer, "/jobs/" + other);
  Reply nowhere = GetAs(at(), viewer, "/jobs/j-0000000000");
  EXPECT_EQ(there.status, 404);
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_EQ(absl::StrReplaceAll(there.body, {{other, "ID"}}),
            absl::StrReplaceAll(nowhere.body, {{"j-0000000000", "ID"}}));
  EXPECT_EQ(GetAs(at(), viewer, "/jobs/" + mine).status, 200);
  EXPECT_THAT(GetAs(at(), all, "/").body, HasSubstr(other));
  EXPECT_EQ(GetAs(at(), all, "/jobs/" + other).status, 200);
  EXPECT_THAT(GetAs(at(), all, "/?namespace=secret").body, Not(HasSubstr(mine)));
  EXPECT_THAT(GetAs(at(), all, "/workers").body, HasSubstr(other));
  EXPECT_EQ(GetAs(at(), all, "/nonsense").status, 404);
}

TEST_F(SiteTest, ARevokedTokenEndsAtOnce) {
  const Granted alice = Grant("alice", v1::ROLE_ADMIN);
  EXPECT_EQ(GetAs(at(), alice.token, "/").status, 200);
  Revoke(alice.id);
  const Reply reply = GetAs(at(), alice.token, "/");
  EXPECT_EQ(reply.status, 401);
  EXPECT_THAT(reply.body, HasSubstr("was revoked"));
  EXPECT_THAT(reply.body, Not(HasSubstr("http-equiv"))) << "a page that asks again and again";
}

TEST_F(SiteTest, OtherSitesPagesNeitherLogInNorOut) {
  for (const char* header :
       {"Origin: https://evil.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\nOrigin: http://localhost:80\r\n"}) {
    const Reply in = LogIn(Local(), header);
    EXPECT_EQ(in.status, 403) << header;
    EXPECT_EQ(in.Header("set-cookie"), "");
    const Reply out = Ask(at(), PostText("/logout", "", CookieLine(Local()) + header));
    EXPECT_EQ(out.status, 403) << header;
    EXPECT_EQ(out.Header("set-cookie"), "");
  }
  EXPECT_EQ(LogIn(Local(), "Origin: http://localhost:80\r\nSec-Fetch-Site: same-origin\r\n").status,
            303);
}

// A link in a chat opens the page, although the browser leaves the cookie out at first.
TEST_F(SiteTest, WhoFollowsALinkIsAskedToComeAgainWithTheCookie) {
  const std::string once = "<meta http-equiv=\"refresh\" content=\"0\">";
  EXPECT_THAT(Ask(at(), GetText("/", "Sec-Fetch-Site: cross-site\r\n")).body, HasSubstr(once));
  EXPECT_THAT(Ask(at(), GetText("/", "Sec-Fetch-Site: same-origin\r\n")).body,
              Not(HasSubstr("http-equiv")));
}

TEST_F(SiteTest, EveryAnswerHasThePolicyAndNothingElseIsAllowed) {
  std::vector<Reply> replies;
  for (const char* path : {"/", "/workers", "/jobs/x", "/nonsense", "/style.css", "/login"}) {
    replies.push_back(GetAs(at(), Local(), path));
    replies.push_back(Ask(at(), GetText(path)));
    EXPECT_EQ(Ask(at(), PostText(path, "a=b", CookieLine(Local()))).status,
              path == std::string("/login") ? 401 : 405)
        << path;
  }
  replies.push_back(LogIn(Local()));
  replies.push_back(LogIn("x"));
  replies.push_back(Ask(at(), GetText("/logout", CookieLine(Local()))));
  EXPECT_EQ(replies.back().status, 405);
  for (const Reply& reply : replies) {
    EXPECT_EQ(reply.Header("content-security-policy"),
              "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; "
              "base-uri 'none'");
    EXPECT_EQ(reply.Header("x-content-type-options"), "nosniff");
    EXPECT_EQ(reply.Header("referrer-policy"), "same-origin");
    EXPECT_NE(reply.Header("cache-control"), "");
    // What the policy forbids would not be seen.
    EXPECT_THAT(reply.body, Not(HasSubstr("style=")));
    EXPECT_THAT(reply.body, Not(HasSubstr("<script")));
    EXPECT_THAT(reply.body, Not(HasSubstr("http:")));
    EXPECT_THAT(reply.body, Not(HasSubstr("https:")));
  }
  EXPECT_EQ(GetAs(at(), Local(), "/").Header("cache-control"), "no-store");
}

TEST_F(SiteTest, MetricsAreOpenOnLoopbackAndTakeNoForm) {
  const Reply reply = Ask(at(), GetText("/metrics"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_THAT(reply.body, HasSubstr("trainyard_build_info"));
  EXPECT_EQ(Ask(at(), PostText("/metrics", "a=b")).status, 405);
}

TEST_F(SiteTest, WhatSomebodyTypedIsShownAndNotRun) {
  const auto worker =
      std::make_unique<ScriptedWorker>(channel_, "w-1", 1, std::vector<v1::RankStatus>(),
                                       std::vector<std::string>(), [](v1::Register& message) {
                                         message.set_hostname(kHostile);
                                         message.set_version(kHostile);
                                         message.mutable_devices(0)->set_model(kHostile);
                                       });
  v1::JobSpec spec = Spec(1, "/runs/'><script>");
  (*spec.mutable_labels())["why"] = kHostile;
  const std::string job = MustSubmit(spec);
  worker->AwaitStart();
  worker->Say(job, 1, 0, v1::RANK_STATE_STARTING);
  worker->Say(job, 1, 0, v1::RANK_STATE_READY);
  worker->Step(job, 1, 0, 1);
  worker->Save(job, 1, 1, kHostile);
  v1::ConnectRequest log;
  log.mutable_log()->set_job_id(job);
  for (const char* text : {kHostile, "\x1b[31mred"}) {
    auto* line = log.mutable_log()->add_lines();
    line->set_epoch(1);
    line->set_text(text);
  }
  worker->Send(log, false);
  v1::CancelJobRequest cancel;
  cancel.set_job_id(job);
  cancel.set_reason(kHostile);
  v1::CancelJobResponse cancelled;
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->CancelJob(&context, cancel, &cancelled).ok());
  worker->AwaitAck();
  const std::string page = "/jobs/" + job;
  ASSERT_TRUE(testing::WaitUntil(
      [&] { return absl::StrContains(GetAs(at(), Local(), page).body, "[31mred"); }));
  for (const std::string& path :
       {page, std::string("/"), std::string("/workers"),
        std::string("/?name=%22%3E%3Cscript%3E&state="), std::string("/?state=%22%3E%3Cscript%3E"),
        std::string("/?page=%22%3E%3Cscript%3E"), page + "?rank=%22%3E%3Cscript%3E",
        page + "?%22%3E%3Cscript%3E=1", std::string("/jobs/%22%3E%3Cscript%3E"),
        std::string("/%22%3E%3Cscript%3E")}) {
    for (const std::string& token : {Local(), std::string()}) {
      const std::string body = GetAs(at(), token, path).body;
      EXPECT_THAT(body, HasSubstr("</html>")) << path;
      EXPECT_THAT(body, Not(HasSubstr("<script"))) << path;
      EXPECT_THAT(body, Not(HasSubstr("<img"))) << path;
      EXPECT_THAT(body, Not(HasSubstr("\x1b"))) << path;
    }
  }
  const std::string body = GetAs(at(), Local(), page).body;
  size_t shown = 0;
  for (size_t at = 0; (at = body.find(kHarmless, at)) != std::string::npos; ++at) ++shown;
  EXPECT_GE(shown, 4u) << "rank's host, checkpoint, log, event";
  EXPECT_THAT(GetAs(at(), Local(), "/workers").body, HasSubstr(kHarmless));
}

TEST_F(SiteTest, AJobsPageNamesTheBestCheckpoint) {
  const auto worker = Worker("w-1", 1);
  const std::string job = MustSubmit(Spec(1, "runs/a"));
  worker->AwaitStart();
  worker->Say(job, 1, 0, v1::RANK_STATE_READY);
  v1::ConnectRequest saved;
  v1::CheckpointReport& report = *saved.mutable_checkpoint();
  report.set_job_id(job);
  report.mutable_checkpoint()->set_epoch(1);
  report.mutable_checkpoint()->set_step(6);
  report.mutable_best()->set_epoch(1);
  report.mutable_best()->set_step(4);
  report.mutable_best()->set_validation_loss(1.25);
  worker->Send(saved);
  worker->AwaitAck();
  EXPECT_TRUE(testing::WaitUntil([&] {
    return absl::StrContains(GetAs(at(), Local(), "/jobs/" + job).body,
                             "The best one by validation loss is that of step 4: 1.25");
  }));
}

// Bug it must catch: an attempt that has gone back shows the loss of the dead one until its first
// step, on the job's page and in the list.
TEST_F(SiteTest, AJobThatHasGoneBackShowsADashForItsLoss) {
  const auto worker = Worker("w-1", 1);
  const std::string job = MustSubmit(Spec(1, "runs/a"));
  worker->AwaitStart();
  worker->Say(job, 1, 0, v1::RANK_STATE_READY);
  for (uint64_t step = 1; step <= 5; ++step) worker->Step(job, 1, 0, step);
  worker->Exit(job, 1, 0, v1::EXIT_CAUSE_SIGNAL, 9);
  worker->AwaitStart();
  v1::ConnectRequest ready;
  *ready.mutable_rank_status() = ScriptedWorker::Status(job, 2, 0, v1::RANK_STATE_READY);
  ready.mutable_rank_status()->set_resumed_step(2);
  worker->Send(ready);
  worker->AwaitAck();
  const auto shows = [&](const std::string& path, const std::string& text) {
    return testing::WaitUntil(
        [&] { return absl::StrContains(GetAs(at(), Local(), path).body, text); });
  };
  EXPECT_TRUE(shows("/jobs/" + job, "<dt>Step</dt><dd>2 / 10</dd>"));
  EXPECT_TRUE(shows("/jobs/" + job, absl::StrCat("<dt>Loss</dt><dd>", kUnknown, "</dd>")));
  EXPECT_TRUE(shows("/", absl::StrCat("data-is=\"Loss\">", kUnknown, "</td>")));
  EXPECT_TRUE(shows("/", absl::StrCat("data-is=\"Tokens/s\">", kUnknown, "</td>")));
  worker->Step(job, 2, 0, 3);
  EXPECT_TRUE(shows("/jobs/" + job, "<dt>Loss</dt><dd>5.2</dd>"));
  EXPECT_TRUE(shows("/", "data-is=\"Tokens/s\">12.8k</td>"));
}

TEST_F(SiteTest, AJobIsDrawnWhileItRunsAndRestsWhenItHasEnded) {
  const auto worker = Worker("w-1", 1);
  v1::JobSpec spec = Spec();
  spec.mutable_validation()->set_every_steps(2);
  const std::string job = MustSubmit(spec), page = "/jobs/" + job;
  worker->AwaitStart();
  worker->Say(job, 1, 0, v1::RANK_STATE_STARTING);
  worker->Say(job, 1, 0, v1::RANK_STATE_READY);
  for (uint64_t step = 1; step <= 9; ++step) worker->Step(job, 1, 0, step);
  worker->AwaitAck();
  ASSERT_TRUE(testing::WaitUntil(
      [&] { return absl::StrContains(GetAs(at(), Local(), page).body, "9 / 10"); }));
  const std::string refresh = "<meta http-equiv=\"refresh\" content=\"5\">";
  Reply reply = GetAs(at(), Local(), page);
  EXPECT_EQ(reply.status, 200);
  EXPECT_THAT(reply.body, HasSubstr(refresh));
  EXPECT_THAT(reply.body, HasSubstr(">running</span>"));
  EXPECT_THAT(reply.body, HasSubstr("<b>Loss</b>"));
  EXPECT_THAT(reply.body, HasSubstr("<b>Tokens per second</b>"));
  EXPECT_THAT(reply.body, HasSubstr("backward <b>49.6 %</b>")) << "the largest phase";
  EXPECT_THAT(reply.body, HasSubstr("validation <b>5.0 %</b>"));
  EXPECT_THAT(reply.body, HasSubstr("host-w-1"));
  EXPECT_THAT(GetAs(at(), Local(), page + "?pause=1").body, Not(HasSubstr(refresh)));
  EXPECT_THAT(GetAs(at(), Local(), "/").body, HasSubstr(refresh));
  EXPECT_EQ(GetAs(at(), Local(), page + "?rank=all").status, 200);
  for (const char* rank : {"1", "-1", "x", "0x0", "99999999999"}) {
    EXPECT_EQ(GetAs(at(), Local(), page + "?rank=" + rank).status, 400) << rank;
  }
  worker->Step(job, 1, 0, 10);
  worker->Exit(job, 1, 0, v1::EXIT_CAUSE_COMPLETED);
  AwaitState(job, v1::JOB_STATE_SUCCEEDED);
  reply = GetAs(at(), Local(), page);
  EXPECT_THAT(reply.body, HasSubstr(">succeeded</span>"));
  EXPECT_THAT(reply.body, HasSubstr("<b>Loss</b>"));
  EXPECT_THAT(reply.body, Not(HasSubstr("http-equiv")));
  EXPECT_THAT(GetAs(at(), Local(), "/").body, Not(HasSubstr("http-equiv")));
}

}  // namespace
}  // namespace trainyard::controller
