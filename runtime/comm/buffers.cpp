#include "runtime/comm/buffers.h"

#include <string>
#include <vector>

#include "runtime/comm/sums.h"

namespace dc::runtime::comm {
namespace {

bool overlap(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x < y + static_cast<uintptr_t>(b_bytes) && y < x + static_cast<uintptr_t>(a_bytes);
}

// Empty if the buffer is fine. In place means the one overlap in which no rank writes what a peer
// still reads.
std::string_view fault_of_placement(Operation operation, const CollectiveBuffer& b, int rank,
                                    int size) {
  const int64_t wire = base::byte_size(b.dtype);
  const int64_t own = owned_elements(b, rank);
  if (operation == Operation::AllGather) {
    if (!overlap(b.input.data, own * wire, b.output.data, b.elements * wire)) return "";
    const bool in_place = b.input.data == element(b.output.data, rank * b.shard, wire);
    if (!in_place) return "input and output overlap";
    const bool strided = b.input.rank_stride == b.output.rank_stride + b.shard * wire;
    return strided || size == 1 ? ""
                                : "an input inside the output needs a rank stride of one shard";
  }
  const int64_t output_elements = operation == Operation::AllReduce ? b.elements : b.shard;
  if (!overlap(b.input.data, b.elements * wire, b.output.data, output_elements * 4)) return "";
  const int64_t offset = operation == Operation::AllReduce ? 0 : rank * b.shard;
  const bool in_place =
      b.dtype == base::DType::F32 && b.output.data == element(b.input.data, offset, wire);
  return in_place ? "" : "input and output overlap";
}

std::string_view fault_of(Operation operation, const CollectiveBuffer& b, int rank, int size) {
  if (b.elements < 0 || b.shard < 0) return "negative size";
  if (b.shard * size < b.elements) return "the shards do not cover the value";
  if (base::byte_size(b.dtype) <= 0) return "unknown dtype";
  if (operation != Operation::AllGather && !can_sum(b.dtype))
    return "only f32, bf16 and f16 can be summed";
  const bool writes = b.elements > 0 || (operation == Operation::ReduceScatter && b.shard > 0);
  if (writes && b.output.data == nullptr) return "no output";
  const bool reads =
      operation == Operation::AllGather ? owned_elements(b, rank) > 0 : b.elements > 0;
  if (reads && b.input.data == nullptr) return "no input";
  return fault_of_placement(operation, b, rank, size);
}

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdull;
  return hash ^ (hash >> 32);
}

uint64_t with_operation(uint64_t hash, Operation operation) {
  return (hash << 8) | static_cast<uint64_t>(operation);
}

}  // namespace

std::string_view name(Operation operation) {
  switch (operation) {
    case Operation::Barrier:
      return "barrier";
    case Operation::AllGather:
      return "all_gather";
    case Operation::ReduceScatter:
      return "reduce_scatter";
    case Operation::AllReduce:
      return "all_reduce";
    case Operation::Broadcast:
      return "broadcast";
    case Operation::Exchange:
      return "exchange";
    case Operation::Open:
      return "opening a communicator";
    case Operation::Allocate:
      return "allocating the slab";
    case Operation::Connect:
      return "connecting";
  }
  return "an unknown operation";
}

std::span<const CollectiveBuffer> ResolvedBuffers::operator()(
    std::span<const CollectiveBuffer> buffers, const device::Stream& stream) {
  const bool moves = std::any_of(buffers.begin(), buffers.end(), [&](const CollectiveBuffer& b) {
    return stream.resolve(b.input.data) != b.input.data ||
           stream.resolve(b.output.data) != b.output.data;
  });
  if (!moves) return buffers;
  moved_.assign(buffers.begin(), buffers.end());
  for (CollectiveBuffer& b : moved_) {
    b.input.data = stream.resolve(b.input.data);
    b.output.data = stream.resolve(b.output.data);
  }
  return moved_;
}

base::Status check_buffers(Operation operation, std::span<const CollectiveBuffer> buffers, int rank,
                           int size) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const std::string_view fault = fault_of(operation, buffers[i], rank, size);
    if (fault.empty()) continue;
    return base::Status(base::ErrorKind::Internal, "DC6101",
                        std::string(name(operation)) + " cannot run: buffer " + std::to_string(i) +
                            ": " + std::string(fault) +
                            "; this is a fault in the plan or in dcrun, please report it");
  }
  return base::ok_status();
}

uint64_t fingerprint(Operation operation, std::span<const CollectiveBuffer> buffers) {
  uint64_t hash = buffers.size();
  for (const CollectiveBuffer& b : buffers) {
    hash = mix(hash, static_cast<uint64_t>(b.dtype));
    hash = mix(hash, static_cast<uint64_t>(b.elements));
    hash = mix(hash, static_cast<uint64_t>(b.shard));
  }
  return with_operation(hash, operation);
}

