#include "parallel/comm/communicator.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "parallel/comm/check_views.h"
#include "parallel/comm/reduction.h"

namespace weft {
namespace {

using Kind = Transfer::Kind;

// Tags of pending collectives: apart from those that callers choose, and what MPI grants at
// least.
constexpr int kFirstTag = 4096, kTags = 16384;

View writable(ConstView view) {  // a send only reads
  return {const_cast<void*>(view.data), view.shape, view.row_stride, view.dtype, view.device};
}

void copy_own(ConstView from, View to) {
  if (!from.empty() && from.data != to.data) {
    std::memcpy(to.data, from.data, static_cast<size_t>(bytes_of(from)));
  }
}

// The parts of all ranks on their way to `mine`. The sum is formed in wait(), in rank order and
// with the arithmetic of every communicator, so it has the bits of reduce_scatter.
class PendingSum final : public Pending {
 public:
  PendingSum(Exec& exec, Communicator& comm, ConstView all, View mine)
      : exec_(exec),
        rank_(comm.rank()),
        all_(flat_rows(comm, all)),
        mine_(mine),
        parts_(exec.scratch({comm.size(), mine.shape.elements()}, mine.dtype)) {
    std::vector<Transfer> messages;
    for (int r = 0; r < comm.size() && !mine.empty(); ++r) {
      if (r == comm.rank()) continue;
      messages.push_back({Kind::kRecv, r, parts_.view().row_range(r, 1)});
      messages.push_back({Kind::kSend, r, writable(all_.row_range(r, 1))});
    }
    pending_ = comm.start_together(exec, {"reduce_scatter", signature("reduce_scatter", mine)},
                                   std::move(messages));
  }

  void wait() override {
    pending_->wait();
    const int64_t count = mine_.shape.elements();
    constexpr int64_t kTask = 1 << 15;
    exec_.threads.run((count + kTask - 1) / kTask, [&](int64_t task) {
      Reduction part{
          ReduceOp::kSum, {}, {mine_.data}, task * kTask, std::min(count, (task + 1) * kTask), 0};
      for (int r = 0; r < all_.shape[0]; ++r) {
        part.from.push_back(r == rank_ ? all_.row_range(r, 1).data : parts_.row(r).view().data);
      }
      part.run(mine_.dtype);
    });
  }

 private:
  static ConstView flat_rows(const Communicator& comm, ConstView all) {
    const int64_t count = all.shape.elements() / comm.size();
    return {all.data, {comm.size(), count}, count, all.dtype, all.device};
  }

  Exec& exec_;
  int rank_;
  ConstView all_;
  View mine_;
  Tensor parts_;
  std::unique_ptr<Pending> pending_;  // given up before the memory goes away
};

}  // namespace

std::unique_ptr<Pending> Communicator::start_together(Exec& exec, const Collective&,
                                                      std::vector<Transfer> parts) {
  const int tag = kFirstTag + started_++ % kTags;
  for (Transfer& part : parts) part.tag = tag;
  return start(exec, parts);
}

std::unique_ptr<Pending> Communicator::start_all_gather(Exec& exec, ConstView mine, View all) {
  check_all_gather(*this, mine, all);
  const int64_t count = mine.shape.elements();
  const ConstView own{mine.data, {1, count}, count, mine.dtype, mine.device};
  const View rows{all.data, {size(), count}, count, all.dtype, all.device};
  std::vector<Transfer> parts;
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || count == 0) continue;
    parts.push_back({Kind::kRecv, r, rows.row_range(r, 1)});
    parts.push_back({Kind::kSend, r, writable(own)});
  }
  copy_own(own, rows.row_range(rank(), 1));
  return start_together(exec, {"all_gather", signature("all_gather", mine)}, std::move(parts));
}

std::unique_ptr<Pending> Communicator::start_reduce_scatter(Exec& exec, ConstView all, View mine) {
  check_reduce_scatter(*this, all, mine);
  return std::make_unique<PendingSum>(exec, *this, all, mine);
}

std::unique_ptr<Pending> Communicator::start_all_to_all_v(Exec& exec, ConstView send,
                                                          std::span<const int64_t> send_rows,
                                                          View recv,
                                                          std::span<const int64_t> recv_rows) {
  check_all_to_all(*this, send, send_rows, recv, recv_rows);
  std::vector<Transfer> parts;
  int64_t from = 0, to = 0;
  for (int r = 0; r < size(); ++r) {
    const int64_t out = send_rows[static_cast<size_t>(r)], in = recv_rows[static_cast<size_t>(r)];
    const ConstView theirs = send.row_range(from, out);
    const View mine = recv.row_range(to, in);
    from += out;
    to += in;
    if (r == rank()) {
      WEFT_CHECK(out == in, "all_to_all_v on {}: sends itself {} rows, expects {}", name(), out,
                 in);
      copy_own(theirs, mine);
      continue;
    }
    if (!mine.empty()) parts.push_back({Kind::kRecv, r, mine});
    if (!theirs.empty()) parts.push_back({Kind::kSend, r, writable(theirs)});
  }
  return start_together(exec, {"all_to_all_v", row_signature(send)}, std::move(parts));
}

}  // namespace weft
