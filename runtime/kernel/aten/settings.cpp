#include "runtime/kernel/aten/settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <condition_variable>
#include <mutex>

namespace dc::runtime::kernel::aten {
namespace {

std::mutex mutex;
std::condition_variable idle;
int holders = 0;
int position = -1;  // 0 off, 1 on, -1 never set

bool is_half(const plan::Plan& plan, int64_t tensor) {
  if (tensor < 0) return false;
  const base::DType dtype = plan.tensors[tensor].dtype;
  return dtype == base::DType::BF16 || dtype == base::DType::F16;
}

}  // namespace

void use_threads(int threads) {
  thread_local int current = 0;
  if (current == threads) return;
  at::set_num_threads(threads);
  current = threads;
}

bool wants_onednn(const plan::Plan& plan, const plan::Instruction& instruction) {
  if (instruction.op.find("conv") != std::string::npos) return true;
  for (const plan::Arg& arg : instruction.args) {
    if (arg.kind == plan::ArgKind::Tensor && is_half(plan, arg.i)) return true;
    if (arg.kind != plan::ArgKind::Tensors) continue;
    for (int64_t tensor : arg.ints) {
      if (is_half(plan, tensor)) return true;
    }
  }
  for (int32_t tensor : instruction.outputs) {
    if (is_half(plan, tensor)) return true;
  }
  return false;
}

OneDnnHold::OneDnnHold(bool on) {
  std::unique_lock<std::mutex> lock(mutex);
  if (position != (on ? 1 : 0)) {
    idle.wait(lock, [&] { return holders == 0 || position == (on ? 1 : 0); });
    if (position != (on ? 1 : 0)) {
      at::globalContext().setUserEnabledMkldnn(on);
      position = on ? 1 : 0;
    }
  }
  ++holders;
}

OneDnnHold::~OneDnnHold() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (--holders == 0) idle.notify_all();
}

}  // namespace dc::runtime::kernel::aten
