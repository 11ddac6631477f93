#include "parallel/comm/self_comm.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "parallel/comm/check_views.h"

namespace weft {
namespace {

void copy(ConstView from, View to) {
  if (!from.empty()) std::memmove(to.data, from.data, static_cast<size_t>(bytes_of(from)));
}

}  // namespace

SelfComm::SelfComm(std::string_view axis) : name_(fmt::format("{}[0/1]", axis)), hosts_(name_) {}

void SelfComm::all_reduce(Exec&, View inout, ReduceOp) { check_all_reduce(*this, inout); }

void SelfComm::all_gather(Exec&, ConstView mine, View all) {
  check_all_gather(*this, mine, all);
  copy(mine, all);
}

void SelfComm::reduce_scatter(Exec&, ConstView all, View mine) {
  check_reduce_scatter(*this, all, mine);
  copy(all, mine);
}

void SelfComm::all_to_all_v(Exec&, ConstView send, std::span<const int64_t> send_rows, View recv,
                            std::span<const int64_t> recv_rows) {
  check_all_to_all(*this, send, send_rows, recv, recv_rows);
  WEFT_CHECK(send_rows[0] == recv_rows[0], "all_to_all_v on {}: sends {} rows, receives {}", name_,
             send_rows[0], recv_rows[0]);
  copy(send, recv);
}

void SelfComm::transfer(Exec&, std::span<const Transfer> together) {
  std::vector<const Transfer*> sends;
  for (const Transfer& one : together) {
    check_transfer(*this, one);
    if (one.kind == Transfer::Kind::kSend) sends.push_back(&one);
  }
  for (const Transfer& one : together) {
    if (one.kind == Transfer::Kind::kSend) continue;
    const auto found = std::find_if(sends.begin(), sends.end(),
                                    [&](const Transfer* send) { return send->tag == one.tag; });
    WEFT_CHECK(found != sends.end(), "transfer on {}: more receives than sends", name_);
    const ConstView from = (*found)->data;
    sends.erase(found);
    WEFT_CHECK(from.dtype == one.data.dtype && from.shape == one.data.shape,
               "transfer on {}: sends {} {}, receives {} {}", name_, name_of(from.dtype),
               from.shape, name_of(one.data.dtype), one.data.shape);
    copy(from, one.data);
  }
  WEFT_CHECK(sends.empty(), "transfer on {}: more sends than receives", name_);
}

std::unique_ptr<Pending> SelfComm::start(Exec& exec, std::span<const Transfer> together) {
  transfer(exec, together);
  return std::make_unique<Done>();
}

std::unique_ptr<Pending> SelfComm::start_all_gather(Exec& exec, ConstView mine, View all) {
  all_gather(exec, mine, all);
  return std::make_unique<Done>();
}

std::unique_ptr<Pending> SelfComm::start_reduce_scatter(Exec& exec, ConstView all, View mine) {
  reduce_scatter(exec, all, mine);
  return std::make_unique<Done>();
}

std::unique_ptr<Pending> SelfComm::start_all_to_all_v(Exec& exec, ConstView send,
                                                      std::span<const int64_t> send_rows, View recv,
                                                      std::span<const int64_t> recv_rows) {
  all_to_all_v(exec, send, send_rows, recv, recv_rows);
  return std::make_unique<Done>();
}

}  // namespace weft
