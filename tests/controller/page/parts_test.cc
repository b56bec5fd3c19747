// Proves what the pages are made of: nothing that somebody typed becomes markup, charts hold
// whatever numbers come, and what a browser sends is read as it was meant.

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "controller/page/browser.h"
#include "controller/page/chart.h"
#include "controller/page/html.h"
#include "controller/page/views.h"
#include "controller/page/words.h"

namespace trainyard::controller {
namespace {

using ::testing::ElementsAre;
using testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(absl::string_view text) { return (Html() << text).text(); }

TEST(Html, TextIsEscapedAndMarkupIsNot) {
  Html html;
  html << "<a title=\""_html
       << "\"><script>alert('&')</script>"
       << "\">"_html << 42 << "</a>"_html;
  EXPECT_EQ(html.text(),
            "<a title=\"&quot;&gt;&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;\">42</a>");
  // A literal without the suffix is text like any other.
  EXPECT_EQ((Html() << "<b>").text(), "&lt;b&gt;");
  EXPECT_EQ((Html() << html << Html()).text(), html.text());
}

TEST(Html, WhatIsNoTextIsShownAsSuch) {
  EXPECT_EQ(Text(std::string("a\0b\x1b[31m", 8)), "a\\x00b\\x1b[31m");
  EXPECT_EQ(Text("\xc3\x28\xff"), "?(?");
  EXPECT_EQ(Text("\xc0\xbc"
                 "script"),
            "??script")
      << "an overlong '<'";
  EXPECT_EQ(Text("Zürich\tund\nBern"), "Zürich\tund\nBern");
}

TEST(Html, AValueOfAQueryStaysOne) {
  EXPECT_EQ(UrlValue("a b&c=d#\"'<>%+/\xc3\xbc"), "a%20b%26c%3Dd%23%22%27%3C%3E%25%2B%2F%C3%BC");
  EXPECT_EQ(UrlValue("j-6aewpgm800"), "j-6aewpgm800");
}

TEST(Chart, TicksAreRoundAndEncloseTheRange) {
  EXPECT_THAT(Ticks(0, 1), ElementsAre(0, 0.25, 0.5, 0.75, 1));
  EXPECT_THAT(Ticks(0, 13'400), ElementsAre(0, 5'000, 10'000, 15'000));
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{1.271, 5.503},
                                                                        {-3, 1e-3},
                                                                        {5, 5},
                                                                        {0, 0},
                                                                        {-2, -2},
                                                                        {1e-30, 2e-30},
                                                                        {1e300, 1.5e300},
                                                                        {0.1, 0.1000001}}) {
    const std::vector<double> ticks = Ticks(low, high);
    ASSERT_GE(ticks.size(), 2u) << low;
    EXPECT_LE(ticks.size(), 7u) << low;
    EXPECT_LE(ticks.front(), low);
    EXPECT_GE(ticks.back(), high);
  }
}

