#include "runtime/comm/nccl_communicator.h"

#include "runtime/comm/nccl_pieces.h"

namespace dc::runtime::comm {
namespace {

using base::Status;
using device::CudaStream;

// One rank's part of a gather: what it sends, where the parts lie.
struct GatheredPart {
  std::byte* own;
  std::byte* whole;
  int64_t bytes;  // of an element
};

// A gather's input; or a rank's sums, which already are in place.
GatheredPart part_of(const CollectiveBuffer& b, bool sums, int rank) {
  auto* whole = static_cast<std::byte*>(b.output.data);
  if (sums) return {whole + rank * b.shard * 4, whole, 4};
  return {static_cast<std::byte*>(b.input.data), whole, base::byte_size(b.dtype)};
}

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclRank> shared, std::unique_ptr<NcclLink> link,
                                   std::unique_ptr<device::DeviceMemory> staging,
                                   const std::vector<int>& hosts)
    : shared_(std::move(shared)),
      staging_(std::move(staging)),
      link_(std::move(link)),
      traffic_(on_other_hosts(link_->members(), hosts)) {
  shared_->watcher->add(*link_);
}

NcclCommunicator::~NcclCommunicator() {
  link_->close();
  shared_->watcher->remove(*link_);
}

Status NcclCommunicator::open(const NcclId& id, std::span<const Slab> slabs) {
  DC_RETURN_IF_ERROR(link_->open(id));
  for (const Slab& slab : slabs) link_->register_memory(slab.base, slab.bytes);
  link_->register_memory(staging_->base(), staging_->bytes());
  return base::ok_status();
}

Status NcclCommunicator::all_gather(std::span<const CollectiveBuffer> buffers,
                                    device::Stream& stream) {
  DC_RETURN_IF_ERROR(check_buffers(Operation::AllGather, buffers, rank().v, size()));
  auto& own = static_cast<CudaStream&>(stream);
  link_->begin(Operation::AllGather, own);
  DC_RETURN_IF_ERROR(gather(buffers, false, own));
  link_->end(own);
  traffic_.add(Operation::AllGather, buffers, rank().v, size());
  return base::ok_status();
}

Status NcclCommunicator::reduce_scatter(std::span<const CollectiveBuffer> buffers,
                                        device::Stream& stream) {
  DC_RETURN_IF_ERROR(check_buffers(Operation::ReduceScatter, buffers, rank().v, size()));
  auto& own = static_cast<CudaStream&>(stream);
  link_->begin(Operation::ReduceScatter, own);
  DC_RETURN_IF_ERROR(reduce(Operation::ReduceScatter, buffers, own));
  for (const CollectiveBuffer& b : buffers) zero_tail(b, rank().v, stream);
  link_->end(own);
  traffic_.add(Operation::ReduceScatter, buffers, rank().v, size());
  return base::ok_status();
}

// In place is safe: of a rank's input only its own range is read by itself, and the ranges of peers
// have been sent before their sums arrive.
Status NcclCommunicator::all_reduce(std::span<const CollectiveBuffer> buffers,
                                    device::Stream& stream) {
  DC_RETURN_IF_ERROR(check_buffers(Operation::AllReduce, buffers, rank().v, size()));
  auto& own = static_cast<CudaStream&>(stream);
  link_->begin(Operation::AllReduce, own);
  DC_RETURN_IF_ERROR(reduce(Operation::AllReduce, buffers, own));
  DC_RETURN_IF_ERROR(gather(buffers, true, own));
  link_->end(own);
  traffic_.add(Operation::AllReduce, buffers, rank().v, size());
  return base::ok_status();
}

// NCCL's own gather where all parts are of one length, else what it consists of.
Status NcclCommunicator::gather(std::span<const CollectiveBuffer> buffers, bool sums,
                                CudaStream& stream) {
  const int me = rank().v;
  const auto by_nccl = [&](const CollectiveBuffer& b) { return b.elements == b.shard * size(); };
  for (const CollectiveBuffer& b : buffers) {
    const GatheredPart part = part_of(b, sums, me);
    std::byte* place = element(part.whole, me * b.shard, part.bytes);
    const int64_t own = owned_elements(b, me) * part.bytes;
    if (!by_nccl(b) && own > 0 && place != part.own) stream.copy(place, part.own, own);
  }
  return link_->issue(stream, [&](NcclGroup& group) {
    for (const CollectiveBuffer& b : buffers) {
      const GatheredPart part = part_of(b, sums, me);
      const int64_t own = owned_elements(b, me) * part.bytes;
      if (by_nccl(b)) {
        group.all_gather(part.own, part.whole, own);
        continue;
      }
      for (int step = 1; step < size(); ++step) {
        const int peer = (me + step) % size();
        group.send(part.own, own, peer);
        group.receive(element(part.whole, peer * b.shard, part.bytes),
                      owned_elements(b, peer) * part.bytes, peer);
      }
    }
  });
}

Status NcclCommunicator::exchange_round(std::span<const CollectiveBuffer> buffers, int64_t round,
                                        const CudaStream& stream) {
  const int me = rank().v;
  return link_->issue(stream, [&](NcclGroup& group) {
    for (int step = 1; step < size(); ++step) {
      const int peer = (me + step) % size();
      for_each_piece(buffers, peer, round, kNcclRoom, [&](const ReductionPiece& piece) {
        const CollectiveBuffer& b = *piece.buffer;
        const int64_t wire = base::byte_size(b.dtype);
        group.send(element(b.input.data, peer * b.shard + piece.first, wire), piece.count * wire,
                   peer);
      });
      for_each_piece(buffers, me, round, kNcclRoom, [&](const ReductionPiece& piece) {
        group.receive(staged(peer, piece.place), piece.count * base::byte_size(piece.buffer->dtype),
                      peer);
      });
    }
  });
}

// The sums of this rank's range: in their place in the whole for an all_reduce.
Status NcclCommunicator::reduce(Operation operation, std::span<const CollectiveBuffer> buffers,
                                CudaStream& stream) {
  int64_t rounds = 0;
  for (int each = 0; each < size(); ++each)
    rounds = std::max(rounds, rounds_of(buffers, each, kNcclRoom));
  for (int64_t round = 0; round < rounds; ++round) {
    DC_RETURN_IF_ERROR(exchange_round(buffers, round, stream));
    for_each_piece(buffers, rank().v, round, kNcclRoom, [&](const ReductionPiece& piece) {
      const CollectiveBuffer& b = *piece.buffer;
      const int64_t start = rank().v * b.shard;
      auto* sums = static_cast<float*>(b.output.data);
      if (operation == Operation::AllReduce) sums += start;
      const Contributions all{element(b.input.data, start + piece.first, base::byte_size(b.dtype)),
                              staging_->base() + piece.place,
                              kNcclRoom,
                              rank().v,
                              size(),
                              b.dtype,
                              piece.count};
      shared_->sums->sum(all, sums + piece.first, stream);
    });
  }
  return base::ok_status();
}

Status NcclCommunicator::broadcast(void*, int64_t, base::Rank) {
  return only_for_devices(Operation::Broadcast);
}
Status NcclCommunicator::exchange(const void*, int64_t, void*) {
  return only_for_devices(Operation::Exchange);
}
Status NcclCommunicator::barrier() { return only_for_devices(Operation::Barrier); }

}  // namespace dc::runtime::comm
