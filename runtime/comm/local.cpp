#include "runtime/comm/local.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/comm/buffers.h"
#include "runtime/comm/sums.h"

namespace dc::runtime::comm {
namespace {

constexpr int64_t kSmallPage = 4096, kLargePage = int64_t{2} << 20;
// The kernel lets a process have 65,530 mappings.
constexpr int64_t kMostPrivateParts = 1024;

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

base::Status LocalCommunicator::enter(Operation operation,
                                      std::span<const CollectiveBuffer> buffers,
                                      uint64_t* fingerprint) {
  const int me = members().index;
  DC_RETURN_IF_ERROR(check_buffers(operation, buffers, me, size()));
  DC_RETURN_IF_ERROR(shared_->slabs.check(operation, buffers, members()));
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

base::Result<std::shared_ptr<device::DeviceMemory>> LocalProcessGroup::share(int64_t bytes) {
  DC_RETURN_IF_ERROR(control_.meet(Operation::Allocate));
  const base::Status offered = shared_->rank == 0 ? source_->offer(bytes) : base::ok_status();
  int32_t failed = offered.ok() ? 0 : 1;
  DC_RETURN_IF_ERROR(control_.broadcast(&failed, sizeof(failed), {0}));
  if (!offered.ok()) return offered;
  if (failed != 0) {
    return base::Status(base::ErrorKind::OutOfMemory, "DC6129",
                        "rank 0 could not get memory for the slabs; see its message");
  }
  return source_->take(bytes);
}

// The slabs side by side.
base::Result<Slab> LocalProcessGroup::allocate(int64_t bytes) {
  if (bytes < 0) return refused("a slab of negative size was asked for");
  const int64_t page = bytes >= kLargePage ? kLargePage : kSmallPage;
  const int64_t stride = base::round_up(std::max<int64_t>(bytes, 1), page);
  const int world = shared_->page.world();
  DC_RETURN_IF_ERROR(control_.meet(Operation::Allocate));
  DC_RETURN_IF_ERROR(check_equal_slabs(control_, bytes));
  DC_ASSIGN_OR_RETURN(auto memory, share(stride * world));
  std::vector<std::byte*> slabs;
  slabs.reserve(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) slabs.push_back(memory->base() + rank * stride);
  std::byte* mine = slabs[static_cast<size_t>(shared_->rank)];
  shared_->memories.push_back(std::move(memory));
  shared_->slabs.add(std::move(slabs), bytes);
  return Slab{mine, bytes};
}

base::Status LocalProcessGroup::restrict_reads(const Slab& slab,
                                               std::span<const base::ByteRange> read) {
  // Outside are the slabs of other ranks.
  int64_t last = 0;
  for (const base::ByteRange& range : read) {
    if (range.begin < last || range.end < range.begin || range.end > slab.bytes)
      return refused("ranges that peers read do not ascend inside their slab");
    last = range.end;
  }
  shared_->slabs.restrict_reads(slab.base, read);
  const auto memory =
      std::find_if(shared_->memories.begin(), shared_->memories.end(), [&slab](const auto& held) {
        return slab.base >= held->base() && slab.base < held->base() + held->bytes();
      });
  if (memory == shared_->memories.end()) return refused("this slab is not of this job");
  const int64_t least = std::max(kLargePage, slab.bytes / kMostPrivateParts);
  const auto own = [&](int64_t begin, int64_t end) {
    if (end - begin < least) return base::ok_status();
    return (*memory)->make_private(slab.base - (*memory)->base() + begin, end - begin);
  };
  int64_t begin = 0;
  for (const base::ByteRange& range : read) {
    DC_RETURN_IF_ERROR(own(begin, range.begin));
    begin = range.end;
  }
  return own(begin, slab.bytes);
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
