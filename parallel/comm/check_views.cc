#include "parallel/comm/check_views.h"

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

void check_one(const Communicator& comm, const char* call, ConstView view, Device where) {
  WEFT_CHECK(view.contiguous(), "{} on {}: rows of {} lie {} elements apart", call, comm.name(),
             view.shape, view.row_stride);
  WEFT_CHECK(view.device == where, "{} on {}: a view in the memory of {} {}", call, comm.name(),
             view.device.is_cpu() ? "the host, device" : "CUDA device", view.device.index);
}

// `all` must hold `size` times what `mine` holds.
void check_parts(const Communicator& comm, const char* call, ConstView mine, ConstView all,
                 Device where) {
  check_one(comm, call, mine, where);
  check_one(comm, call, all, where);
  WEFT_CHECK(all.dtype == mine.dtype && all.shape.elements() == comm.size() * mine.shape.elements(),
             "{} on {}: {} {} for each of {} ranks does not make {} {}", call, comm.name(),
             name_of(mine.dtype), mine.shape, comm.size(), name_of(all.dtype), all.shape);
}

void check_rows(const Communicator& comm, ConstView view, std::span<const int64_t> rows,
                Device where) {
  check_one(comm, "all_to_all_v", view, where);
  WEFT_CHECK(std::ssize(rows) == comm.size(), "all_to_all_v on {}: row counts for {} ranks",
             comm.name(), rows.size());
  WEFT_CHECK(std::all_of(rows.begin(), rows.end(), [](int64_t n) { return n >= 0; }),
             "all_to_all_v on {}: a negative row count", comm.name());
  WEFT_CHECK(std::accumulate(rows.begin(), rows.end(), int64_t{0}) == view.rows(),
             "all_to_all_v on {}: row counts [{}] do not sum to the rows of {}", comm.name(),
             fmt::join(rows, ", "), view.shape);
}

}  // namespace

std::vector<Transfer> transfers_of(std::span<const HostGroup::Message> together) {
  std::vector<Transfer> transfers;
  for (const HostGroup::Message& m : together) {
    const auto count = static_cast<int64_t>(m.numbers.size());
    const bool sends = m.kind == HostGroup::Message::Kind::kSend;
    transfers.push_back({sends ? Transfer::Kind::kSend : Transfer::Kind::kRecv, m.peer,
                         View{m.numbers.data(), {count}, count, DType::kI64, {}}, m.tag});
  }
  return transfers;
}

std::string signature(const char* call, ConstView view) {
  return fmt::format("{}({} {})", call, name_of(view.dtype), view.shape);
}

std::string row_signature(ConstView send) {
  return fmt::format("all_to_all_v({} rows of {})", name_of(send.dtype), send.width());
}

void check_all_reduce(const Communicator& comm, ConstView inout, Device where) {
  check_one(comm, "all_reduce", inout, where);
}

void check_all_gather(const Communicator& comm, ConstView mine, ConstView all, Device where) {
  check_parts(comm, "all_gather", mine, all, where);
}

void check_reduce_scatter(const Communicator& comm, ConstView all, ConstView mine, Device where) {
  check_parts(comm, "reduce_scatter", mine, all, where);
}

void check_all_to_all(const Communicator& comm, ConstView send, std::span<const int64_t> send_rows,
                      ConstView recv, std::span<const int64_t> recv_rows, Device where) {
  check_rows(comm, send, send_rows, where);
  check_rows(comm, recv, recv_rows, where);
  WEFT_CHECK(send.dtype == recv.dtype && send.width() == recv.width(),
             "all_to_all_v on {}: sends {} {}, receives {} {}", comm.name(), name_of(send.dtype),
             send.shape, name_of(recv.dtype), recv.shape);
}

void check_transfer(const Communicator& comm, const Transfer& transfer, Device where) {
  check_one(comm, "transfer", transfer.data, where);
  WEFT_CHECK(transfer.peer >= 0 && transfer.peer < comm.size(), "transfer on {} with rank {}",
             comm.name(), transfer.peer);
}

}  // namespace weft
