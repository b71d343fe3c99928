// The mpi communicator, for ranks on several hosts: the plug-in libdcrun_mpi.so and the only file
// that knows MPI. Ranges travel as bytes and every rank sums its own range itself, in rank order,
// so the bits are those of the local communicator.
#include <mpi.h>
#include <time.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/comm/buffers.h"
#include "runtime/comm/members.h"
#include "runtime/comm/patience.h"
#include "runtime/comm/plugin.h"
#include "runtime/comm/private_slabs.h"
#include "runtime/comm/sums.h"
#include "runtime/device/device.h"
#include "src/base/interface_id.h"

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Status;

constexpr int64_t kPiece = int64_t{256} << 10;  // bytes of one message of a reduction, per peer
constexpr int64_t kMessage = int64_t{1} << 30;  // MPI counts in int
constexpr int kSpins = 50;

Status mpi_failed(Operation operation, int error) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(error, text, &length);
  return Status(ErrorKind::PeerDied, "DC6112",
                std::string(name(operation)) +
                    " failed in MPI: " + std::string(text, static_cast<size_t>(length)) +
                    "; usually a peer has ended, look for its own last message");
}

// MPI of this process, from its start to its end. It ends after the last communicator.
struct World {
  std::mutex mutex;  // taken around every call unless MPI is thread-safe itself
  bool thread_safe = false;
  std::atomic<bool> broken{false};
  std::chrono::milliseconds timeout{0};
  PrivateSlabs slabs;

  ~World() {
    if (!broken.load()) {
      MPI_Finalize();
      return;
    }
    // MPI may still write into this memory for a request that never completed; the process is about
    // to end.
    slabs.abandon();
  }
  std::unique_lock<std::mutex> lock() {
    return thread_safe ? std::unique_lock<std::mutex>(mutex, std::defer_lock)
                       : std::unique_lock<std::mutex>(mutex);
  }
};

// Messages under way.
class Transfers {
 public:
  Transfers(World& world, MPI_Comm comm, std::vector<int> ranks)
      : world_(world), comm_(comm), ranks_(std::move(ranks)) {}

  int send(const void* data, int64_t bytes, int peer) {
    return post(const_cast<void*>(data), bytes, peer, true);
  }
  int receive(void* data, int64_t bytes, int peer) { return post(data, bytes, peer, false); }

  // Forgets completed requests; the vectors keep their capacity, so steps after the first allocate
  // nothing.
  void clear() {
    requests_.clear();
    peers_.clear();
  }