TEST(Chart, GapsAreGapsAndNoNumberIsInfinite) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Chart chart{.title = "<Loss>",
              .note = "\"x\"",
              .curves = {{"training", {{1, 4}, {2, kNan}, {3, 2}, {4, kInfinity}, {5, 0}}},
                         {"validation", {{3, 3}}, true}}};
  const std::string svg = Draw(chart).text();
  EXPECT_THAT(svg, HasSubstr("d=\"M0.0 0.0M500.0 200.0M1000.0 400.0\""));
  EXPECT_THAT(svg, HasSubstr("d=\"M500.0 100.0h0\"")) << "a point alone is seen";
  EXPECT_THAT(svg, HasSubstr("&lt;Loss&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  chart.curves = {{"training", {{1, kNan}, {2, kInfinity}}}};
  EXPECT_TRUE(Draw(chart).empty());
  EXPECT_TRUE(Draw({.title = "none", .note = "", .curves = {}}).empty());
  EXPECT_THAT(Draw({.title = "one", .note = "", .curves = {{"x", {{7, 7}}}}}).text(),
              HasSubstr("M500.0 200.0h0"));
}

// Bug it must catch: what the phases leave of a step's seconds is not shown, so that a job whose
// devices wait for the host looks busy.
TEST(PhasesOf, ShowsTheHostsTimeBetweenSteps) {
  JobStep step;
  step.seconds = 2;
  step.phases.forward = 0.5;
  EXPECT_THAT(PhasesOf({step}).text(), HasSubstr("host <b>75.0 %</b>"));
  step.phases.backward = 1.75;  // Longer than the step, by the clock of another device.
  EXPECT_THAT(PhasesOf({step}).text(), Not(HasSubstr("host")));
}

// Bug it must catch: the seconds of validation are nowhere, and a job that mostly validates looks
// as if it trained.
TEST(PhasesOf, ShowsTheTimeOfValidation) {
  JobStep step;
  step.seconds = step.phases.forward = 1;
  step.phases.validation = 3;
  EXPECT_THAT(PhasesOf({step}).text(), HasSubstr("validation <b>75.0 %</b>"));
}

TEST(GeneratedOf, ShowsWhatTheModelWroteLast) {
  JobStep first, last;
  first.generated = {{"a", "b"}};
  last.step = 40;
  last.generated = {{"<1>", "&2"}, {"3", ""}};
  const std::string text = GeneratedOf({first, last}).text();
  EXPECT_THAT(text, HasSubstr("After step 40"));
  EXPECT_THAT(text, HasSubstr("<pre><b>&lt;1&gt;</b>&amp;2</pre><pre><b>3</b></pre>"));
  EXPECT_TRUE(GeneratedOf({first, {}}).empty());
  EXPECT_TRUE(GeneratedOf({}).empty());
}

// Bug it must catch: beside the attempt stands what a peer saw of its end, and not its cause.
TEST(AttemptsOf, NameTheCauseAsTheJobDoes) {
  Job job;
  job.epoch = 2;
  const absl::Time time = absl::FromUnixSeconds(1'700'000'000);
  const std::vector<EventRecord> events = {
      {time, EventType::kPlaced, 1, "2 ranks on w"},
      {time, EventType::kRankExited, 1, "rank 0 lost a peer: connection closed"},
      {time, EventType::kRecovering, 1, "rank 0 lost a peer: connection closed; no checkpoint"},
      {time, EventType::kRankExited, 1, "rank 1 was killed by signal 9"},
      {time, EventType::kRecovering, 1, "rank 1 was killed by signal 9 (rank 0 lost a peer)"},
      {time, EventType::kRankExited, 1, "rank 2 lost a peer: connection closed"},
      {time, EventType::kPlaced, 2, "2 ranks on w"},
      {time, EventType::kRunning, 2, "every rank is ready"},
      {time, EventType::kCheckpointed, 2, "step 5"}};
  const std::string text = AttemptsOf(job, events).text();
  const std::string attempts = text.substr(0, text.find("<h2>Events</h2>"));
  EXPECT_THAT(attempts, HasSubstr("<td>recovering</td><td>rank 1 was killed by signal 9 (rank 0"));
  EXPECT_THAT(attempts, Not(HasSubstr("connection closed")));
  EXPECT_THAT(attempts, HasSubstr("<td>running</td><td>every rank is ready</td>"));
  EXPECT_THAT(text, HasSubstr("rank 2 lost a peer: connection closed")) << "among the events";
}

TEST(Words, MarkAnMfuThatCannotBe) {
  EXPECT_EQ(MfuWords(1.0, 5e9), "100.0 %");
  EXPECT_EQ(MfuWords(std::nullopt, 5e9), kUnknown);
  EXPECT_EQ(MfuWords(1.5, 0), "150.0 %: the devices' peak is too low");
  EXPECT_EQ(MfuWords(1.5, 5e9), "150.0 %: the devices' peak of 5G FLOP/s is too low");
}

// Bug it must catch: while no attempt trains, the step of the dead one looks like progress.
TEST(Words, SayWhatAStepIsThatNoAttemptTrains) {
  Job job;
  JobFacts facts;
  facts.steps = 200;
  job.spec = std::make_shared<const Spec>(Spec{"", "", facts});
  job.epoch = 1;
  job.progress.step = 57;
  job.state = JobState::kRunning;
  EXPECT_EQ(StepWords(job), "57 / 200");
  job.state = JobState::kRecovering;
  EXPECT_EQ(StepWords(job), "57 / 200, reached by attempt 1");
  job.state = JobState::kStarting;
  job.epoch = 2;
  EXPECT_EQ(StepWords(job), "57 / 200, reached before attempt 2");
  job.resumed_step = job.progress.step = 40;
  EXPECT_EQ(StepWords(job), "40 / 200, where attempt 2 goes on");
}

TEST(Words, AreThoseOfPeople) {
  EXPECT_EQ(BytesWords(0), "0 B");
  EXPECT_EQ(BytesWords(1536), "1.5 KiB");
  EXPECT_EQ(BytesWords(1023), "0.999 KiB");
  EXPECT_EQ(BytesWords(80ull << 30), "80 GiB");
  EXPECT_EQ(DurationWords(absl::Seconds(80)), "1 min 20 s");
  EXPECT_EQ(DurationWords(absl::Hours(51)), "2 d 03 h");
  EXPECT_EQ(DurationWords(-absl::Seconds(1)), kUnknown);
  EXPECT_EQ(DurationWords(absl::InfiniteDuration()), kUnknown);
  EXPECT_EQ(PercentWords(0.345), "34.5 %");
  EXPECT_EQ(PercentWords(std::nullopt), kUnknown);
  EXPECT_EQ(NumberWords(NAN), kUnknown);
  EXPECT_EQ(NumberWords(std::nullopt), kUnknown);
  EXPECT_EQ(NumberWords(0.0), "0");
  EXPECT_EQ(Plural(1, "rank"), "1 rank");
  EXPECT_EQ(Plural(0, "rank"), "0 ranks");
  const absl::Time time = absl::FromUnixSeconds(1'700'000'000);
  EXPECT_EQ(AgeWords(time, time + absl::Minutes(3)).text(),
            "<time title=\"2023-11-14 22:13:20 UTC\">3 min ago</time>");
  // The clock of a worker may be ahead.
  EXPECT_THAT(AgeWords(time, time - absl::Hours(3)).text(), HasSubstr(">0 s ago<"));
}

HttpRequest Request(const std::map<std::string, std::string>& headers, bool tls = false) {
  return {.method = "GET", .path = "/", .query = {}, .headers = headers, .tls = tls};
}

TEST(Browser, FormsAreDecoded) {
  EXPECT_THAT(ParseForm("token=ty_1&next=%2Fjobs%2Fj-1%3Fa%3Db&x=a+b&token=2"),
              Eq(std::map<std::string, std::string>{
                  {"token", "ty_1"}, {"next", "/jobs/j-1?a=b"}, {"x", "a b"}}));
  EXPECT_THAT(ParseForm("a%=1&b=%4&c=%zz&=&d"),
              Eq(std::map<std::string, std::string>{
                  {"a%", "1"}, {"b", "%4"}, {"c", "%zz"}, {"", ""}, {"d", ""}}));
}

TEST(Browser, TheCookieIsFoundAmongOthers) {
  const std::string cookies = "a=b; xtrainyard-81=no; trainyard-80=other;  trainyard-81=mine; c=d";
  EXPECT_EQ(TokenOf(Request({{"host", "127.0.0.1:81"}, {"cookie", cookies}})), "mine");
  EXPECT_EQ(TokenOf(Request({{"host", "127.0.0.1:82"}, {"cookie", cookies}})), "");
  EXPECT_EQ(TokenOf(Request({{"host", "h:81"}, {"cookie", cookies}}, true)), "")
      << "what was set without TLS is not believed with it";
  EXPECT_EQ(TokenOf(Request({{"host", "h:81"}})), "");
  EXPECT_EQ(TokenOf(Request({{"cookie", "__Host-trainyard=t"}}, true)), "t");
}

TEST(Browser, TheCookieIsForThisPageAlone) {
  EXPECT_EQ(CookieFor(Request({{"host", "127.0.0.1:81"}}), "ty_1"),
            "trainyard-81=ty_1; Path=/; HttpOnly; SameSite=Strict");
  EXPECT_EQ(CookieFor(Request({{"host", "h:81"}}, true), "ty_1"),
            "__Host-trainyard=ty_1; Path=/; HttpOnly; SameSite=Strict; Secure");
  EXPECT_EQ(CookieFor(Request({{"host", "h"}}, true), ""),
            "__Host-trainyard=; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=0");
  EXPECT_EQ(CookieFor(Request({{"host", "h:8;x\r\ny"}}), "t").find("trainyard-=t"), 0u)
      << "the name of a cookie has what the client says in it";
}

TEST(Browser, AnotherSitesRequestIsKnown) {
  const auto elsewhere = [](const std::map<std::string, std::string>& headers) {
    std::map<std::string, std::string> all = headers;
    all["host"] = "train.example:9464";
    return ComesFromElsewhere(Request(all));
  };
  EXPECT_FALSE(elsewhere({}));
  EXPECT_FALSE(elsewhere({{"origin", "https://train.example:9464"}}));
  EXPECT_FALSE(
      elsewhere({{"origin", "http://train.example:9464"}, {"sec-fetch-site", "same-origin"}}));
  for (const char* origin : {"null", "https://evil.example", "https://train.example",
                             "https://train.example:9464.evil.example", "train.example:9464"}) {
    EXPECT_TRUE(elsewhere({{"origin", origin}})) << origin;
    EXPECT_TRUE(elsewhere({{"origin", origin}, {"sec-fetch-site", "same-origin"}})) << origin;
  }
  for (const char* site : {"cross-site", "same-site", "none"}) {
    EXPECT_TRUE(elsewhere({{"sec-fetch-site", site}})) << site;
  }
}

TEST(Browser, ALoginGoesOnWithinThisSite) {
  EXPECT_EQ(OwnPath("/jobs/j-1?rank=3&x=%2F"), "/jobs/j-1?rank=3&x=%2F");
  for (const char* path : {"", "jobs", "//evil.example", "/\\evil.example", "https://evil.example",
                           "/a\r\nSet-Cookie: x=y", "/ü", "/a b", "\\/evil"}) {
    EXPECT_EQ(OwnPath(path), "/") << path;
  }
}

}  // namespace
}  // namespace trainyard::controller
