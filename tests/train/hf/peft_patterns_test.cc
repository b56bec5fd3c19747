// Proves that an expression of adapter_config.json names the layers that it names for PEFT, or is
// not read.
#include "train/hf/peft_patterns.h"

#include <string>

#include "gtest/gtest.h"

namespace trainyard::testing {
namespace {

// As re.match(rf"(.*\\.)?({key})$", layer) and re.fullmatch(expression, layer) of Python, which was
// asked what it says of these.
TEST(PeftPatterns, MatchAsThoseOfPeft) {
  const std::string layer = "model.layers.11.mlp.experts.gate_up_proj";
  const auto ends = [&](const char* key) {
    const auto pattern = PeftPattern::OfEnds(key);
    EXPECT_TRUE(pattern) << key;
    return pattern && pattern->Matches(layer);
  };
  for (const char* key : {"gate_up_proj",
                          "experts.gate_up_proj",
                          R"(.*\.gate_up_proj)",
                          "gate.up.*",
                          R"(^model\.layers\.11\.mlp\.experts\.gate_up_proj)",
                          "^.*",
                          "^.*proj$",
                          R"(layers\.1..*\.experts\..*)",
                          "experts.*",
                          "mlp.*gate_up_proj",
                          "gate_up_proj|down_proj",
                          "(?:gate_up|down)_proj",
                          R"(layers\.(?:0|11)\..*)",
                          R"(layers\.[0-9]+\.mlp.*)",
                          R"(\d+\..*)",
                          R"(layers\.\d{2}\..*?proj)",
                          "(gate_)?up_proj",
                          "(q|gate_up)_proj$",
                          "[^.]*",
                          R"(1*\.mlp\..*)",
                          R"(layers.{3}\S*)"}) {
    EXPECT_TRUE(ends(key)) << key;
  }
  for (const char* key :
       {"up_proj", "ate_up_proj", "experts", "^gate_up_proj", R"(.*\.up_proj)", R"(gate\.up_proj)",
        "layers.1.mlp.*", "", "mlp.*gate_up_pro", "(?:up|down)_proj", R"(layers\.[0-9]\.mlp.*)",
        "[^.]*_up", R"(\d+)", R"(layers\.\d{3,}\..*)", "gate_up_proj_?x", "[a-m]*",
        R"(gate_up_proj\$)"}) {
    EXPECT_FALSE(ends(key)) << key;
  }
  const auto whole = [&](const char* expression) {
    const auto pattern = PeftPattern::OfWholes(expression);
    EXPECT_TRUE(pattern) << expression;
    return pattern && pattern->Matches(layer);
  };
  for (const char* expression :
       {".*gate_up_proj", R"(model\.layers\.\d+\..*)", R"(.*\.(q_proj|gate_up_proj))", "^model.*$",
        R"((?:model\.)?layers.*|model\.layers\.1.*)",
        R"(.*\.layers\.(1|11)\.(?:mlp|self_attn)\..*_proj)"}) {
    EXPECT_TRUE(whole(expression)) << expression;
  }
  for (const char* expression : {"gate_up_proj", "experts.gate_up_proj", R"(.*\.up_proj)",
                                 R"(model\.layers\.\d\..*)", "layers.*"}) {
    EXPECT_FALSE(whole(expression)) << expression;
  }
}

// Bug it must catch: an expression that means something else in Python names other layers.
TEST(PeftPatterns, DoNotReadWhatMeansSomethingElseInPython) {
  for (const char* expression : {R"(\bgate)", R"(\w+)", "(a|b)+", "a$b", "a^", R"(a\)", "(?=a).*",
                                 "(?!a).*", ".*+", "a{2}{3}", "[[a]]", "[a&&b]", R"((a)\1)",
                                 "(?P<x>a)", R"(\p{L})", R"(\P{L})", R"(\x{41})", "^(?i)a"}) {
    EXPECT_FALSE(PeftPattern::OfEnds(expression)) << expression;
    EXPECT_FALSE(PeftPattern::OfWholes(expression)) << expression;
  }
  EXPECT_FALSE(PeftPattern::OfEnds("^a|b")) << "b need not stand at the beginning";
  EXPECT_TRUE(PeftPattern::OfWholes("^a|b"));
  EXPECT_FALSE(PeftPattern::OfEnds("(?i)a")) << "PEFT puts something before it";
  EXPECT_TRUE(PeftPattern::OfWholes("(?i)a"));
}

}  // namespace
}  // namespace trainyard::testing
