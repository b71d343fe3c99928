#include "runtime/report/kernel_shares.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/report/report_line.h"
#include "src/base/text.h"

namespace dc::runtime::report {
namespace {

using base::count_of;

constexpr size_t kMostNamed = 6;  // operators in the line for people

// "aten.mm.default (12), aten.silu.default (2) and 3 others", most kernels first.
std::string named(const std::map<std::string, int64_t>& operators) {
  std::vector<std::pair<std::string, int64_t>> list(operators.begin(), operators.end());
  std::ranges::stable_sort(list, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (size_t i = 0; i < std::min(list.size(), kMostNamed); ++i) {
    text += (i == 0 ? "" : ", ") + list[i].first + " (" + std::to_string(list[i].second) + ")";
  }
  if (list.size() <= kMostNamed) return text;
  return text + " and " + count_of(static_cast<int64_t>(list.size() - kMostNamed), "other");
}

}  // namespace

KernelShares kernel_shares(const plan::Plan& plan) {
  KernelShares shares;
  for (const plan::Program& program : plan.programs) {
    for (const plan::Instruction& in : program.instructions) {
      if (in.kind != plan::InstructionKind::Kernel) continue;
      ++shares.kernels[in.provider];
      if (in.provider == plan::Provider::Aten) ++shares.aten_operators[in.op];
    }
  }
  return shares;
}

std::string kernel_report(const plan::Plan& plan) {
  const KernelShares shares = kernel_shares(plan);
  int64_t all = 0;
  for (const auto& [provider, count] : shares.kernels) all += count;
  if (all == 0) return "";
  std::string text;
  for (const auto& [provider, count] : shares.kernels) {
    text += (text.empty() ? "" : ", ") + std::string(name(provider)) + " has " +
            std::to_string(count) + " of " + std::to_string(all) + " (" + percent(count, all) + ")";
  }
  text += shares.aten_operators.empty()
              ? "; libtorch is not needed"
              : "; libtorch is needed for " + named(shares.aten_operators);
  return report_line("kernels", text);
}

void write_kernels(base::JsonWriter& json, const plan::Plan& plan) {
  const KernelShares shares = kernel_shares(plan);
  json.key("kernels").begin_object();
  for (const auto& [provider, count] : shares.kernels) json.field(name(provider), count);
  json.key("aten_operators").begin_object();
  for (const auto& [op, count] : shares.aten_operators) json.field(op, count);
  json.end_object().end_object();
}

}  // namespace dc::runtime::report
