#include "runtime/comm/ipc_communicator.h"

namespace dc::runtime::comm {

using base::Status;
using device::CudaStream;

IpcCommunicator::IpcCommunicator(std::shared_ptr<IpcRank> shared, Members members, int place,
                                 const std::vector<int>& hosts)
    : shared_(std::move(shared)),
      link_(shared_->memory, shared_->page, std::move(members), place),
      traffic_(on_other_hosts(link_.members(), hosts)) {
  shared_->watcher->add(link_);
}

Status IpcCommunicator::begin(Operation operation, std::span<const CollectiveBuffer> buffers,
                              CudaStream& stream) {
  DC_RETURN_IF_ERROR(check_buffers(operation, buffers, members().index, size()));
  DC_RETURN_IF_ERROR(shared_->slabs.check(operation, buffers, members()));
  return link_.begin(operation, stream);
}

Status IpcCommunicator::end(Operation operation, std::span<const CollectiveBuffer> buffers,
                            CudaStream& stream) {
  DC_RETURN_IF_ERROR(link_.meet(stream));
  traffic_.add(operation, buffers, members().index, size());
  return base::ok_status();
}

// The ranks start at different peers so that they do not all read the same memory at once.
void IpcCommunicator::gather(const CollectiveBuffer& b, const Ref& from, base::DType dtype,
                             device::Stream& stream) const {
  const int64_t bytes = base::byte_size(dtype);
  for (int step = 1; step <= size(); ++step) {
    const int peer = (members().index + step) % size();
    std::byte* target = element(b.output.data, peer * b.shard, bytes);
    const std::byte* source = shared_->slabs.at_peer(from, members(), peer);
    const int64_t owned = owned_elements(b, peer);
    if (owned > 0 && target != source) stream.copy(target, source, owned * bytes);
  }
}

void IpcCommunicator::reduce(const CollectiveBuffer& b, float* sums, device::Stream& stream) {
  const int64_t owned = owned_elements(b, members().index);
  if (owned == 0) return;
  const int64_t start = members().index * b.shard * base::byte_size(b.dtype);
  std::array<const void*, kMostMappedRanks> inputs{};
  for (int peer = 0; peer < size(); ++peer)
    inputs[static_cast<size_t>(peer)] = shared_->slabs.at_peer(b.input, members(), peer) + start;
  const MappedContributions all{std::span(inputs).first(static_cast<size_t>(size())), b.dtype,
                                owned};
  shared_->sums->sum(all, sums, stream);
}

Status IpcCommunicator::all_gather(std::span<const CollectiveBuffer> buffers,
                                   device::Stream& stream) {
  auto& own = static_cast<CudaStream&>(stream);
  DC_RETURN_IF_ERROR(begin(Operation::AllGather, buffers, own));
  for (const CollectiveBuffer& b : buffers) gather(b, b.input, b.dtype, own);
  return end(Operation::AllGather, buffers, own);
}

Status IpcCommunicator::reduce_scatter(std::span<const CollectiveBuffer> buffers,
                                       device::Stream& stream) {
  auto& own = static_cast<CudaStream&>(stream);
  DC_RETURN_IF_ERROR(begin(Operation::ReduceScatter, buffers, own));
  for (const CollectiveBuffer& b : buffers) {
    reduce(b, static_cast<float*>(b.output.data), own);
    zero_tail(b, members().index, own);
  }
  return end(Operation::ReduceScatter, buffers, own);
}

// In place is safe as in the local communicator: only rank r reads range r of anybody's input, and
// the other ranges are written after the barrier in the middle.
Status IpcCommunicator::all_reduce(std::span<const CollectiveBuffer> buffers,
                                   device::Stream& stream) {
  auto& own = static_cast<CudaStream&>(stream);
  DC_RETURN_IF_ERROR(begin(Operation::AllReduce, buffers, own));
  const int me = members().index;
  for (const CollectiveBuffer& b : buffers)
    reduce(b, static_cast<float*>(b.output.data) + me * b.shard, own);
  DC_RETURN_IF_ERROR(link_.meet(own));
  for (const CollectiveBuffer& b : buffers) {
    if (b.elements == 0) continue;
    const Ref sums{element(b.output.data, me * b.shard, 4), b.output.rank_stride + b.shard * 4};
    gather(b, sums, base::DType::F32, own);
  }
  return end(Operation::AllReduce, buffers, own);
}

Status IpcCommunicator::health() {
  if (Status failure = link_.failure(); !failure.ok() || !link_.is_given_up()) return failure;
  return shared_->watcher->explain(link_);
}

Status IpcCommunicator::broadcast(void*, int64_t, base::Rank) {
  return only_for_devices(Operation::Broadcast);
}
Status IpcCommunicator::exchange(const void*, int64_t, void*) {
  return only_for_devices(Operation::Exchange);
}
Status IpcCommunicator::barrier() { return only_for_devices(Operation::Barrier); }

}  // namespace dc::runtime::comm
