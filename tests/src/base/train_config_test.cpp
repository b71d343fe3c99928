#include "src/base/train_config.h"

#include <gtest/gtest.h>

namespace dc::base {
namespace {

Result<TrainConfig> parse(const std::string& text) {
  DC_ASSIGN_OR_RETURN(const JsonValue value, parse_json_value(text, "train.json"));
  return parse_train_config(value);
}

TEST(TrainConfig, ReadsEverything) {
  auto config = parse(R"({"optimizer": {"kind": "adamw", "lr": 1e-3, "betas": [0.9, 0.95],
      "eps": 1e-8, "weight_decay": 0.1}, "groups": [{"match": "*norm*", "weight_decay": 0.0}],
      "clip_norm": 1.0, "seed": 7, "loss_scale": 2,
      "schedule": {"kind": "cosine", "warmup": 10, "steps": 100, "final_lr_fraction": 0.1}})");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->kind, OptimizerKind::AdamW);
  EXPECT_EQ(config->defaults.beta2, 0.95);
  ASSERT_EQ(config->groups->size(), 1u);
  EXPECT_EQ((*config->groups)[0].match, "*norm*");
  EXPECT_EQ((*config->groups)[0].values.weight_decay, 0.0);
  EXPECT_EQ(config->clip_norm, 1.0);
  EXPECT_EQ(config->seed, 7);
  EXPECT_EQ(config->schedule.kind, ScheduleKind::Cosine);
  EXPECT_TRUE(check_train_config(*config).ok());
}

TEST(TrainConfig, SilenceStaysSilent) {
  auto config = parse("{}");
  ASSERT_TRUE(config.ok());
  EXPECT_FALSE(config->kind || config->defaults.lr || config->groups || config->clip_norm);
  EXPECT_EQ(parse(R"({"clip_norm": null})")->clip_norm, 0.0);
}

TEST(TrainConfig, UnknownKeysAreErrors) {
  auto config = parse("{\n\"optimizer\": {\n\"weight_decy\": 0.1}}");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().kind(), ErrorKind::BadConfig);
  EXPECT_EQ(config.status().sentence(),
            "line 3: unknown key 'weight_decy' in 'optimizer'; did you mean 'weight_decay'?");
  EXPECT_FALSE(parse(R"({"sed": 1})").ok());
  EXPECT_FALSE(parse(R"({"groups": [{"match": "*", "l": 1}]})").ok());
  EXPECT_FALSE(parse(R"({"schedule": {"war": 1}})").ok());
}

TEST(TrainConfig, BadValuesAreErrors) {
  for (const char* text :
       {R"({"optimizer": {"lr": -1}})", R"({"optimizer": {"lr": "x"}})", R"([])",
        R"({"optimizer": {"betas": [0.9]}})", R"({"optimizer": {"betas": [0.9, 1.0]}})",
        R"({"optimizer": {"kind": "adam"}})", R"({"groups": {}})", R"({"groups": [{"lr": 1}]})",
        R"({"groups": [{"match": "a\\b"}]})", R"({"groups": [{"match": "a\\"}]})",
        R"({"seed": -1})", R"({"seed": 1.5})", R"({"loss_scale": 0})", R"({"clip_norm": -1})",
        R"({"schedule": {"final_lr_fraction": 2}})", R"({"optimizer": {"nesterov": 1}})"}) {
    auto config = parse(text);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_EQ(config.status().kind(), ErrorKind::BadConfig) << text;
  }
}

TEST(TrainConfig, ErrorsSayWhatIsInRange) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"optimizer": {"lr": -1}})", "'lr' is -1.0; give a number at least 0.0"},
      {R"({"optimizer": {"betas": [0.9, 1]}})",
       "'betas' is 1.0; give a number from 0.0 to 1.0 (1.0 excluded)"},
      {R"({"loss_scale": 0})", "'loss_scale' is 0.0; give a number above 0.0"},
      {R"({"clip_norm": 1e39})", "'clip_norm' is 1e+39; give a number that fits in float32"},
      {R"({"seed": -1})", "'seed' is -1; give a number at least 0"},
  };
  for (const auto& [text, sentence] : cases) {
    const auto config = parse(text);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_NE(config.status().sentence().find(sentence), std::string::npos)
        << config.status().sentence();
  }
}

TEST(TrainConfig, ContradictionsAreErrors) {
  for (const char* text :
       {R"({"optimizer": {"kind": "sgd", "betas": [0.9, 0.9]}})",
        R"({"optimizer": {"momentum": 0.9}})",
        R"({"optimizer": {"kind": "sgd", "nesterov": true}})",
        R"({"optimizer": {"kind": "sgd"}, "groups": [{"match": "*", "eps": 1}]})",
        R"({"schedule": {"kind": "linear", "warmup": 5, "steps": 5}})"}) {
    auto config = parse(text);
    ASSERT_TRUE(config.ok()) << text;
    EXPECT_EQ(check_train_config(*config).kind(), ErrorKind::BadConfig) << text;
  }
}

TEST(TrainConfig, UpperLayerWins) {
  const TrainConfig lower = *parse(R"({"optimizer": {"kind": "adamw", "lr": 1, "eps": 2},
      "groups": [{"match": "*"}], "clip_norm": 3, "seed": 4})");
  const TrainConfig same = merge(lower, *parse(R"({"optimizer": {"lr": 5}, "clip_norm": null})"));
  EXPECT_EQ(same.defaults.lr, 5);
  EXPECT_EQ(same.defaults.eps, 2);
  EXPECT_EQ(same.clip_norm, 0);
  EXPECT_EQ(same.seed, 4);
  EXPECT_TRUE(same.groups);
  const TrainConfig other = merge(lower, *parse(R"({"optimizer": {"kind": "sgd"}})"));
  EXPECT_FALSE(other.defaults.lr || other.defaults.eps || other.groups);
  EXPECT_EQ(other.clip_norm, 3);
  EXPECT_TRUE(check_train_config(other).ok());
}

}  // namespace
}  // namespace dc::base
