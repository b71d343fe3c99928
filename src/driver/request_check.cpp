#include "src/driver/request_check.h"

#include <algorithm>
#include <string>

namespace dc::driver {
namespace {

using base::ErrorKind;
using base::Status;
using ir::Space;

Status contradiction(const char* code, std::string what) {
  return Status(ErrorKind::BadConfig, code, std::move(what));
}

std::string quoted(Space space) { return std::string(base::name(space)); }

// Rates of a machine are of copies too.
Status check_copies(const profile::Profile& profile, Space to) {
  const base::Measurements& measured = profile.measurements;
  if (measured.rates) return {};
  const auto has = [&](Space from, Space there) {
    return std::any_of(measured.copies.begin(), measured.copies.end(),
                       [&](const base::CopyMeasurement& row) {
                         return row.from == base::name(from) && row.to == base::name(there);
                       });
  };
  if (has(Space::Device, to) && has(to, Space::Device)) return {};
  return contradiction("DC7034",
                       "--offload-space " + quoted(to) + ": the profile has no copies between " +
                           "device and " + quoted(to) + ", so what offloading costs is unknown; " +
                           (to == Space::Disk ? "measure them with dcc profile --offload-dir FOLDER"
                                              : "measure them with dcc profile") +
                           ", or leave out --offload-space");
}

Status check_budgets(const passes::Options& options) {
  const Space to = options.offload_space.value_or(Space::Host);
  for (const Space space : {Space::Host, Space::Disk}) {
    if (space == to || !options.budgets[space]) continue;
    return contradiction("DC7035", "--" + quoted(space) + "-memory limits what is offloaded to " +
                                       quoted(space) + ", but what leaves the device goes to " +
                                       quoted(to) + "; take it out, or give --offload-space " +
                                       quoted(space));
  }
  return {};
}

Status check_hosts(const CompileOptions& options) {
  const int each = options.passes.ranks_per_host.value_or(options.world);
  if (each >= options.world || options.world % each == 0) return {};
  return contradiction("DC7036", "--ranks-per-host " + std::to_string(each) +
                                     " contradicts --world " + std::to_string(options.world) +
                                     ": " + std::to_string(options.world) + " ranks do not stand " +
                                     std::to_string(each) +
                                     " on each host; give another of the two");
}

}  // namespace

Status check_request(const CompileRequest& request) {
  DC_RETURN_IF_ERROR(check(request.options));
  DC_RETURN_IF_ERROR(check_hosts(request.options));
  return check_spaces(request);
}

Status check_spaces(const CompileRequest& request) {
  DC_RETURN_IF_ERROR(check_budgets(request.options.passes));
  const std::optional<Space>& to = request.options.passes.offload_space;
  return request.profile && to ? check_copies(*request.profile, *to) : Status();
}

}  // namespace dc::driver