  Status wait(Operation operation, const std::atomic<bool>& aborted) {
    Patience patience(world_.timeout);
    for (int turn = 0;; ++turn) {
      int done = 0, error = MPI_SUCCESS;
      {
        const auto lock = world_.lock();
        error = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                            MPI_STATUSES_IGNORE);
      }
      if (error != MPI_SUCCESS) return mpi_failed(operation, error);
      if (done != 0) return clear(), base::ok_status();
      if (aborted.load()) {
        return Status(ErrorKind::Unavailable, "DC6105",
                      std::string(name(operation)) + " was called off by this rank");
      }
      if (turn < kSpins) continue;
      if (turn % 64 == 0 && patience.is_over()) return late(operation);
      // MPI makes progress only in calls, so this polls; the pauses grow to a quarter of a
      // millisecond.
      const timespec pause{0, std::min(5'000L * (turn - kSpins + 1), 250'000L)};
      nanosleep(&pause, nullptr);
    }
  }

 private:
  int post(void* data, int64_t bytes, int peer, bool sends) {
    auto* at = static_cast<std::byte*>(data);
    do {
      const int piece = static_cast<int>(std::min(bytes, kMessage));
      MPI_Request request = MPI_REQUEST_NULL;
      const auto lock = world_.lock();
      const int error = sends ? MPI_Isend(at, piece, MPI_BYTE, peer, 0, comm_, &request)
                              : MPI_Irecv(at, piece, MPI_BYTE, peer, 0, comm_, &request);
      if (error != MPI_SUCCESS) return error;
      requests_.push_back(request);
      peers_.push_back(peer);
      at += piece;
      bytes -= piece;
    } while (bytes > 0);
    return MPI_SUCCESS;
  }

  Status late(Operation operation) {
    std::vector<bool> missing;
    for (size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      const auto lock = world_.lock();
      if (MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) continue;
      missing.resize(ranks_.size());
      missing[static_cast<size_t>(peers_[i])] = true;
    }
    std::string ranks;
    for (size_t peer = 0; peer < missing.size(); ++peer) {
      if (missing[peer]) ranks += (ranks.empty() ? "" : ", ") + std::to_string(ranks_[peer]);
    }
    return Status(ErrorKind::CollectiveTimeout, "DC6103",
                  std::string(name(operation)) + " waited " +
                      std::to_string(world_.timeout.count()) + " ms for rank " + ranks +
                      "; see what that rank is doing, or raise --timeout");
  }

  World& world_;
  MPI_Comm comm_;
  std::vector<int> ranks_;  // of the job, by peer
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<World> world, MPI_Comm comm, const Members& members,
                  const std::vector<int>& hosts)
      : world_(std::move(world)),
        rank_(members.index),
        size_(members.size()),
        sends_(*world_, comm, members.ranks),
        receives_{{*world_, comm, members.ranks}, {*world_, comm, members.ranks}},
        staging_(new std::byte[static_cast<size_t>(2 * kPiece * size_)]),
        inputs_(static_cast<size_t>(size_)),
        traffic_(on_other_hosts(members, hosts)) {}
  ~MpiCommunicator() override {
    if (world_->broken.load())
      staging_.release();  // as the slabs: a request may still write into it
  }
  std::string_view name() const override { return "mpi"; }
  base::Rank rank() const override { return {rank_}; }
  int size() const override { return size_; }
  bool sums_in_rank_order() const override { return true; }

  Status all_gather(std::span<const CollectiveBuffer> buffers, device::Stream& stream) override {
    DC_RETURN_IF_ERROR(enter(Operation::AllGather, buffers));
    for (const CollectiveBuffer& b : resolved_(buffers, stream)) {
      const int64_t wire = base::byte_size(b.dtype);
      DC_RETURN_IF_ERROR(gather(Operation::AllGather, b, b.input.data, wire));
    }
    traffic_.add(Operation::AllGather, buffers, rank_, size_);
    return finish(sends_.wait(Operation::AllGather, aborted_));
  }

  Status reduce_scatter(std::span<const CollectiveBuffer> buffers,
                        device::Stream& stream) override {
    DC_RETURN_IF_ERROR(enter(Operation::ReduceScatter, buffers));
    DC_RETURN_IF_ERROR(reduce(Operation::ReduceScatter, resolved_(buffers, stream)));
    for (const CollectiveBuffer& b : buffers) zero_tail(b, rank_, stream);
    traffic_.add(Operation::ReduceScatter, buffers, rank_, size_);
    return base::ok_status();
  }

  // In place is safe: the sends of the input are complete before its other ranges are overwritten.
  Status all_reduce(std::span<const CollectiveBuffer> buffers, device::Stream& stream) override {
    DC_RETURN_IF_ERROR(enter(Operation::AllReduce, buffers));
    const auto resolved = resolved_(buffers, stream);
    DC_RETURN_IF_ERROR(reduce(Operation::AllReduce, resolved));
    for (const CollectiveBuffer& b : resolved) {
      DC_RETURN_IF_ERROR(
          gather(Operation::AllReduce, b, element(b.output.data, rank_ * b.shard, 4), 4));
    }
    traffic_.add(Operation::AllReduce, buffers, rank_, size_);
    return finish(sends_.wait(Operation::AllReduce, aborted_));
  }

  Status broadcast(void* data, int64_t bytes, base::Rank root) override {
    DC_RETURN_IF_ERROR(enter(Operation::Broadcast, {}));
    if (root.v < 0 || root.v >= size_)
      return Status(ErrorKind::Internal, "DC6101", "broadcast from a rank that does not exist");
    if (rank_ != root.v)
      DC_RETURN_IF_ERROR(posted(Operation::Broadcast, sends_.receive(data, bytes, root.v)));
    for (int peer = 0; rank_ == root.v && peer < size_; ++peer) {
      if (peer != rank_)
        DC_RETURN_IF_ERROR(posted(Operation::Broadcast, sends_.send(data, bytes, peer)));
    }
    if (rank_ == root.v) traffic_.add_other(bytes * (size_ - 1));
    return finish(sends_.wait(Operation::Broadcast, aborted_));
  }

  Status exchange(const void* mine, int64_t bytes, void* all) override {
    return swap(Operation::Exchange, mine, bytes, static_cast<std::byte*>(all));
  }
  Status barrier() override {
    std::byte nothing[1] = {};
    return swap(Operation::Barrier, nothing, 0, nothing);
  }
  Status health() override {
    if (!world_->broken.load()) return base::ok_status();
    return Status(ErrorKind::PeerDied, "DC6112", "an earlier collective of this job failed in MPI");
  }
  void abort() override { aborted_.store(true); }
  Traffic traffic() const override { return traffic_.snapshot(); }

 private:
  Status finish(Status status) {
    if (!status.ok()) {
      failure_ = status;
      world_->broken.store(true);
    }
    return status;
  }
  Status posted(Operation operation, int error) {
    return error == MPI_SUCCESS ? base::ok_status() : finish(mpi_failed(operation, error));
  }
  Status enter(Operation operation, std::span<const CollectiveBuffer> buffers) {
    if (!failure_.ok()) return failure_;
    return check_buffers(operation, buffers, rank_, size_);
  }

  Status swap(Operation operation, const void* mine, int64_t bytes, std::byte* all) {
    DC_RETURN_IF_ERROR(enter(operation, {}));
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      DC_RETURN_IF_ERROR(posted(operation, sends_.receive(all + peer * bytes, bytes, peer)));
      DC_RETURN_IF_ERROR(posted(operation, sends_.send(mine, bytes, peer)));
    }
    if (bytes > 0) std::memcpy(all + rank_ * bytes, mine, static_cast<size_t>(bytes));
    traffic_.add_other(bytes * (size_ - 1));
    return finish(sends_.wait(operation, aborted_));
  }

  // Posts the exchange of ranges of one value; the caller waits.
  Status gather(Operation operation, const CollectiveBuffer& b, void* own, int64_t wire) {
    const int64_t owned = owned_elements(b, rank_) * wire;
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      const int64_t theirs = owned_elements(b, peer) * wire;
      void* target = element(b.output.data, peer * b.shard, wire);
      if (theirs > 0) DC_RETURN_IF_ERROR(posted(operation, sends_.receive(target, theirs, peer)));
      if (owned > 0) DC_RETURN_IF_ERROR(posted(operation, sends_.send(own, owned, peer)));
    }
    void* mine = element(b.output.data, rank_ * b.shard, wire);
    if (owned > 0 && mine != own) std::memcpy(mine, own, static_cast<size_t>(owned));
    return base::ok_status();
  }

  // One piece of this rank's range: which buffer, where, how long. Pieces are numbered through all
  // buffers.
  struct Piece {
    size_t buffer = 0;
    int64_t first = 0, count = 0;  // elements within the range
  };
  static int64_t piece_elements(const CollectiveBuffer& b) {
    return kPiece / base::byte_size(b.dtype);
  }
  bool advance(std::span<const CollectiveBuffer> buffers, Piece& piece) const {
    piece.first += piece.count;
    while (piece.buffer < buffers.size() &&
           piece.first >= owned_elements(buffers[piece.buffer], rank_)) {
      ++piece.buffer;
      piece.first = 0;
    }
    if (piece.buffer == buffers.size()) return false;
    const CollectiveBuffer& b = buffers[piece.buffer];
    piece.count = std::min(piece_elements(b), owned_elements(b, rank_) - piece.first);
    return true;
  }
  std::byte* staged(int slot, int peer) const {
    return staging_.get() + (slot * size_ + peer) * kPiece;
  }

  Status post_inputs(Operation operation, std::span<const CollectiveBuffer> buffers) {
    for (const CollectiveBuffer& b : buffers) {
      const int64_t wire = base::byte_size(b.dtype);
      for (int step = 1; step < size_; ++step) {
        const int peer = (rank_ + step) % size_;
        const int64_t theirs = owned_elements(b, peer);
        for (int64_t done = 0; done < theirs; done += piece_elements(b)) {
          const int64_t bytes = std::min(piece_elements(b), theirs - done) * wire;
          DC_RETURN_IF_ERROR(
              posted(operation,
                     sends_.send(element(b.input.data, peer * b.shard + done, wire), bytes, peer)));
        }
      }
    }
    return base::ok_status();
  }
  Status post_piece(Operation operation, const CollectiveBuffer& b, const Piece& piece, int slot) {
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      const int64_t bytes = piece.count * base::byte_size(b.dtype);
      DC_RETURN_IF_ERROR(
          posted(operation, receives_[slot].receive(staged(slot, peer), bytes, peer)));
    }
    return base::ok_status();
  }
  void sum_piece(Operation operation, const CollectiveBuffer& b, const Piece& piece, int slot) {
    for (int peer = 0; peer < size_; ++peer)
      inputs_[static_cast<size_t>(peer)] = staged(slot, peer);
    const int64_t start = rank_ * b.shard + piece.first;
    inputs_[static_cast<size_t>(rank_)] = element(b.input.data, start, base::byte_size(b.dtype));
    const int64_t target = operation == Operation::AllReduce ? start : piece.first;
    sum_in_rank_order(inputs_, b.dtype, piece.count, static_cast<float*>(b.output.data) + target);
  }

  // Every rank sends its peers their ranges, and sums its own piece by piece: while one piece is
  // summed the next arrives. All messages between two ranks are posted in the same order on both,
  // so they need no tags.
  Status reduce(Operation operation, std::span<const CollectiveBuffer> buffers) {
    DC_RETURN_IF_ERROR(post_inputs(operation, buffers));
    Piece posted_piece, summed_piece;
    bool more = advance(buffers, posted_piece);
    for (int slot = 0; slot < 2 && more; ++slot) {
      DC_RETURN_IF_ERROR(post_piece(operation, buffers[posted_piece.buffer], posted_piece, slot));
      more = advance(buffers, posted_piece);
    }
    for (int slot = 0; advance(buffers, summed_piece); slot ^= 1) {
      DC_RETURN_IF_ERROR(finish(receives_[slot].wait(operation, aborted_)));
      sum_piece(operation, buffers[summed_piece.buffer], summed_piece, slot);
      if (!more) continue;
      DC_RETURN_IF_ERROR(post_piece(operation, buffers[posted_piece.buffer], posted_piece, slot));
      more = advance(buffers, posted_piece);
    }
    return finish(sends_.wait(operation, aborted_));
  }

  std::shared_ptr<World> world_;
  int rank_, size_;
  Transfers sends_, receives_[2];
  std::unique_ptr<std::byte[]> staging_;
  std::vector<const void*> inputs_;
  ResolvedBuffers resolved_;
  TrafficCounter traffic_;
  Status failure_;
  std::atomic<bool> aborted_{false};
};

