// Drives the fuzz target over mutations of good configurations from fixed seeds.
#include <gtest/gtest.h>

#include "tests/fuzz/mutation_runs.h"

namespace dc::base {
namespace {

const char* const kGood[] = {
    R"({"optimizer":{"kind":"adamw","lr":0.001,"betas":[0.9,0.95],"eps":1e-8,"weight_decay":0.1},
"groups":[{"match":"*weight","weight_decay":0.0},{"match":"layers.?.*","lr":1e-4}],"clip_norm":1.0,
"seed":7,"loss_scale":1024.0,"schedule":{"kind":"cosine","warmup":10,"steps":100,"final_lr_fraction":0.1}})",
    R"({"optimizer":{"kind":"sgd","lr":0.1,"momentum":0.9,"dampening":0,"nesterov":true},"clip_norm":null,
"schedule":{"kind":"linear","steps":5}})"};

TEST(ConfigFuzz, MutatedConfigurationsNeverCrash) {
  for (const char* good : kGood) fuzz::run_text_mutations(good, 5000);
}

}  // namespace
}  // namespace dc::base
