#include "runtime/exec/program_times.h"

#include <algorithm>

namespace dc::runtime::exec {
namespace {

constexpr size_t kInARow = 16;

}  // namespace

void ProgramTimes::write(device::Stream& compute) {
  if (written_ == stamps_.size()) stamps_.push_back(device_.make_timestamp());
  compute.write_timestamp(*stamps_[written_++]);
}

void ProgramTimes::begin(device::Stream& compute) {
  written_ = 0;
  instructions_.clear();
  write(compute);
}

void ProgramTimes::command_issued(device::Stream& compute, int32_t instruction) {
  if (of_ == Of::Program) return;
  instructions_.push_back(instruction);
  write(compute);
}

void ProgramTimes::end(device::Stream& compute) {
  const size_t count = of_ == Of::Program ? 1 : kInARow;
  for (size_t i = 0; i < count; ++i) write(compute);
}

base::Result<std::vector<int64_t>> ProgramTimes::read(size_t instructions) const {
  std::vector<int64_t> own;
  for (size_t i = written_ - kInARow; i < written_; ++i) {
    DC_ASSIGN_OR_RETURN(own.emplace_back(), interval(i));
  }
  const auto middle = own.begin() + kInARow / 2;
  std::nth_element(own.begin(), middle, own.end());
  std::vector<int64_t> times(instructions, 0);
  for (size_t i = 0; i < instructions_.size(); ++i) {
    DC_ASSIGN_OR_RETURN(const int64_t time, interval(i + 1));
    times[static_cast<size_t>(instructions_[i])] += std::max<int64_t>(time - *middle, 1);
  }
  return times;
}

}  // namespace dc::runtime::exec
