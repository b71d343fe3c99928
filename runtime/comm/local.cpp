#include "runtime/comm/local.h"

#include <cstring>
#include <string>

#include "runtime/comm/buffers.h"
#include "runtime/comm/sums.h"

namespace dc::runtime::comm {
namespace {

constexpr int64_t kSmallPage = 4096, kLargePage = int64_t{2} << 20;

base::Status refused(std::string sentence) {
  return base::Status(base::ErrorKind::Internal, "DC6101", std::move(sentence));
}

}  // namespace

LocalCommunicator::LocalCommunicator(std::shared_ptr<LocalRank> shared, int group, Members members,
                                     const std::vector<int>& hosts)
    : shared_(std::move(shared)),
      traffic_(on_other_hosts(members, hosts)),
      barrier_(shared_->page, group, std::move(members), shared_->timeout),
      inputs_(static_cast<size_t>(barrier_.members().size())) {}

base::Status LocalCommunicator::meet(Operation operation) {
  return barrier_.wait(fingerprint(operation, 0, 0));
}

// Looks for member 0's copy, because the range of a later one may be empty and its address then
// past the end of the slab.
const Region* LocalCommunicator::region_of(const Ref& ref) const {
  const std::byte* origin = static_cast<std::byte*>(ref.data) - members().index * ref.rank_stride;
  for (const Region& region : shared_->regions) {
    const int64_t offset = origin - (region.memory->base() + shared_->rank * region.stride);
    if (offset >= 0 && offset < region.bytes) return &region;
  }
  return nullptr;
}

base::Status LocalCommunicator::check_in_slab(Operation operation, const Ref& ref,
                                              const CollectiveBuffer& buffer, bool whole,
                                              base::DType dtype) const {
  if (buffer.elements == 0) return base::ok_status();
  const Region* region = region_of(ref);
  bool inside = region != nullptr;
  for (int peer = 0; inside && peer < size(); ++peer) {
    const int64_t bytes =
        (whole ? buffer.elements : owned_elements(buffer, peer)) * base::byte_size(dtype);
    const std::byte* slab = region->memory->base() + members().at(peer) * region->stride;
    const int64_t offset = at_peer(ref, peer) - slab;
    inside = bytes == 0 || (offset >= 0 && offset + bytes <= region->bytes);
  }
  if (inside) return base::ok_status();
  return refused(std::string(dc::runtime::comm::name(operation)) +
                 " was given memory outside the slab; this is a fault in the plan or in dcrun, "
                 "please report it");
}

std::byte* LocalCommunicator::at_peer(const Ref& ref, int peer) const {
  const Region* region = region_of(ref);
  if (region == nullptr) return static_cast<std::byte*>(ref.data);  // of an empty value: never read
  return static_cast<std::byte*>(ref.data) + (members().at(peer) - shared_->rank) * region->stride +
         (peer - members().index) * ref.rank_stride;
}

base::Status LocalCommunicator::enter(Operation operation,
                                      std::span<const CollectiveBuffer> buffers,
                                      uint64_t* fingerprint) {
  const int me = members().index;
  DC_RETURN_IF_ERROR(check_buffers(operation, buffers, me, size()));
  for (const CollectiveBuffer& b : buffers) {
    const bool whole = operation != Operation::AllGather;
    DC_RETURN_IF_ERROR(check_in_slab(operation, b.input, b, whole, b.dtype));
    if (operation != Operation::AllReduce) continue;
    DC_RETURN_IF_ERROR(check_in_slab(operation, b.output, b, true, base::DType::F32));
  }
  *fingerprint = dc::runtime::comm::fingerprint(operation, buffers);
  return barrier_.wait(*fingerprint);
}

// Copies every peer's range. The ranks start at different peers so that they do not all read the
// same memory at once.
void LocalCommunicator::gather(const CollectiveBuffer& buffer, const Ref& from, base::DType dtype,
                               device::Stream& stream) const {
  const int64_t bytes = base::byte_size(dtype);
  for (int step = 1; step <= size(); ++step) {
    const int peer = (members().index + step) % size();
    const int64_t owned = owned_elements(buffer, peer);
    std::byte* target = element(buffer.output.data, peer * buffer.shard, bytes);
    const std::byte* source = at_peer(from, peer);
    if (owned == 0 || target == source) continue;
    std::memcpy(stream.resolve(target), stream.resolve(source), static_cast<size_t>(owned * bytes));
  }
}

base::Status LocalCommunicator::all_gather(std::span<const CollectiveBuffer> buffers,
                                           device::Stream& stream) {
  uint64_t fingerprint = 0;
  DC_RETURN_IF_ERROR(enter(Operation::AllGather, buffers, &fingerprint));
  for (const CollectiveBuffer& b : buffers) gather(b, b.input, b.dtype, stream);
  traffic_.add(Operation::AllGather, buffers, members().index, size());
  return barrier_.wait(fingerprint);
}

void LocalCommunicator::reduce(const CollectiveBuffer& b, float* output, device::Stream& stream) {
  const int64_t start = members().index * b.shard * base::byte_size(b.dtype);
  for (int peer = 0; peer < size(); ++peer)
    inputs_[static_cast<size_t>(peer)] = stream.resolve(at_peer(b.input, peer) + start);
  sum_in_rank_order(inputs_, b.dtype, owned_elements(b, members().index), stream.resolve(output));
}

base::Status LocalCommunicator::reduce_scatter(std::span<const CollectiveBuffer> buffers,
                                               device::Stream& stream) {
  uint64_t fingerprint = 0;
  DC_RETURN_IF_ERROR(enter(Operation::ReduceScatter, buffers, &fingerprint));
  for (const CollectiveBuffer& b : buffers) {
    auto* output = static_cast<float*>(b.output.data);
    if (b.elements > 0) reduce(b, output, stream);
    zero_tail(b, members().index, stream);
  }
  traffic_.add(Operation::ReduceScatter, buffers, members().index, size());
  return barrier_.wait(fingerprint);
}

// In place is safe: only rank r reads range r of anybody's input, so a rank may write its own range
// of the output as soon as it has summed it; the other ranges are written after the middle barrier,
// when every rank has read its range everywhere.
base::Status LocalCommunicator::all_reduce(std::span<const CollectiveBuffer> buffers,
                                           device::Stream& stream) {
  uint64_t fingerprint = 0;
  DC_RETURN_IF_ERROR(enter(Operation::AllReduce, buffers, &fingerprint));
  for (const CollectiveBuffer& b : buffers) {
    if (owned_elements(b, members().index) > 0)
      reduce(b, static_cast<float*>(b.output.data) + members().index * b.shard, stream);
  }
  DC_RETURN_IF_ERROR(barrier_.wait(fingerprint));
  for (const CollectiveBuffer& b : buffers) {
    if (b.elements == 0) continue;
    const Ref sums{element(b.output.data, members().index * b.shard, 4),
                   b.output.rank_stride + b.shard * 4};
    gather(b, sums, base::DType::F32, stream);
  }
  traffic_.add(Operation::AllReduce, buffers, members().index, size());
  return barrier_.wait(fingerprint);
}

base::Status LocalCommunicator::broadcast(void* data, int64_t bytes, base::Rank root) {
  if (root.v < 0 || root.v >= size())
    return refused("broadcast from rank " + std::to_string(root.v) + ", which does not exist");
  const uint64_t mark = fingerprint(Operation::Broadcast, bytes, root.v);
  std::byte* mailbox = shared_->page.mailbox(barrier_.group(), members().at(root.v));
  for (int64_t done = 0; done < bytes; done += kMailbox) {
    const auto piece = static_cast<size_t>(std::min(kMailbox, bytes - done));
    std::byte* mine = static_cast<std::byte*>(data) + done;
    if (rank() == root) std::memcpy(mailbox, mine, piece);
    DC_RETURN_IF_ERROR(barrier_.wait(mark));
    if (rank() != root) std::memcpy(mine, mailbox, piece);
    DC_RETURN_IF_ERROR(barrier_.wait(mark));
  }
  if (rank() == root) traffic_.add_other(bytes * (size() - 1));
  return base::ok_status();
}

base::Status LocalCommunicator::exchange(const void* mine, int64_t bytes, void* all) {
  const uint64_t mark = fingerprint(Operation::Exchange, bytes, 0);
  for (int64_t done = 0; done < bytes; done += kMailbox) {
    const auto piece = static_cast<size_t>(std::min(kMailbox, bytes - done));
    std::memcpy(shared_->page.mailbox(barrier_.group(), shared_->rank),
                static_cast<const std::byte*>(mine) + done, piece);
    DC_RETURN_IF_ERROR(barrier_.wait(mark));
    for (int peer = 0; peer < size(); ++peer) {
      std::memcpy(static_cast<std::byte*>(all) + peer * bytes + done,
                  shared_->page.mailbox(barrier_.group(), members().at(peer)), piece);
    }
    DC_RETURN_IF_ERROR(barrier_.wait(mark));
  }
  traffic_.add_other(bytes * (size() - 1));
  return base::ok_status();
}

base::Status LocalCommunicator::health() {
  if (const auto rank = shared_->page.first_failure()) return shared_->page.gone(*rank, "");
  return base::ok_status();
}

LocalProcessGroup::LocalProcessGroup(std::shared_ptr<LocalRank> shared,
                                     std::unique_ptr<RegionSource> source, device::Device& device)
    : shared_(std::move(shared)),
      source_(std::move(source)),
      device_(device),
      control_(shared_, 0, all_ranks(shared_->rank, shared_->page.world())) {}

base::Result<Slab> LocalProcessGroup::allocate(int64_t bytes) {
  if (bytes < 0) return refused("a slab of negative size was asked for");
  const int64_t page = bytes >= kLargePage ? kLargePage : kSmallPage;
  const int64_t stride = base::round_up(std::max<int64_t>(bytes, 1), page),
                total = stride * shared_->page.world();
  DC_RETURN_IF_ERROR(control_.meet(Operation::Allocate));
  const base::Status offered = shared_->rank == 0 ? source_->offer(total) : base::ok_status();
  int32_t failed = offered.ok() ? 0 : 1;
  DC_RETURN_IF_ERROR(control_.broadcast(&failed, sizeof(failed), {0}));
  if (!offered.ok()) return offered;
  if (failed != 0) {
    return base::Status(base::ErrorKind::OutOfMemory, "DC6129",
                        "rank 0 could not get memory for the slabs; see its message");
  }
  DC_RETURN_IF_ERROR(check_equal_slabs(control_, bytes));
  DC_ASSIGN_OR_RETURN(auto memory, source_->take(total));
  std::byte* mine = memory->base() + shared_->rank * stride;
  shared_->regions.push_back({std::move(memory), stride, bytes});
  return Slab{mine, bytes};
}

base::Result<std::unique_ptr<Communicator>> LocalProcessGroup::open_communicator(
    std::span<const int> ranks) {
  if (groups_ == kMaxGroups)
    return refused("more than " + std::to_string(kMaxGroups) + " communicators in one job");
  DC_ASSIGN_OR_RETURN(Members members, members_of(ranks, shared_->rank, control_.size()));
  DC_RETURN_IF_ERROR(control_.meet(Operation::Open));
  DC_RETURN_IF_ERROR(agree_on_members(control_, members));
  return std::unique_ptr<Communicator>(
      std::make_unique<LocalCommunicator>(shared_, groups_++, std::move(members), hosts()));
}

void LocalProcessGroup::leave(const base::Status& why) {
  if (left_) return;
  left_ = true;
  source_->stop_watching();
  shared_->page.record_leave(shared_->rank, why);
}

}  // namespace dc::runtime::comm