class MpiProcessGroup final : public ProcessGroup {
 public:
  MpiProcessGroup(std::shared_ptr<World> world, std::unique_ptr<Communicator> control,
                  const LaunchInfo& launch, device::Device& device)
      : world_(std::move(world)), control_(std::move(control)), launch_(launch), device_(device) {}
  Communicator& control() override { return *control_; }
  device::Device& device() override { return device_; }

  base::Result<Slab> allocate(int64_t bytes) override {
    return world_->slabs.allocate(*control_, device_, bytes);
  }

  base::Result<std::unique_ptr<Communicator>> open_communicator(
      std::span<const int> ranks) override {
    DC_ASSIGN_OR_RETURN(const Members members, members_of(ranks, launch_.rank, launch_.world));
    DC_RETURN_IF_ERROR(agree_on_members(*control_, members));
    return open(world_, members, hosts());
  }
  void leave(const Status& why) override {
    if (!why.ok())
      world_->broken.store(true);  // no orderly end: mpirun sees it and ends the others
  }

  static base::Result<std::unique_ptr<Communicator>> open(const std::shared_ptr<World>& world,
                                                          const Members& members,
                                                          const std::vector<int>& hosts) {
    MPI_Comm comm = MPI_COMM_NULL;
    const auto lock = world->lock();
    const int error = MPI_Comm_split(MPI_COMM_WORLD, members.at(0), members.index, &comm);
    if (error != MPI_SUCCESS) return mpi_failed(Operation::Open, error);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return std::unique_ptr<Communicator>(
        std::make_unique<MpiCommunicator>(world, comm, members, hosts));
  }

