#include "parallel/comm/mpi_comm.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "core/host_access.h"
#include "core/threads/errands.h"
#include "parallel/comm/check_views.h"
#include "parallel/comm/mpi_call.h"
#include "parallel/comm/reduction.h"
#include "parallel/layout/layout.h"

namespace weft {
namespace {

constexpr int64_t kSmallReduction =
    16 << 10;  // bytes: below, one exchange of everything is quicker than two

const char* offset(const void* data, int64_t bytes) {
  return static_cast<const char*>(data) + bytes;
}
char* offset(void* data, int64_t bytes) { return static_cast<char*>(data) + bytes; }

// MPI moves messages only inside calls. A probe of a communicator that never has one goes through
// all that is under way; one that found something would return at once.
void let_messages_move() {
  int ignored = 0;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &ignored, MPI_STATUS_IGNORE),
            "self", "Iprobe");
}

}  // namespace

struct MpiComm::Impl {
  MPI_Comm comm = MPI_COMM_NULL;
  ~Impl() {
    int over = 0;
    MPI_Finalized(&over);
    if (!over && comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  }
};

// One half of an exchange. Data of a send is only read.
struct MpiComm::Message {
  Transfer::Kind kind;
  int peer;
  void* data;
  int64_t bytes;
  int tag = 0;

  static Message send(int peer, const void* data, int64_t bytes) {
    return {Transfer::Kind::kSend, peer, const_cast<void*>(data), bytes};
  }
  static Message receive(int peer, void* data, int64_t bytes) {
    return {Transfer::Kind::kRecv, peer, data, bytes};
  }
};

std::unique_ptr<MpiComm> MpiComm::world(const MpiOptions& options) {
  auto impl = std::make_unique<Impl>();
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &impl->comm), "world", "MPI_Comm_dup");
  return std::unique_ptr<MpiComm>(new MpiComm(std::move(impl), options, "world"));
}

std::unique_ptr<MpiComm> MpiComm::split(int color, int key, const std::string& axis) {
  auto impl = std::make_unique<Impl>();
  check_mpi(MPI_Comm_split(impl_->comm, color < 0 ? MPI_UNDEFINED : color, key, &impl->comm), name_,
            "split");
  if (impl->comm == MPI_COMM_NULL) return nullptr;
  return std::unique_ptr<MpiComm>(new MpiComm(std::move(impl), options_, axis));
}

struct MpiComm::Requests {
  std::vector<MPI_Request> all;
  std::vector<int> expected;  // bytes, by request; -1 for sends
};

// All messages at once, in pieces that MPI can count; between two ranks those of one tag arrive in
// the order of the list.
void MpiComm::post(const char* call, std::span<const Message> messages, Requests& requests) {
  for (const Transfer::Kind kind : {Transfer::Kind::kRecv, Transfer::Kind::kSend}) {
    for (const Message& m : messages) {
      if (m.kind != kind) continue;
      for (int64_t at = 0; at == 0 || at < m.bytes; at += options_.largest_message) {
        const int bytes = static_cast<int>(std::min(options_.largest_message, m.bytes - at));
        MPI_Request& request = requests.all.emplace_back(MPI_REQUEST_NULL);
        requests.expected.push_back(kind == Transfer::Kind::kRecv ? bytes : -1);
        char* data = offset(m.data, at);
        check_mpi(kind == Transfer::Kind::kRecv
                      ? MPI_Irecv(data, bytes, MPI_BYTE, m.peer, m.tag, impl_->comm, &request)
                      : MPI_Isend(data, bytes, MPI_BYTE, m.peer, m.tag, impl_->comm, &request),
                  name_, call);
      }
    }
  }
}

void MpiComm::finish(const char* call, Requests& requests) {
  std::vector<MPI_Status> statuses(requests.all.size());
  const int code =
      MPI_Waitall(static_cast<int>(statuses.size()), requests.all.data(), statuses.data());
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (code == MPI_ERR_IN_STATUS) check_mpi(statuses[i].MPI_ERROR, name_, call);
    if (code != MPI_SUCCESS || requests.expected[i] < 0) continue;
    int got = 0;
    MPI_Get_count(&statuses[i], MPI_BYTE, &got);
    WEFT_CHECK(got == requests.expected[i], "{} on {}: rank {} sent {} bytes, {} were expected",
               call, name_, statuses[i].MPI_SOURCE, got, requests.expected[i]);
  }
  check_mpi(code, name_, call);
}

void MpiComm::exchange(const char* call, std::span<const Message> messages) {
  Requests requests;
  post(call, messages, requests);
  finish(call, requests);
}

