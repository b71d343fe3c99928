// What fuse-elementwise asks a profile for: the kernels that the plan then has.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "src/cost/cost_model.h"
#include "src/ir/kernel_signature.h"
#include "tests/passes/golden_file.h"
#include "tests/source_dir.h"

namespace dc::passes {
namespace {

// A profile that has every kernel, all fused ones faster than what they stand for.
class MeasuredAll final : public cost::CostModel {
 public:
  cost::Estimate collective(cost::Collective, base::Bytes, cost::Group) const override {
    return {};
  }
  cost::Estimate copy(base::Bytes, ir::Space, ir::Space) const override { return {}; }
  std::string origin() const override { return "all measured"; }
  bool was_asked_for(const base::KernelSignature& kernel) const {
    return asked_.contains(kernel.text());
  }

 private:
  cost::Estimate kernel_time(const base::KernelSignature& kernel) const override {
    asked_.insert(kernel.text());
    return {base::Nanos{kernel.provider() == base::Provider::Fused ? 1 : 10},
            cost::Source::Measured};
  }
  cost::Scratch kernel_scratch(const base::KernelSignature&) const override { return {}; }

  mutable std::set<std::string> asked_;
};

TEST(FuseElementwise, AsksAProfileForTheKernelsOfThePlan) {
  int kernels = 0;
  for (const std::filesystem::path& path :
       golden_files(std::filesystem::path(dc::kSourceDir) / "tests/passes/fuse-elementwise")) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    auto file = parse_golden(text.str());
    ASSERT_TRUE(file.ok()) << path << ": " << file.status().to_string();
    if (file->expectation == Expectation::Error) continue;
    for (const base::DeviceKind device : {base::DeviceKind::Cpu, base::DeviceKind::Cuda}) {
      auto step = ir::parse(file->input);
      ASSERT_TRUE(step.ok()) << path << ": " << step.status().to_string();
      auto passes = parse_passes(file->passes);
      ASSERT_TRUE(passes.ok());
      MeasuredAll cost;
      std::vector<Remark> remarks;
      file->options.device = device;
      PassContext context{cost, file->options, remarks};
      auto changed = run_passes(*step, *passes, context);
      ASSERT_TRUE(changed.ok()) << path << ": " << changed.status().to_string();
      for (const ir::Program& program : step->programs) {
        for (const ir::NodeId id : program.graph.order()) {
          const ir::Node& node = program.graph.node(id);
          if (node.kind != ir::OpKind::Fused) continue;
          const base::KernelSignature kernel = ir::signature_of(program.graph, node);
          EXPECT_TRUE(cost.was_asked_for(kernel)) << path << ": " << kernel.text();
          ++kernels;
        }
      }
    }
  }
  EXPECT_GT(kernels, 40);
}

}  // namespace
}  // namespace dc::passes
