#include "runtime/comm/tcp_exchange.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "runtime/comm/sums.h"

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Status;

constexpr size_t kVectors = 64;  // ranges of one call: fused collectives have many small ones
// A peer whose connection broke has this long to say goodbye on its lifeline, which may be slower.
constexpr int64_t kGraceNs = 2'000'000'000;

Deadline in_ns(int64_t nanoseconds) { return {monotonic_ns() + nanoseconds}; }

}  // namespace

base::Result<std::unique_ptr<Exchange>> Exchange::create(
    Peers& peers, const Members& members, const std::vector<device::Descriptor>& links,
    std::chrono::milliseconds timeout) {
  DC_ASSIGN_OR_RETURN(device::Mapping staging,
                      device::Mapping::anonymous(2 * kHalf * std::max(members.size() - 1, 1)));
  return std::unique_ptr<Exchange>(
      new Exchange(peers, members, links, timeout, std::move(staging)));
}

Exchange::Exchange(Peers& peers, const Members& members,
                   const std::vector<device::Descriptor>& links, std::chrono::milliseconds timeout,
                   device::Mapping staging)
    : peers_(peers),
      timeout_(timeout),
      staging_(std::move(staging)),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      inputs_(static_cast<size_t>(members.size())) {
  transfer_.rank = members.index;
  transfer_.size = members.size();
  transfer_.staging = staging_.base();
  for (int step = 1; step < members.size(); ++step) {
    const int member = (members.index + step) % members.size(), rank = members.at(member);
    links_.push_back({rank, member, links[static_cast<size_t>(rank)].get(), {}, {}, {}, false});
  }
  events_.resize(1 + links_.size());
  peers_.add_waiter(event_.get());
}

Exchange::~Exchange() { peers_.remove_waiter(event_.get()); }

void Exchange::abort() {
  aborted_.store(true);
  eventfd_write(event_.get(), 1);
}

base::Status Exchange::run(Operation operation, uint64_t fingerprint,
                           std::span<const CollectiveBuffer> buffers, int first) {
  DC_RETURN_IF_ERROR(start(operation, fingerprint, buffers, first));
  Patience patience(timeout_);
  for (bool own_copied = transfer_.opening != Flow::Inputs;;) {
    bool moved = false;
    for (Link& link : links_) DC_RETURN_IF_ERROR(send_some(link, &moved));
    if (!own_copied) transfer_.copy_own();  // while the first bytes are on their way
    own_copied = true;
    // New sums may be what a connection waits for.
    if (sum_arrived() && transfer_.returns_sums) continue;
    if (done()) return base::ok_status();
    DC_RETURN_IF_ERROR(sleep(patience, moved));
  }
}

base::Status Exchange::start(Operation operation, uint64_t fingerprint,
                             std::span<const CollectiveBuffer> buffers, int first) {
  operation_ = operation;
  header_.fingerprint = fingerprint;
  ++header_.sequence;
  transfer_.buffers = buffers;
  transfer_.first = first;
  const bool reduces = operation == Operation::ReduceScatter || operation == Operation::AllReduce;
  transfer_.opening = reduces ? Flow::Contributions : Flow::Inputs;
  transfer_.returns_sums = operation == Operation::AllReduce;
  transfer_.begin();
  for (Link& link : links_) {
    link.out = link.in = Cursor();
    link.full = false;
  }
  DC_RETURN_IF_ERROR(reason_to_stop());
  // Nobody completes a collective, and leaves, before this rank has come to it.
  for (const Link& link : links_) {
    if (peers_.gone(link.rank)) return peers_.gone_status(link.rank, name(operation));
  }
  return base::ok_status();
}

base::Status Exchange::send_some(Link& link, bool* moved) {
  Range range;
  if (link.full || !transfer_.next_out(link.member, link.out, header_, &range)) return Status();
  std::array<iovec, kVectors> list;
  msghdr message{};
  message.msg_iov = list.data();
  message.msg_iovlen =
      static_cast<size_t>(transfer_.collect(link.member, link.out, header_, true, list));
  const ssize_t sent = sendmsg(link.socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && errno == EINTR) return base::ok_status();
  if (sent < 0 && errno != EAGAIN) return lost(link);
  size_t wanted = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) wanted += list[i].iov_len;
  link.full = sent < static_cast<ssize_t>(wanted);
  transfer_.move(link.member, link.out, header_, true, std::max<ssize_t>(sent, 0));
  *moved |= !link.full;
  return base::ok_status();
}