 private:
  std::shared_ptr<World> world_;
  std::unique_ptr<Communicator> control_;
  LaunchInfo launch_;
  device::Device& device_;
};

base::Result<std::unique_ptr<ProcessGroup>> open_process_group(const LaunchInfo& launch,
                                                               const CommOptions& options) {
  int initialized = 0, provided = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0)
    return Status(ErrorKind::Internal, "DC6112", "MPI was already initialised in this process");
  setenv("OMPI_MCA_mpi_yield_when_idle", "1",
         0);  // Open MPI's own waits (start and end) then give the core away
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
    return Status(ErrorKind::Unavailable, "DC6112", "MPI cannot be initialised");
  }
  auto world = std::make_shared<World>();
  world->thread_safe = provided == MPI_THREAD_MULTIPLE;
  world->timeout = options.timeout;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (provided < MPI_THREAD_SERIALIZED) {
    return Status(ErrorKind::Unavailable, "DC6112",
                  "this MPI library allows no threads (MPI_THREAD_SERIALIZED is needed)");
  }
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank != launch.rank || size != launch.world) {
    return Status(ErrorKind::BadConfig, "DC6112",
                  "MPI says rank " + std::to_string(rank) + " of " + std::to_string(size) +
                      ", the environment of " +
                      std::string(launch.launcher == Launcher::Mpich ? "MPICH" : "the launcher") +
                      " rank " + std::to_string(launch.rank) + " of " +
                      std::to_string(launch.world) +
                      "; start with the mpirun of the MPI that dcrun was built with");
  }
  DC_ASSIGN_OR_RETURN(auto control,
                      MpiProcessGroup::open(world, all_ranks(launch.rank, launch.world), {}));
  return std::unique_ptr<ProcessGroup>(std::make_unique<MpiProcessGroup>(
      std::move(world), std::move(control), launch, *options.device));
}

}  // namespace
}  // namespace dc::runtime::comm

extern "C" __attribute__((visibility("default"))) void dcrun_open_mpi(
    const dc::runtime::comm::LaunchInfo& launch, const dc::runtime::comm::CommOptions& options,
    std::unique_ptr<dc::runtime::comm::ProcessGroup>* job, dc::base::Status* status) {
  auto opened = dc::runtime::comm::open_process_group(launch, options);
  if (opened.ok())
    *job = std::move(opened).value();
  else
    *status = opened.status();
}

DC_PLUGIN_INTERFACE