void MpiComm::gather_bytes(const void* mine, int64_t bytes, void* all) {
  const bool in_place = mine == offset(all, rank_ * bytes);
  if (bytes <= options_.largest_message) {
    const int count = static_cast<int>(bytes);
    check_mpi(MPI_Allgather(in_place ? MPI_IN_PLACE : mine, count, MPI_BYTE, all, count, MPI_BYTE,
                            impl_->comm),
              name_, "all_gather");
    return;
  }
  std::vector<Message> messages;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    messages.push_back(Message::send(r, mine, bytes));
    messages.push_back(Message::receive(r, offset(all, r * bytes), bytes));
  }
  exchange("all_gather", messages);
  if (!in_place) std::memcpy(offset(all, rank_ * bytes), mine, static_cast<size_t>(bytes));
}

void MpiComm::all_gather(Exec&, ConstView mine, View all) {
  check_all_gather(*this, mine, all);
  if (!mine.empty()) gather_bytes(mine.data, bytes_of(mine), all.data);
}

// out = reduction over the ranks, in their order: row r of `parts`, or `own` for this rank's.
void MpiComm::reduce_parts(Exec& exec, const Tensor& parts, const void* own, View out,
                           ReduceOp op) {
  const int64_t count = out.shape.elements(), bytes = bytes_of(out);
  constexpr int64_t kTask = 1 << 15;
  exec.threads.run((count + kTask - 1) / kTask, [&](int64_t task) {
    Reduction part{op, {}, {out.data}, task * kTask, std::min(count, (task + 1) * kTask), 0};
    for (int r = 0; r < size_; ++r) {
      part.from.push_back(r == rank_ && own != nullptr ? own
                                                       : offset(host_bytes(parts), r * bytes));
    }
    part.run(out.dtype);
  });
}

// Every rank receives all ranks' parts of its share, reduces it, and sends the result to all.
void MpiComm::reduce_block(Exec& exec, View block, ReduceOp op) {
  const int64_t count = block.shape.elements(), element = size_of(block.dtype);
  const auto share = [&](int r) { return even_part(count, r, size_); };
  const auto at = [&](int r) { return offset(block.data, share(r).begin * element); };
  const int64_t mine = share(rank_).size();
  const Tensor parts = exec.scratch({size_, mine}, block.dtype);
  std::vector<Message> there, back;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    there.push_back(Message::send(r, at(r), share(r).size() * element));
    there.push_back(
        Message::receive(r, offset(host_bytes(parts), r * mine * element), mine * element));
    back.push_back(Message::send(r, at(rank_), mine * element));
    back.push_back(Message::receive(r, at(r), share(r).size() * element));
  }
  exchange("all_reduce", there);
  reduce_parts(exec, parts, at(rank_), {at(rank_), {mine}, mine, block.dtype, {}}, op);
  exchange("all_reduce", back);
}

void MpiComm::all_reduce(Exec& exec, View inout, ReduceOp op) {
  check_all_reduce(*this, inout);
  if (inout.empty() || size_ == 1) return;
  if (bytes_of(inout) <= kSmallReduction) {
    reduce_gathered(exec, inout, op);
  } else {
    reduce_shared(exec, inout, op);
  }
}

void MpiComm::sum(Exec& exec, View inout, SumWay way) {
  check_all_reduce(*this, inout);
  if (way == SumWay::kOneExchange) return reduce_gathered(exec, inout, ReduceOp::kSum);
  if (way == SumWay::kTwoExchanges) return reduce_shared(exec, inout, ReduceOp::kSum);
  WEFT_CHECK(inout.dtype == DType::kF32, "sum on {}: {} numbers", name_, name_of(inout.dtype));
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, inout.data, static_cast<int>(inout.shape.elements()),
                          MPI_FLOAT, MPI_SUM, impl_->comm),
            name_, "MPI_Allreduce");
}

void MpiComm::sum_scattered(ConstView all, View mine) {
  check_reduce_scatter(*this, all, mine);
  WEFT_CHECK(mine.dtype == DType::kF32, "sum on {}: {} numbers", name_, name_of(mine.dtype));
  check_mpi(MPI_Reduce_scatter_block(all.data, mine.data, static_cast<int>(mine.shape.elements()),
                                     MPI_FLOAT, MPI_SUM, impl_->comm),
            name_, "MPI_Reduce_scatter_block");
}

void MpiComm::reduce_gathered(Exec& exec, View inout, ReduceOp op) {
  const int64_t count = inout.shape.elements();
  const Tensor all = exec.scratch({size_, count}, inout.dtype);
  gather_bytes(inout.data, count * size_of(inout.dtype), host_bytes(all));
  reduce_parts(exec, all, nullptr, inout, op);
}

void MpiComm::reduce_shared(Exec& exec, View inout, ReduceOp op) {
  const int64_t count = inout.shape.elements(), element = size_of(inout.dtype);
  const int64_t block = std::max<int64_t>(1, options_.block / element);
  for (int64_t begin = 0; begin < count; begin += block) {
    const int64_t size = std::min(block, count - begin);
    reduce_block(exec, {offset(inout.data, begin * element), {size}, size, inout.dtype, {}}, op);
  }
}