base::Status Exchange::receive_some(Link& link) {
  std::array<iovec, kVectors> list;
  msghdr message{};
  message.msg_iov = list.data();
  message.msg_iovlen =
      static_cast<size_t>(transfer_.collect(link.member, link.in, link.heard, false, list));
  if (message.msg_iovlen == 0) return base::ok_status();
  const ssize_t got = recvmsg(link.socket, &message, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return base::ok_status();
  if (got <= 0) return lost(link);
  const bool new_header = link.in.flow == Flow::Header;
  transfer_.move(link.member, link.in, link.heard, false, got);
  if (!new_header || link.in.flow == Flow::Header) return base::ok_status();
  if (link.heard.fingerprint == header_.fingerprint && link.heard.sequence == header_.sequence)
    return base::ok_status();
  return ranks_disagree(header_.fingerprint, peers_.rank(), link.heard.fingerprint, link.rank);
}

// Waits until something can move, unless `only_look`, and receives.
base::Status Exchange::sleep(Patience& patience, bool only_look) {
  events_[0] = {event_.get(), POLLIN, 0};
  for (size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    Range range;
    short wanted = 0;
    if (transfer_.next_in(link.member, link.in, link.heard, &range)) wanted |= POLLIN;
    if (link.full) wanted |= POLLOUT;
    // A connection with nothing to do may have ended already, which is no news.
    events_[1 + i] = {wanted == 0 ? -1 : link.socket, wanted, 0};
  }
  const Deadline look{patience.next_look()};
  const int ready = poll(events_.data(), events_.size(), only_look ? 0 : look.left_ms());
  const bool is_over = patience.is_over();
  if (ready < 0 && errno != EINTR) return socket_failed("poll", errno);
  if (ready <= 0) return is_over ? late() : base::ok_status();
  for (size_t i = 0; i < links_.size(); ++i) {
    const pollfd& event = events_[1 + i];
    if (event.revents == 0) continue;
    if ((event.revents & ~POLLIN) != 0) links_[i].full = false;
    if ((event.events & POLLIN) != 0 && (event.revents & ~POLLOUT) != 0)
      DC_RETURN_IF_ERROR(receive_some(links_[i]));
  }
  if (events_[0].revents != 0) {
    eventfd_t count = 0;
    eventfd_read(event_.get(), &count);
    if (!done()) DC_RETURN_IF_ERROR(reason_to_stop());
  }
  return is_over && !done() ? late() : base::ok_status();
}

bool Exchange::sum_arrived() {
  bool any = false;
  while (transfer_.sums_missing) {
    for (const Link& link : links_) {
      if (link.in.pieces <= transfer_.summed) return any;
    }
    sum(transfer_.summing);
    ++transfer_.summed;
    transfer_.sums_missing = transfer_.advance(transfer_.summing);
    any = true;
  }
  return any;
}

void Exchange::sum(const Piece& piece) {
  const CollectiveBuffer& b = transfer_.buffers[piece.buffer];
  const int64_t start = transfer_.rank * b.shard + piece.first;
  for (const Link& link : links_)
    inputs_[static_cast<size_t>(link.member)] = transfer_.staged(link.member, piece);
  inputs_[static_cast<size_t>(transfer_.rank)] =
      element(b.input.data, start, base::byte_size(b.dtype));
  const int64_t target = transfer_.returns_sums ? start : piece.first;
  sum_in_rank_order(inputs_, b.dtype, piece.count, static_cast<float*>(b.output.data) + target);
}

bool Exchange::done() const {
  for (const Link& link : links_) {
    if (link.out.flow != Flow::Done || link.in.flow != Flow::Done) return false;
  }
  return !transfer_.sums_missing;
}

base::Status Exchange::reason_to_stop() {
  if (aborted_.load()) return called_off(operation_);
  return peers_.health(name(operation_));
}

// The connection ended. The lifeline tells why.
base::Status Exchange::lost(const Link& link) {
  for (const Deadline grace = in_ns(kGraceNs); !peers_.gone(link.rank);) {
    pollfd event{event_.get(), POLLIN, 0};
    if (poll(&event, 1, grace.left_ms()) == 0) break;
    eventfd_t count = 0;
    eventfd_read(event_.get(), &count);
    DC_RETURN_IF_ERROR(reason_to_stop());
  }
  if (!peers_.gone(link.rank)) peers_.record_death(link.rank);
  DC_RETURN_IF_ERROR(reason_to_stop());
  return peers_.gone_status(link.rank, name(operation_));
}

base::Status Exchange::late() const {
  std::vector<int> silent, unfinished;
  for (const Link& link : links_) {
    if (link.in.flow == Flow::Header) silent.push_back(link.rank);
    if (link.in.flow != Flow::Done || link.out.flow != Flow::Done) unfinished.push_back(link.rank);
  }
  auto& ranks = silent.empty() ? unfinished : silent;
  std::sort(ranks.begin(), ranks.end());
  return ranks_late(operation_, timeout_, ranks, silent.empty());
}

}  // namespace dc::runtime::comm