uint64_t fingerprint(Operation operation, int64_t bytes, int root) {
  return with_operation(mix(static_cast<uint64_t>(bytes), static_cast<uint64_t>(root)), operation);
}

base::Status ranks_disagree(uint64_t mine, int my_rank, uint64_t theirs, int their_rank) {
  const Operation called = operation_of(theirs), expected = operation_of(mine);
  return base::Status(base::ErrorKind::Internal, "DC6102",
                      "rank " + std::to_string(their_rank) + " called " +
                          std::string(name(called)) +
                          (called == expected ? " on other values" : "") + " where rank " +
                          std::to_string(my_rank) + " called " + std::string(name(expected)) +
                          "; the ranks do not run the same program, please report this");
}

base::Status ranks_late(Operation operation, std::chrono::milliseconds timeout,
                        std::span<const int> ranks, bool arrived) {
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "" : ", ") + std::to_string(rank);
  std::string limit = std::to_string(static_cast<double>(timeout.count()) / 1000);
  limit.resize(limit.find('.') + 2);
  return base::Status(base::ErrorKind::CollectiveTimeout, "DC6103",
                      std::string(name(operation)) + " waited " + limit + " s for rank" +
                          (ranks.size() == 1 ? " " : "s ") + list +
                          (arrived ? ", which did not finish" : ", which did not arrive") +
                          "; see what that rank is doing, or raise --timeout");
}

base::Status called_off(Operation operation) {
  return base::Status(base::ErrorKind::Unavailable, "DC6105",
                      std::string(name(operation)) + " was called off by this rank");
}

base::Status only_for_devices(Operation operation) {
  return base::Status(
      base::ErrorKind::Unsupported, "DC6101",
      std::string(name(operation)) +
          " of host memory was asked of a communicator of GPUs; please report this");
}

void TrafficCounter::add(Operation operation, std::span<const CollectiveBuffer> buffers, int rank,
                         int size) {
  int64_t gathered = 0, reduced = 0, sums = 0, across = 0;
  for (const CollectiveBuffer& b : buffers) {
    across += across_hosts(operation, b, rank);
    const int64_t own = owned_elements(b, rank), wire = base::byte_size(b.dtype);
    gathered += own * wire * (size - 1);
    reduced += (b.elements - own) * wire;
    sums += own * 4 * (size - 1);
  }
  if (operation == Operation::AllGather) all_gather_.fetch_add(gathered, std::memory_order_relaxed);
  if (operation == Operation::ReduceScatter)
    reduce_scatter_.fetch_add(reduced, std::memory_order_relaxed);
  if (operation == Operation::AllReduce)
    all_reduce_.fetch_add(reduced + sums, std::memory_order_relaxed);
  across_hosts_.fetch_add(across, std::memory_order_relaxed);
}

int64_t TrafficCounter::across_hosts(Operation operation, const CollectiveBuffer& b,
                                     int rank) const {
  const int64_t own = owned_elements(b, rank), wire = base::byte_size(b.dtype);
  int64_t bytes = 0;
  for (size_t peer = 0; peer < on_other_hosts_.size(); ++peer) {
    if (!on_other_hosts_[peer]) continue;
    if (operation == Operation::AllGather) bytes += own * wire;
    if (operation == Operation::AllReduce) bytes += own * 4;
    if (operation != Operation::AllGather)
      bytes += owned_elements(b, static_cast<int>(peer)) * wire;
  }
  return bytes;
}

Traffic TrafficCounter::snapshot() const {
  return {all_gather_.load(std::memory_order_relaxed),
          reduce_scatter_.load(std::memory_order_relaxed),
          all_reduce_.load(std::memory_order_relaxed), other_.load(std::memory_order_relaxed),
          across_hosts_.load(std::memory_order_relaxed)};
}

Traffic operator-(const Traffic& after, const Traffic& before) {
  return {after.all_gather - before.all_gather, after.reduce_scatter - before.reduce_scatter,
          after.all_reduce - before.all_reduce, after.other - before.other,
          after.across_hosts - before.across_hosts};
}

Traffic& operator+=(Traffic& sum, const Traffic& more) {
  sum.all_gather += more.all_gather;
  sum.reduce_scatter += more.reduce_scatter;
  sum.all_reduce += more.all_reduce;
  sum.other += more.other;
  sum.across_hosts += more.across_hosts;
  return sum;
}

base::Status check_equal_slabs(Communicator& control, int64_t bytes) {
  std::vector<int64_t> sizes(static_cast<size_t>(control.size()));
  DC_RETURN_IF_ERROR(control.exchange(&bytes, sizeof(bytes), sizes.data()));
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] == bytes) continue;
    return base::Status(base::ErrorKind::Mismatch, "DC6107",
                        "rank " + std::to_string(rank) + " needs a slab of " +
                            std::to_string(sizes[rank]) + " bytes, this rank " +
                            std::to_string(bytes) + "; all ranks must run the same plan");
  }
  return base::ok_status();
}

}  // namespace dc::runtime::comm