void MpiComm::reduce_scatter(Exec& exec, ConstView all, View mine) {
  check_reduce_scatter(*this, all, mine);
  const int64_t count = mine.shape.elements(), element = size_of(mine.dtype);
  const int64_t block = std::max<int64_t>(1, options_.block / element / size_);
  for (int64_t begin = 0; begin < count; begin += block) {
    const int64_t size = std::min(block, count - begin), bytes = size * element;
    const Tensor parts = exec.scratch({size_, size}, mine.dtype);
    const auto from = [&](int r) { return offset(all.data, (r * count + begin) * element); };
    std::vector<Message> messages;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      messages.push_back(Message::send(r, from(r), bytes));
      messages.push_back(Message::receive(r, offset(host_bytes(parts), r * bytes), bytes));
    }
    exchange("reduce_scatter", messages);
    reduce_parts(exec, parts, from(rank_),
                 {offset(mine.data, begin * element), {size}, size, mine.dtype, {}},
                 ReduceOp::kSum);
  }
}

void MpiComm::all_to_all_v(Exec&, ConstView send, std::span<const int64_t> send_rows, View recv,
                           std::span<const int64_t> recv_rows) {
  check_all_to_all(*this, send, send_rows, recv, recv_rows);
  const int64_t row = send.width() * size_of(send.dtype);
  int64_t from = 0, to = 0;
  std::vector<Message> messages;
  for (int r = 0; r < size_; ++r) {
    const int64_t out = send_rows[static_cast<size_t>(r)] * row,
                  in = recv_rows[static_cast<size_t>(r)] * row;
    if (r == rank_) {
      WEFT_CHECK(out == in, "all_to_all_v on {}: sends itself {} bytes, expects {}", name_, out,
                 in);
      if (out > 0)
        std::memcpy(offset(recv.data, to), offset(send.data, from), static_cast<size_t>(out));
    } else {
      messages.push_back(Message::send(r, offset(send.data, from), out));
      messages.push_back(Message::receive(r, offset(recv.data, to), in));
    }
    from += out;
    to += in;
  }
  exchange("all_to_all_v", messages);
}

class MpiComm::Exchange final : public Pending {
 public:
  Exchange(MpiComm& comm, std::span<const Transfer> together) : comm_(comm) {
    std::vector<Message> messages;
    for (const Transfer& one : together) {
      check_transfer(comm, one);
      messages.push_back({one.kind, one.peer, one.data.data, bytes_of(one.data), one.tag});
    }
    comm_.post("transfer", messages, requests_);
  }
  ~Exchange() override {
    for (MPI_Request& request : requests_.all) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }
  void wait() override {
    moving_.reset();
    comm_.finish("transfer", requests_);
  }

 private:
  MpiComm& comm_;
  Requests requests_;
  std::optional<Errand> moving_{let_messages_move};  // until it is waited for
};

std::unique_ptr<Pending> MpiComm::start(Exec&, std::span<const Transfer> together) {
  return std::make_unique<Exchange>(*this, together);
}

void MpiComm::transfer(Exec&, std::span<const Transfer> together) {
  Exchange(*this, together).wait();
}

class MpiComm::Hosts final : public HostGroup {
 public:
  explicit Hosts(MpiComm& comm) : comm_(comm) {}
  int rank() const override { return comm_.rank_; }
  int size() const override { return comm_.size_; }
  std::string_view name() const override { return comm_.name_; }

  void barrier() override { check_mpi(MPI_Barrier(comm_.impl_->comm), comm_.name_, "barrier"); }
  void gather_into(std::span<const int64_t> mine, std::span<int64_t> all) override {
    if (mine.empty()) return;
    comm_.gather_bytes(mine.data(), static_cast<int64_t>(mine.size_bytes()), all.data());
  }
  void exchange_into(std::span<const int64_t> to_each, std::span<int64_t> from_each) override {
    const int count = static_cast<int>(to_each.size()) / size();
    check_mpi(MPI_Alltoall(to_each.data(), count, MPI_INT64_T, from_each.data(), count, MPI_INT64_T,
                           comm_.impl_->comm),
              comm_.name_, "exchange");
  }
  std::unique_ptr<Pending> start(std::span<const Message> together) override {
    return std::make_unique<Exchange>(comm_, transfers_of(together));
  }

 private:
  MpiComm& comm_;
};

MpiComm::MpiComm(std::unique_ptr<Impl> impl, const MpiOptions& options, const std::string& axis)
    : impl_(std::move(impl)), options_(options), hosts_(std::make_unique<Hosts>(*this)) {
  MPI_Comm_set_errhandler(impl_->comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(impl_->comm, &rank_);
  MPI_Comm_size(impl_->comm, &size_);
  name_ = fmt::format("{}[{}/{}]", axis, rank_, size_);
}

MpiComm::~MpiComm() = default;

}  // namespace weft
