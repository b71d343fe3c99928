#include "runtime/train/settings.h"

#include <gtest/gtest.h>

#include "runtime/train/signals.h"
#include "src/base/step_scalars.h"

namespace dc::runtime {
namespace {

plan::Plan clipped_plan() {
  plan::Plan plan;
  plan.optimizer.clip = true;
  plan.optimizer.clip_norm = 1;
  plan.optimizer.groups = {{"*", 1e-3, 0.1, 0.9, 0.95, 1e-8, 0, 0, false},
                           {"*norm*", 1e-3, 0.0, 0.9, 0.95, 1e-8, 0, 0, false},
                           {"*embed*", 5e-3, 0.1, 0.9, 0.95, 1e-8, 0, 0, false}};
  return plan;
}

base::Result<train::RunSettings> with(const std::string& json, std::optional<double> lr = {}) {
  auto document = base::parse_json_value(json, "train.json");
  EXPECT_TRUE(document.ok());
  auto config = base::parse_train_config(*document);
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return train::run_settings(clipped_plan(), *config, lr);
}

TEST(Settings, TheLearningRateReachesGroupsThatInheritIt) {
  auto settings = with(R"({"optimizer": {"lr": 2e-3, "weight_decay": 0.2}})");
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->optimizer.groups[0].lr, 2e-3);
  EXPECT_EQ(settings->optimizer.groups[1].lr, 2e-3);
  EXPECT_EQ(settings->optimizer.groups[2].lr, 5e-3);
  EXPECT_EQ(settings->optimizer.groups[1].weight_decay, 0);
  EXPECT_EQ(settings->optimizer.groups[2].weight_decay, 0.2);
  EXPECT_EQ(with(R"({"optimizer": {"lr": 2e-3}})", 4.0)->optimizer.groups[1].lr, 4.0);
}

TEST(Settings, NumbersThatAreNotFiniteAreRefused) {
  for (const char* text : {"nan", "inf", "1e39", "-nan"}) {
    const auto settings = with("{}", std::stod(text));
    ASSERT_FALSE(settings.ok()) << text;
    EXPECT_EQ(base::exit_code(settings.status().kind()), 78);
  }
  EXPECT_EQ(base::exit_code(with(R"({"loss_scale": 1e-300})").status().kind()), 78);
  for (const char* json : {R"({"optimizer": {"lr": 1e39}})", R"({"optimizer": {"lr": 1e999}})",
                           R"({"optimizer": {"weight_decay": 1e300}})", R"({"clip_norm": 1e99})"}) {
    auto document = base::parse_json_value(json, "train.json");
    EXPECT_FALSE(document.ok() && base::parse_train_config(*document).ok()) << json;
  }
}

TEST(Settings, WhatThePlanFixesCannotChange) {
  for (const char* json :
       {R"({"optimizer": {"kind": "sgd"}})", R"({"optimizer": {"betas": [0.9, 0.99]}})",
        R"({"clip_norm": null})", R"({"groups": [{"match": "*bias*"}]})",
        R"({"optimizer": {"eps": 1e-6}})"}) {
    const auto settings = with(json);
    ASSERT_FALSE(settings.ok()) << json;
    EXPECT_EQ(base::exit_code(settings.status().kind()), 78) << json;
  }
  EXPECT_TRUE(
      with(R"({"optimizer": {"kind": "adamw", "betas": [0.9, 0.95]}, "clip_norm": 2})").ok());
  EXPECT_FALSE(with(R"({"schedule": {"kind": "cosine"}})").ok());
}

TEST(Schedule, WarmsUpAndDecays) {
  plan::Optimizer optimizer;
  optimizer.warmup_steps = 4;
  optimizer.total_steps = 14;
  optimizer.final_lr_fraction = 0.1;
  EXPECT_EQ(train::lr_factor(optimizer, 1), 0.25);
  EXPECT_EQ(train::lr_factor(optimizer, 4), 1);
  EXPECT_EQ(train::lr_factor(optimizer, 100), 1);
  optimizer.schedule = plan::ScheduleKind::Linear;
  EXPECT_NEAR(train::lr_factor(optimizer, 9), 0.55, 1e-12);
  EXPECT_NEAR(train::lr_factor(optimizer, 50), 0.1, 1e-12);
  optimizer.schedule = plan::ScheduleKind::Cosine;
  EXPECT_NEAR(train::lr_factor(optimizer, 9), 0.55, 1e-12);
  EXPECT_NEAR(train::lr_factor(optimizer, 14), 0.1, 1e-12);
}

TEST(Schedule, FillsHyperparameters) {
  train::RunSettings settings;
  settings.optimizer = clipped_plan().optimizer;
  settings.loss_scale = 4;
  std::vector<double> hyperparameters(
      static_cast<size_t>(train::hyperparameter_count(settings.optimizer)), -1);
  train::fill_hyperparameters(settings, 3, 8, hyperparameters.data());
  EXPECT_EQ(hyperparameters[base::kHyperGradScale], 1.0 / 32);
  EXPECT_EQ(hyperparameters[base::kHyperLossDivisor], 8);
  EXPECT_EQ(hyperparameters[base::kHyperStep], 3);
  EXPECT_EQ(hyperparameters[base::kHyperGroups + 2 * base::kHyperPerGroup + base::kGroupLr], 5e-3);
  EXPECT_EQ(hyperparameters[base::kHyperGroups + base::kHyperPerGroup + base::kGroupWeightDecay],
            0);
}

TEST(Signals, ASecondRequestFromTheSameSideIsFinal) {
  EXPECT_FALSE((train::StopCounts{1, 1}.second()));  // a terminal and the launcher that forwards it
  EXPECT_TRUE((train::StopCounts{2, 0}.second()));
  EXPECT_TRUE((train::StopCounts{0, 2}.second()));
}

}  // namespace
}  // namespace dc::runtime
