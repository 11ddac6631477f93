#include "parallel/comm/communicator.h"

#include <cstring>

#include "core/base/error.h"
#include "parallel/comm/check_views.h"

namespace weft {
namespace {

using Kind = Transfer::Kind;

// Tags of collectives under way: apart from those that callers choose, and what MPI grants at
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
