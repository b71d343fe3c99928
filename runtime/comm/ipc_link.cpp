#include "runtime/comm/ipc_link.h"

#include <algorithm>

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Status;

constexpr Operation kOperations[] = {Operation::AllGather, Operation::ReduceScatter,
                                     Operation::AllReduce};

bool is_behind(uint32_t number, uint32_t other) { return static_cast<int32_t>(number - other) < 0; }

}  // namespace

Status IpcLink::begin(Operation operation, device::CudaStream& stream) {
  const auto kind = static_cast<uint32_t>(std::ranges::find(kOperations, operation) - kOperations);
  const uint32_t count = (issued_.load() >> kCountShift) + 1;
  // Before the first barrier of the collective.
  issued_.store((count << kCountShift) + (kind << kKindShift) - 1);
  return meet(stream);
}

Status IpcLink::meet(device::CudaStream& stream) {
  DC_RETURN_IF_ERROR(failure());
  DC_RETURN_IF_ERROR(stream.failure());
  const uint32_t number = issued_.load() + 1;
  issued_.store(number);
  const int own = members_.own();
  for (const int rank : members_.ranks) stream.write(page_.number(place_, rank, own), number);
  for (const int rank : members_.ranks) {
    if (rank != own) stream.wait_for(page_.number(place_, own, rank), number);
  }
  return stream.failure();
}

void IpcLink::fail(Status why) {
  {
    const std::lock_guard lock(mutex_);
    const bool explains = !failure_.ok() && why.kind() == ErrorKind::PeerDied &&
                          failure_.kind() != ErrorKind::PeerDied;
    if (failure_.ok() || explains) failure_ = std::move(why);
  }
  // Before streams that go on tell peers that this rank has come.
  page_.set_state(members_.own(), IpcState::GaveUp);
  release();
}

Status IpcLink::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool IpcLink::is_given_up() const {
  return std::ranges::any_of(members_.ranks, [&](int rank) {
    return rank != members_.own() && page_.state(rank) == IpcState::GaveUp;
  });
}

void IpcLink::release() const {
  const uint32_t issued = issued_.load();
  for (const int rank : members_.ranks) {
    if (rank == members_.own()) continue;
    std::atomic_ref number(*page_.number(place_, members_.own(), rank));
    if (is_behind(number.load(), issued)) number.store(issued);
  }
}

std::vector<int> IpcLink::missing() const {
  const uint32_t here = arrived();
  std::vector<int> ranks;
  std::ranges::copy_if(members_.ranks, std::back_inserter(ranks),
                       [&](int rank) { return is_behind(read(rank), here); });
  return ranks;
}

Operation IpcLink::operation(uint32_t number) {
  return kOperations[std::min((number >> kKindShift) & kKinds, 2U)];
}

}  // namespace dc::runtime::comm
